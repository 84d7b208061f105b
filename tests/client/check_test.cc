#include "client/cpp/tool/check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "backends/core/error.h"

namespace tenon::tool {
namespace {

std::string WriteReference(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/tenon_check_" + std::to_string(getpid());
  std::ofstream(path) << text;
  return path;
}

Tensor Vector(std::vector<double> values) {
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {static_cast<int64_t>(values.size())}});
  for (size_t i = 0; i < values.size(); ++i) tensor.buffer.as<double>()[i] = values[i];
  return tensor;
}

TEST(CheckTest, ComparesAllValues) {
  const std::string path =
      WriteReference(R"({"net": {"float64": {"shape": [2], "max_abs": 4, "values": [1, 4]}}})");
  const auto same = CheckResult(path, "net", Vector({1, 4}));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->passed());
  EXPECT_EQ(same->compared, 2);
  const auto other = CheckResult(path, "net", Vector({1, 3}));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->relative_difference, 0.25);
  EXPECT_FALSE(other->passed());
  EXPECT_FALSE(CheckResult(path, "net", Vector({std::nan(""), 4}))->passed());
}

TEST(CheckTest, ComparesASampleAndTellsScalars) {
  const std::string path = WriteReference(
      R"({"net": {"float64": {"shape": [3], "max_abs": 9, "sample_positions": [2],
                              "sample_values": [9]}},
          "one": {"complex128": {"shape": [], "max_abs": 1, "values": [[0.5, -1]]}}})");
  EXPECT_TRUE(CheckResult(path, "net", Vector({0, 0, 9}))->passed());
  Tensor scalar = *Tensor::Allocate({DType::kComplex128, {}});
  scalar.buffer.as<double>()[0] = 0.5;
  scalar.buffer.as<double>()[1] = -1;
  const auto outcome = CheckResult(path, "one", scalar);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->passed());
  EXPECT_EQ(outcome->reference, "0.5 - 1i");
}

TEST(CheckTest, Errors) {
  const std::string path = WriteReference(
      R"({"net": {"float64": {"shape": [3], "max_abs": 1, "values": [1, 1, 1]}}, "odd": 7})");
  EXPECT_EQ(GetErrorDetails(CheckResult(path, "other", Vector({1})).status()).reason,
            Reason::kNotFound);
  EXPECT_EQ(GetErrorDetails(CheckResult(path, "net", Vector({1})).status()).reason,
            Reason::kShapeMismatch);
  EXPECT_EQ(GetErrorDetails(CheckResult(path, "odd", Vector({1})).status()).reason,
            Reason::kBadParameter);
  EXPECT_EQ(CheckResult(path, "odd", Vector({1})).status().message().find("json.exception"),
            std::string::npos);
  EXPECT_EQ(GetErrorDetails(CheckResult("/no/such", "net", Vector({1})).status()).reason,
            Reason::kNotFound);
  EXPECT_EQ(
      GetErrorDetails(CheckResult(WriteReference("[not json"), "net", Vector({1})).status()).reason,
      Reason::kBadParameter);
}

}  // namespace
}  // namespace tenon::tool
