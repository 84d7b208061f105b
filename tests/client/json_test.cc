#include "client/cpp/tool/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <sstream>

#include "backends/core/error.h"
#include "client/cpp/tool/contract_report.h"
#include "tenon/v1/measurement.pb.h"
#include "tenon/v1/provider.pb.h"

namespace tenon::tool {
namespace {

template <typename T>
Tensor MakeTensor(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  Tensor tensor = *Tensor::Allocate({dtype, std::move(shape)});
  std::copy(values.begin(), values.end(), tensor.buffer.as<T>());
  return tensor;
}

std::string Write(const Tensor& tensor) {
  std::ostringstream out;
  EXPECT_TRUE(WriteTensorJson(tensor, &out).ok());
  return out.str();
}

TEST(TensorJsonTest, NestedListsInRowMajorOrder) {
  EXPECT_EQ(Write(MakeTensor<double>(DType::kFloat64, {2, 3}, {1, 2, 3, 4, 5, -6.5})),
            "[[1, 2, 3], [4, 5, -6.5]]");
  EXPECT_EQ(Write(MakeTensor<double>(DType::kFloat64, {}, {0.1})), "0.1");
  EXPECT_EQ(Write(MakeTensor<std::complex<double>>(DType::kComplex128, {2}, {{1, -2}, {0, 3}})),
            "[[1, -2], [0, 3]]");
  EXPECT_EQ(Write(MakeTensor<double>(DType::kFloat64, {2, 0}, {})), "[[], []]");
  EXPECT_EQ(Write(MakeTensor<double>(DType::kFloat64, {int64_t{1} << 40, 0}, {})), "[]");
}

TEST(TensorJsonTest, EveryDigitThatCounts) {
  const std::vector<double> values = {1.0 / 3, std::numeric_limits<double>::max(),
                                      std::numeric_limits<double>::denorm_min(), -0.0};
  const auto read = nlohmann::json::parse(Write(MakeTensor<double>(DType::kFloat64, {4}, values)));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(read[i].get<double>(), values[i]);
  // A float32 is written as the float64 of the same value.
  const auto narrow = nlohmann::json::parse(Write(MakeTensor<float>(DType::kFloat32, {1}, {0.1f})));
  EXPECT_EQ(narrow[0].get<double>(), static_cast<double>(0.1f));
}

TEST(TensorJsonTest, WhatJsonCanNotSayIsNull) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Write(MakeTensor<double>(DType::kFloat64, {3}, {inf, -inf, std::nan("")})),
            "[null, null, null]");
}

TEST(TensorJsonTest, LargeTensorsComeOutWhole) {
  std::vector<double> values(50000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * 0.37;
  const auto read =
      nlohmann::json::parse(Write(MakeTensor<double>(DType::kFloat64, {100, 500}, values)));
  ASSERT_EQ(read.size(), 100u);
  ASSERT_EQ(read[99].size(), 500u);
  EXPECT_EQ(read[99][499].get<double>(), values.back());
}

TEST(TensorJsonTest, OtherTypesAreRefused) {
  std::ostringstream out;
  const absl::Status status = WriteTensorJson(MakeTensor<int32_t>(DType::kInt32, {1}, {1}), &out);
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kUnsupportedDtype);
}

TEST(MessageJsonTest, FieldsByName) {
  v1::Provider provider;
  provider.set_name("cpu");
  provider.set_state(v1::PROVIDER_STATE_READY);
  provider.set_memory_total_bytes(int64_t{1} << 60);
  provider.add_libraries("openblas 0.3");
  auto* step = provider.add_steps();
  step->add_dtypes(v1::DATA_TYPE_FLOAT32);
  step->add_dtypes(static_cast<v1::DataType>(99));
  const Json json = MessageToJson(provider);
  EXPECT_EQ(json["name"], "cpu");
  EXPECT_EQ(json["state"], "ready");
  EXPECT_EQ(json["memory_total_bytes"], int64_t{1} << 60);
  EXPECT_EQ(json["libraries"], Json({"openblas 0.3"}));
  EXPECT_EQ(json["steps"][0]["dtypes"], Json({"float32", 99}));
  EXPECT_TRUE(json["cold_init_seconds"].is_null());  // optional and absent
  EXPECT_FALSE(json.contains("error"));              // an absent message
}

TEST(MessageJsonTest, MapsTimesAndOneofs) {
  v1::SpecScores scores;
  (*scores.mutable_values())["b"] = 2;
  (*scores.mutable_values())["a"] = std::nan("");
  EXPECT_EQ(Dump(MessageToJson(scores)["values"]), R"({"a":null,"b":2.0})");
  v1::GetServerInfoResponse info;
  info.mutable_start_time()->set_seconds(0);
  EXPECT_EQ(MessageToJson(info)["start_time"], "1970-01-01T00:00:00Z");
  v1::Labels labels;
  labels.mutable_int64s()->add_values(7);
  EXPECT_EQ(Dump(MessageToJson(labels)), R"({"int64s":{"values":[7]}})");
}

TEST(ReportJsonTest, IsFlat) {
  v1::ContractionReport report;
  report.set_slices(64);
  report.set_slice_groups(8);
  report.set_flops(1e9);
  report.mutable_plan()->set_program_fingerprint("f00");
  report.mutable_timing()->set_execution_seconds(0.5);
  report.mutable_timing()->set_setup_seconds(0.25);
  report.mutable_memory()->set_planned_peak_bytes(100);
  auto* provider = report.add_providers();
  provider->set_provider("cpu");
  provider->mutable_timing()->set_dispatch_seconds(0.125);
  provider->add_kernels()->set_name("gemm");
  const Json json = ReportToJson(report);
  EXPECT_EQ(json["execution_seconds"], 0.5);
  EXPECT_EQ(json["setup_seconds"], 0.25);
  EXPECT_EQ(json["total_host_seconds"], 0.0);
  EXPECT_EQ(json["planned_peak_bytes"], 100);
  EXPECT_TRUE(json["measured_peak_bytes"].is_null());
  EXPECT_TRUE(json["gflops"].is_null());
  EXPECT_EQ(json["slices"], 64);
  EXPECT_EQ(json["slice_groups"], 8);
  EXPECT_EQ(json["fingerprint"], "f00");
  EXPECT_EQ(json["providers"][0]["dispatch_seconds"], 0.125);
  EXPECT_EQ(json["kernels"][0]["name"], "gemm");
  EXPECT_EQ(json["kernels"][0]["provider"], "cpu");
}

TEST(ReportJsonTest, AnEmptyReportHasItsKeysToo) {
  const Json json = ReportToJson(v1::ContractionReport());
  EXPECT_TRUE(json.contains("execution_seconds"));
  EXPECT_TRUE(json["execution_seconds"].is_null());
  EXPECT_TRUE(json.contains("planned_peak_bytes"));
  EXPECT_EQ(json["kernels"], Json::array());
}

}  // namespace
}  // namespace tenon::tool
