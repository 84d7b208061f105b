// Estimate and PlanContraction.

#include <gtest/gtest.h>

#include <string>

#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

class EstimateTest : public ::testing::Test {
 protected:
  grpc::Status Estimate(const v1::ContractHeader& header) {
    grpc::ClientContext context;
    v1::EstimateRequest request;
    *request.mutable_header() = header;
    response_.Clear();
    return server_.stub().Estimate(&context, request, &response_);
  }

  ContractionTestServer server_;
  v1::EstimateResponse response_;
};

TEST_F(EstimateTest, TellsWhatTheCallTakes) {
  const v1::ContractHeader header = MatrixProduct();
  const grpc::Status status = Estimate(header);
  ASSERT_TRUE(status.ok()) << Summary(status);
  EXPECT_EQ(response_.request_id(), "product");
  EXPECT_FALSE(response_.has_refusal()) << response_.refusal().message();
  EXPECT_EQ(response_.result_spec().dtype(), v1::DATA_TYPE_FLOAT64);
  EXPECT_EQ(response_.result_spec().shape_size(), 2);
  EXPECT_GT(response_.kernels_size(), 0);

  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok());
  EXPECT_EQ(response_.plan().SerializeAsString().empty(), false);
  EXPECT_EQ(response_.plan().program_fingerprint(), answer.report->plan().program_fingerprint());
  EXPECT_EQ(response_.plan().flops(), 8);
  EXPECT_EQ(response_.planned_peak_bytes(), answer.accepted->planned_peak_bytes());
}

TEST_F(EstimateTest, NeedsNeitherBytesNorSpecs) {
  v1::ContractHeader header = MatrixProduct(false);
  ASSERT_TRUE(Estimate(header).ok());
  // Sizes alone will do; the type is then complex128.
  for (v1::Operand& operand : *header.mutable_network()->mutable_operands()) operand.clear_spec();
  EXPECT_EQ(Summary(Estimate(header)),
            "INVALID_ARGUMENT MISSING_FIELD header.network.operands[0].spec");
  for (const char* name : {"a", "b", "c"}) {
    (*header.mutable_network()->mutable_index_sizes())[name] = 2;
  }
  ASSERT_TRUE(Estimate(header).ok());
  EXPECT_EQ(response_.result_spec().dtype(), v1::DATA_TYPE_COMPLEX128);
}

TEST_F(EstimateTest, SpeaksOfEveryProvider) {
  ASSERT_TRUE(Estimate(MatrixProduct()).ok());
  ASSERT_EQ(response_.providers_size(), 3);
  for (const v1::ProviderEstimate& provider : response_.providers()) {
    EXPECT_FALSE(provider.has_refusal()) << provider.refusal().message();
    EXPECT_GT(provider.planned_peak_bytes(), 0) << provider.provider();
  }
}

TEST_F(EstimateTest, RefusalsStandInTheAnswer) {
  v1::ContractHeader header = MatrixProduct();
  header.mutable_execution()->set_memory_budget_bytes(1);
  ASSERT_TRUE(Estimate(header).ok());
  EXPECT_EQ(response_.refusal().reason(), "EXCEEDS_MEMORY_BUDGET");
  EXPECT_EQ(response_.plan().flops(), 8);  // as if there were no budget
  // A terabyte is more than the server has.
  header = MatrixProduct(false);
  for (v1::Operand& operand : *header.mutable_network()->mutable_operands()) {
    operand.mutable_spec()->set_shape(0, 262144);
    operand.mutable_spec()->set_shape(1, 262144);
  }
  ASSERT_TRUE(Estimate(header).ok());
  EXPECT_EQ(response_.refusal().reason(), "EXCEEDS_SERVER_LIMIT");
  EXPECT_GT(response_.planned_peak_bytes(), int64_t{1} << 40);
}

TEST_F(EstimateTest, FaultyHeadersFailTheCall) {
  v1::ContractHeader header = MatrixProduct();
  header.mutable_network()->set_output(0, "z");
  EXPECT_EQ(Summary(Estimate(header)), "INVALID_ARGUMENT UNKNOWN_INDEX header.network.output[0]");
  EXPECT_EQ(Summary(Estimate(v1::ContractHeader())),
            "INVALID_ARGUMENT MISSING_FIELD header.network");
}

}  // namespace
}  // namespace tenon::server
