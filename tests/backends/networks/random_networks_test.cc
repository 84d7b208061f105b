// Random networks x paths x slices x types x threads on the cpu provider against nested loops.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backends/core/strings.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/backends/networks/corpus_network.h"
#include "tests/backends/networks/job_run.h"
#include "tests/support/naive_einsum.h"

namespace tenon {
namespace {

using Values = std::vector<std::complex<double>>;
using testing::JobRun;

// Sizes around those of vectors and blocks of registers, so that whole and partial ones occur.
const testing::RandomSizes kSizes = {{2, 3, 4, 5, 7, 8, 9, 16, 27, 33}, 40000};
constexpr double kMostSlices = 1000;

double Epsilon(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kComplex64
             ? std::numeric_limits<float>::epsilon()
             : std::numeric_limits<double>::epsilon();
}

// Operands whose elements every dtype of their kind represents, and the same for the oracle.
struct Operands {
  std::vector<Tensor> tensors;
  std::vector<Values> values;
};

template <typename Number>
Tensor TensorOf(DType dtype, const std::vector<int64_t>& shape, const Values& values) {
  auto tensor = Tensor::Allocate({dtype, shape});
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_floating_point_v<Number>) {
      tensor->buffer.as<Number>()[i] = static_cast<Number>(values[i].real());
    } else {
      tensor->buffer.as<Number>()[i] = Number(values[i]);
    }
  }
  return *std::move(tensor);
}

Tensor MakeTensor(DType dtype, const std::vector<int64_t>& shape, const Values& values) {
  switch (dtype) {
    case DType::kFloat32:
      return TensorOf<float>(dtype, shape, values);
    case DType::kFloat64:
      return TensorOf<double>(dtype, shape, values);
    case DType::kComplex64:
      return TensorOf<std::complex<float>>(dtype, shape, values);
    default:
      return TensorOf<std::complex<double>>(dtype, shape, values);
  }
}

Operands RandomOperands(const Network& network, DType dtype, std::mt19937_64& random) {
  std::uniform_real_distribution<float> number(-1, 1);
  Operands operands;
  for (const auto& shape : testing::ShapesOf(network)) {
    Values values(static_cast<size_t>(*CheckedElementCount(shape)));
    for (auto& value : values) value = {number(random), IsComplex(dtype) ? number(random) : 0};
    operands.tensors.push_back(MakeTensor(dtype, shape, values));
    operands.values.push_back(std::move(values));
  }
  return operands;
}

// The result by definition, with the sum of the absolute values of all products beside it.
struct Expected {
  Expected(const Network& network, const Operands& operands)
      : values(testing::NaiveEinsum(network, operands.values)) {
    std::vector<Values> absolute = operands.values;
    for (Values& operand : absolute) {
      for (auto& value : operand) value = std::abs(value);
    }
    magnitudes = testing::NaiveEinsum(network, absolute);
  }
  Values values, magnitudes;
};

class RandomNetworksTest : public ::testing::TestWithParam<std::tuple<DType, int>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  static int Rounds() { return testing::IsSanitized() ? 10 : 50; }

  schedule::ContractionRequest MakeRequest(const Network& network) const {
    schedule::ContractionRequest request;
    request.network = network;
    request.allow_slicing = false;
    for (const auto& shape : testing::ShapesOf(network)) {
      request.operands.push_back({dtype(), shape});
    }
    return request;
  }

  void SetRandomPath(schedule::ContractionRequest& request) {
    request.path = PathSteps();
    for (const auto& [a, b] : testing::RandomPath(request.operands.size(), random_).pairs) {
      request.path->steps.push_back({a, b});
    }
  }

  // Any indices with few enough slices: summed ones, those of the output, repeated ones.
  void SetRandomSlices(schedule::ContractionRequest& request) {
    const auto expression = testing::ExpressionOf(request.network);
    double slices = 1;
    for (const int index : testing::RandomSliced(expression, random_)) {
      const auto size = static_cast<double>(expression.sizes[index]);
      if (slices * size > kMostSlices) continue;
      slices *= std::max(size, 1.0);
      request.sliced.push_back(expression.names[index]);
    }
  }

  // To first order; see JobRun::Depth.
  void ExpectClose(const Tensor& result, const Expected& expected, double depth) const {
    const Values values = testing::ValuesOf(result);
    ASSERT_EQ(values.size(), expected.values.size());
    const double factor = 4 * Epsilon(dtype()) * depth;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(values[i] - expected.values[i]),
                factor * expected.magnitudes[i].real() + 1e-30)
          << "element " << i << " is " << values[i] << ", expected " << expected.values[i];
    }
  }

  // The same bits with any number of threads, near the definition. So a sliced contraction is near
  // the unsliced one too.
  void Check(schedule::ContractionRequest request, const Operands& operands,
             const Expected& expected) const {
    SCOPED_TRACE(Describe(request));
    std::optional<Tensor> once;
    for (const int threads : {1, 2, 3, 8}) {
      request.threads = threads;
      const auto run = JobRun::Prepare(request);
      ASSERT_TRUE(run.ok()) << run.status();
      auto result = (*run)->Run(operands.tensors);
      ASSERT_TRUE(result.ok()) << result.status();
      if (!once.has_value()) {
        ExpectClose(*result, expected,
                    (*run)->Depth() + static_cast<double>(operands.tensors.size()));
        once = *std::move(result);
      } else {
        ASSERT_EQ(std::memcmp(result->buffer.data(), once->buffer.data(),
                              static_cast<size_t>(once->buffer.size_bytes())),
                  0)
            << threads << " threads";
      }
    }
  }

  static std::string Describe(const schedule::ContractionRequest& request) {
    std::string text;
    for (const auto& input : request.network.inputs) {
      for (const std::string& name : input) {
        text += StrCat(name, ":", request.network.sizes.at(name), " ");
      }
      text += ", ";
    }
    text += "-> ";
    for (const std::string& name : request.network.output) text += name + " ";
    if (request.path.has_value()) {
      for (const auto& step : request.path->steps) text += StrCat("(", step[0], ",", step[1], ")");
    }
    text += " sliced ";
    for (const std::string& name : request.sliced) text += name + " ";
    return text + (request.accumulate_double ? "summed in double" : "");
  }

  std::mt19937_64 random_{static_cast<uint64_t>(std::get<1>(GetParam()))};
};

TEST_P(RandomNetworksTest, GiveTheDefinitionWithTheSameBits) {
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    const Network network = testing::RandomNetwork(random_, kSizes);
    const Operands operands = RandomOperands(network, dtype(), random_);
    const Expected expected(network, operands);
    for (int variant = 0; variant < 4 && !HasFailure(); ++variant) {
      schedule::ContractionRequest request = MakeRequest(network);
      if (variant > 0) SetRandomPath(request);
      if (variant > 1) SetRandomSlices(request);
      request.accumulate_double = random_() % 4 == 0;
      Check(request, operands, expected);
    }
  }
}

TEST_P(RandomNetworksTest, EverySetGivesItsResult) {
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    const Network network = testing::RandomNetwork(random_, kSizes);
    schedule::ContractionRequest request = MakeRequest(network);
    SetRandomPath(request);
    SetRandomSlices(request);
    for (size_t k = 0; k < request.operands.size(); ++k) request.varying.push_back(random_() % 2);
    SCOPED_TRACE(Describe(request));
    const auto run = JobRun::Prepare(request);
    ASSERT_TRUE(run.ok()) << run.status();
    Operands operands = RandomOperands(network, dtype(), random_);
    for (int set = 0; set < 3; ++set) {
      Operands fresh = RandomOperands(network, dtype(), random_);
      for (size_t k = 0; k < operands.tensors.size(); ++k) {
        if (!request.varying[k]) continue;
        operands.tensors[k] = std::move(fresh.tensors[k]);
        operands.values[k] = std::move(fresh.values[k]);
      }
      const auto result = (*run)->Run(operands.tensors);
      ASSERT_TRUE(result.ok()) << result.status();
      ExpectClose(*result, Expected(network, operands),
                  (*run)->Depth() + static_cast<double>(operands.tensors.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomNetworksTest,
                         ::testing::Combine(::testing::Values(DType::kFloat32, DType::kFloat64,
                                                              DType::kComplex64,
                                                              DType::kComplex128),
                                            ::testing::Range(0, 5)),
                         [](const auto& info) {
                           return StrCat(DTypeName(std::get<0>(info.param)), "_",
                                         std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tenon
