// Normalised results over the wire.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

class NormalizeTest : public ::testing::Test {
 protected:
  ContractionTestServer server_;
};

// A ring of transfer matrices [[e^K, e^-K], [e^-K, e^K]] times `factor`.
v1::ContractHeader IsingRing(int sites, double coupling, double factor, v1::DataType dtype) {
  v1::ContractHeader header;
  const double same = factor * std::exp(coupling), other = factor * std::exp(-coupling);
  for (int i = 0; i < sites; ++i) {
    AddOperand(&header, {"s" + std::to_string(i), "s" + std::to_string((i + 1) % sites)}, dtype,
               {2, 2}, {same, other, other, same});
  }
  header.mutable_execution()->set_normalize(true);
  return header;
}

TEST_F(NormalizeTest, PartitionFunctionsFarOutsideTheRange) {
  constexpr int kSites = 6000;
  for (const double factor : {12.0, 0.06}) {
    const Answer answer =
        Contract(&server_, IsingRing(kSites, 0.25, factor, v1::DATA_TYPE_FLOAT64));
    ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
    ASSERT_EQ(answer.results.size(), 1u);
    const ReceivedResult& result = answer.results[0];
    ASSERT_TRUE(result.log10_scale.has_value());
    const double mantissa = Decode(v1::DATA_TYPE_FLOAT64, result.bytes)[0].real();
    EXPECT_GE(mantissa, 0.5);
    EXPECT_LT(mantissa, 1);
    const double expected = kSites * std::log10(2 * factor * std::cosh(0.25)) +
                            std::log1p(std::pow(std::tanh(0.25), kSites));
    EXPECT_GT(std::abs(expected), 5000);
    EXPECT_NEAR(std::log10(mantissa) + *result.log10_scale, expected, 1e-9);
  }
}

TEST_F(NormalizeTest, PlainResultsHaveNoScale) {
  v1::ContractHeader header = MatrixProduct();
  const Answer plain = Contract(&server_, header);
  ASSERT_TRUE(plain.status.ok());
  EXPECT_FALSE(plain.results[0].log10_scale.has_value());
  header.mutable_execution()->set_normalize(true);
  const Answer normalised = Contract(&server_, header);
  ASSERT_TRUE(normalised.status.ok()) << Summary(normalised.status);
  const auto values = Decode(v1::DATA_TYPE_FLOAT64, normalised.results[0].bytes);
  for (size_t i = 0; i < kProduct.size(); ++i) EXPECT_EQ(values[i] * 64.0, kProduct[i]);
  EXPECT_EQ(normalised.results[0].log10_scale, 6 * std::log10(2.0));
  EXPECT_NE(normalised.report->plan().program_fingerprint(),
            plain.report->plan().program_fingerprint());
}

// In chunks, with a narrower result type: mantissas are near 1, so they fit.
TEST_F(NormalizeTest, ChunkedNarrowResultsOfManySets) {
  constexpr int kSide = 160;
  v1::ContractHeader header;
  const std::vector<std::complex<double>> huge(kSide, 1e300);
  AddOperand(&header, {"a"}, v1::DATA_TYPE_FLOAT64, {kSide}, huge);
  AddOperand(&header, {"b"}, v1::DATA_TYPE_FLOAT64, {kSide})->set_varying(true);
  SetOutput(&header, {"a", "b"});
  header.mutable_execution()->set_normalize(true);
  header.mutable_result()->set_dtype(v1::DATA_TYPE_FLOAT32);
  ContractClient client(&server_);
  ASSERT_TRUE(client.SendHeader(header));
  const std::vector<double> magnitudes = {1e300, 1, 0, 1e-300};
  for (size_t set = 0; set < magnitudes.size(); ++set) {
    const std::vector<std::complex<double>> values(kSide, magnitudes[set]);
    ASSERT_TRUE(
        client.SendSet(static_cast<int64_t>(set), {{1, Encode(v1::DATA_TYPE_FLOAT64, values)}}));
  }
  client.HalfClose();
  const Answer answer = client.Finish();
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.order_error, "");
  ASSERT_EQ(answer.results.size(), magnitudes.size());
  for (size_t set = 0; set < magnitudes.size(); ++set) {
    const ReceivedResult& result = answer.results[set];
    EXPECT_GT(result.chunks, 0);
    ASSERT_TRUE(result.log10_scale.has_value());
    const auto values = Decode(v1::DATA_TYPE_FLOAT32, result.bytes);
    const double log10 = std::log10(values.back().real()) + *result.log10_scale;
    if (magnitudes[set] == 0) {
      EXPECT_EQ(*result.log10_scale, -std::numeric_limits<double>::infinity());
    } else {
      EXPECT_NEAR(log10, 300 + std::log10(magnitudes[set]), 1e-6);
    }
  }
}

TEST_F(NormalizeTest, EstimatesSayWhoCan) {
  v1::EstimateRequest request;
  *request.mutable_header() = MatrixProduct();
  v1::EstimateResponse plain, normalised;
  grpc::ClientContext first, second;
  ASSERT_TRUE(server_.stub().Estimate(&first, request, &plain).ok());
  request.mutable_header()->mutable_execution()->set_normalize(true);
  ASSERT_TRUE(server_.stub().Estimate(&second, request, &normalised).ok());
  // A copy of each operand of four doubles, rounded up to a cache line.
  EXPECT_EQ(normalised.planned_peak_bytes(), plain.planned_peak_bytes() + 2 * 64);
  for (const v1::ProviderEstimate& provider : normalised.providers()) {
    if (provider.provider() == "fake") {
      EXPECT_EQ(provider.refusal().reason(), "UNSUPPORTED_BY_PROVIDER");
    } else {
      EXPECT_FALSE(provider.has_refusal()) << provider.refusal().message();
    }
  }
}

}  // namespace
}  // namespace tenon::server
