// Clients that stop sending: what is held for them comes back.

#include <gtest/gtest.h>

#include <string>

#include "server/job_board.h"
#include "server/state.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/dataset.grpc.pb.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tests/integration/test_server.h"
#include "tests/support/temporary_folder.h"

namespace tenon::testing {
namespace {

constexpr int64_t kSide = 8;
constexpr size_t kOperandBytes = kSide * kSide * sizeof(double);

void SetSpec(v1::TensorSpec* spec) {
  spec->set_dtype(v1::DATA_TYPE_FLOAT64);
  spec->add_shape(kSide);
  spec->add_shape(kSide);
}

std::string Bytes() {
  std::string bytes;
  for (int64_t i = 0; i < kSide * kSide; ++i) {
    const double value = 1.0 / static_cast<double>(i % 7 + 2 * i + 1);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

class SlowWriterTest : public ::testing::Test {
 protected:
  // Both limits are short; that which is not meant would be told by its name.
  void Start(server::Config config = TestConfig()) {
    config.read_stall_timeout = config.idle_stream_timeout = absl::Milliseconds(300);
    server_ = StartOrDie(config);
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = ChannelTo(server_->addresses()[0]);
    before_ = server_->state()->budget.reserved_bytes();
  }

  void ExpectCut(const grpc::Status& status, const char* setting) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
    EXPECT_EQ(ReasonOf(status), "SLOW_WRITER");
    EXPECT_NE(status.error_message().find(setting), std::string::npos) << status.error_message();
  }
  // What the call held is given back when it has ended, which may be a moment after its status.
  void ExpectNothingHeld() {
    server_->Shutdown();
    EXPECT_TRUE(server_->Wait());
    EXPECT_EQ(server_->state()->budget.reserved_bytes(), before_);
  }

  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  int64_t before_ = 0;
};

TEST_F(SlowWriterTest, AContractionHalfSent) {
  Start();
  auto stub = v1::ContractionService::NewStub(channel_);
  auto stream = stub->Contract(&context_);
  v1::ContractRequest header, chunk;
  v1::Einsum* einsum = header.mutable_header()->mutable_einsum();
  einsum->set_subscripts("ab,bc->ac");
  for (int k = 0; k < 2; ++k) SetSpec(einsum->add_operands()->mutable_spec());
  ASSERT_TRUE(stream->Write(header));
  chunk.mutable_chunk()->set_data(Bytes().substr(0, kOperandBytes / 2));
  ASSERT_TRUE(stream->Write(chunk));
  v1::ContractResponse answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_accepted());
  EXPECT_FALSE(stream->Read(&answer));
  ExpectCut(stream->Finish(), "--read_stall_timeout");
  ExpectNothingHeld();
}

TEST_F(SlowWriterTest, AContractionThatWaitsForAnotherSet) {
  Start();
  auto stub = v1::ContractionService::NewStub(channel_);
  auto stream = stub->Contract(&context_);
  v1::ContractRequest header, set;
  v1::Einsum* einsum = header.mutable_header()->mutable_einsum();
  einsum->set_subscripts("ab->a");
  v1::Operand* operand = einsum->add_operands();
  operand->set_varying(true);
  SetSpec(operand->mutable_spec());
  ASSERT_TRUE(stream->Write(header));
  set.mutable_chunk()->set_data(Bytes());
  ASSERT_TRUE(stream->Write(set));
  v1::ContractResponse answer;
  ASSERT_TRUE(stream->Read(&answer));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_result());
  EXPECT_FALSE(stream->Read(&answer));
  ExpectCut(stream->Finish(), "--idle_stream_timeout");
  ExpectNothingHeld();
}

TEST_F(SlowWriterTest, AMeasurementHalfSentAndOneThatWaitsForMore) {
  Start();
  for (const bool half : {true, false}) {
    auto stub = v1::MeasurementService::NewStub(channel_);
    grpc::ClientContext context;
    auto stream = stub->Measure(&context);
    v1::MeasureRequest header, chunk, projection;
    SetSpec(header.mutable_header()->mutable_dataset_input()->mutable_spec());
    header.mutable_header()->add_specs()->set_id("stress");
    ASSERT_TRUE(stream->Write(header));
    chunk.mutable_dataset_chunk()->set_data(Bytes().substr(0, kOperandBytes / (half ? 2 : 1)));
    ASSERT_TRUE(stream->Write(chunk));
    v1::MeasureResponse answer;
    ASSERT_TRUE(stream->Read(&answer));
    if (!half) {
      SetSpec(projection.mutable_projection()->mutable_spec());
      projection.mutable_projection()->set_inline_data(Bytes());
      ASSERT_TRUE(stream->Write(projection));
      ASSERT_TRUE(stream->Read(&answer));
      EXPECT_TRUE(answer.has_scores()) << answer.ShortDebugString();
    }
    EXPECT_FALSE(stream->Read(&answer));
    ExpectCut(stream->Finish(), half ? "--read_stall_timeout" : "--idle_stream_timeout");
  }
  ExpectNothingHeld();
}

TEST_F(SlowWriterTest, ADataSetHalfSent) {
  Start();
  auto stub = v1::DatasetService::NewStub(channel_);
  v1::CreateDatasetResponse answer;
  auto writer = stub->CreateDataset(&context_, &answer);
  v1::CreateDatasetRequest header, chunk;
  SetSpec(header.mutable_header()->mutable_spec());
  ASSERT_TRUE(writer->Write(header));
  chunk.mutable_chunk()->set_data(Bytes().substr(0, kOperandBytes / 2));
  ASSERT_TRUE(writer->Write(chunk));
  ExpectCut(writer->Finish(), "--read_stall_timeout");
  ExpectNothingHeld();
}

TEST_F(SlowWriterTest, AJobHalfSent) {
  const TemporaryFolder folder;
  server::Config config = TestConfig();
  config.state_dir = folder.path();
  config.state_budget_bytes = 1 << 20;
  Start(config);
  auto stub = v1::JobService::NewStub(channel_);
  v1::SubmitContractionResponse answer;
  auto writer = stub->SubmitContraction(&context_, &answer);
  v1::SubmitContractionRequest header, chunk;
  v1::Einsum* einsum = header.mutable_header()->mutable_contraction()->mutable_einsum();
  einsum->set_subscripts("ab,bc->ac");
  for (int k = 0; k < 2; ++k) SetSpec(einsum->add_operands()->mutable_spec());
  ASSERT_TRUE(writer->Write(header));
  chunk.mutable_chunk()->set_data(Bytes().substr(0, kOperandBytes / 2));
  ASSERT_TRUE(writer->Write(chunk));
  ExpectCut(writer->Finish(), "--read_stall_timeout");
  ExpectNothingHeld();
  EXPECT_EQ(server_->state()->jobs->QuotaOf("").used, 0);  // it has no place among the jobs
  server_.reset();  // before its folder
}

}  // namespace
}  // namespace tenon::testing
