// Problems for normalised contractions, how they run, and what they must give.

#ifndef TENON_TESTS_BACKENDS_SCHEDULE_NORMALIZE_FIXTURE_H_
#define TENON_TESTS_BACKENDS_SCHEDULE_NORMALIZE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backends/core/binary_scale.h"
#include "backends/cpu/provider.h"
#include "backends/schedule/contraction_job.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/support/naive_einsum.h"

namespace tenon::schedule::normalize_testing {

using Extended = std::complex<long double>;

inline std::shared_ptr<plugin::Provider> MakeProvider(const tenon_provider_api* api,
                                                      const std::string& options = "") {
  auto provider = plugin::Provider::Create(api, options);
  EXPECT_TRUE(provider.ok()) << provider.status();
  EXPECT_TRUE((*provider)->WarmUp().ok());
  return *std::move(provider);
}

inline std::shared_ptr<plugin::Provider> Cpu() {
  static const auto& provider = *new std::shared_ptr(MakeProvider(cpu::CpuProviderApi()));
  return provider;
}

inline std::shared_ptr<plugin::Provider> Reference() {
  static const auto& provider = *new std::shared_ptr(MakeProvider(cpu::ReferenceProviderApi()));
  return provider;
}

inline constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kComplex64,
                                    DType::kComplex128};

inline bool IsSingle(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kComplex64; }
inline int MaxExponent(DType dtype) { return IsSingle(dtype) ? 127 : 1023; }
inline double Epsilon(DType dtype) { return IsSingle(dtype) ? 0x1p-23 : 0x1p-52; }

// Elements with their bytes in a dtype.
struct Array {
  DType dtype = DType::kFloat64;
  std::vector<char> bytes;

  Array(DType type, size_t count) : dtype(type), bytes(count * DTypeSize(type)) {}
  size_t size() const { return bytes.size() / DTypeSize(dtype); }
  void Set(size_t i, std::complex<double> value) {
    const int64_t parts = IsComplex(dtype) ? 2 : 1;
    for (int64_t p = 0; p < parts; ++p) {
      const double part = p == 0 ? value.real() : value.imag();
      const size_t at = i * parts + p;
      if (IsSingle(dtype)) {
        reinterpret_cast<float*>(bytes.data())[at] = static_cast<float>(part);
      } else {
        reinterpret_cast<double*>(bytes.data())[at] = part;
      }
    }
  }
  std::complex<double> Get(size_t i) const {
    const auto part = [&](size_t at) {
      return IsSingle(dtype) ? double{reinterpret_cast<const float*>(bytes.data())[at]}
                             : reinterpret_cast<const double*>(bytes.data())[at];
    };
    return IsComplex(dtype) ? std::complex(part(2 * i), part(2 * i + 1)) : part(i);
  }
  std::vector<Extended> Values() const {
    std::vector<Extended> values;
    for (size_t i = 0; i < size(); ++i) values.emplace_back(Get(i));
    return values;
  }
};

struct Problem {
  ContractionRequest request;
  std::vector<Array> data;

  Problem(Network network, DType dtype) {
    request.network = std::move(network);
    request.normalize = true;
    request.allow_slicing = false;
    for (size_t k = 0; k < request.network.inputs.size(); ++k) {
      request.operands.push_back({dtype, *InputShape(request.network, k)});
      data.emplace_back(dtype,
                        static_cast<size_t>(*CheckedElementCount(request.operands[k].shape)));
    }
  }
  DType dtype() const { return request.operands[0].dtype; }
  // Random parts in [-1, 1) times 2^shift.
  void Fill(size_t k, int shift, std::mt19937_64& random) {
    std::uniform_real_distribution<double> part(-1, 1);
    for (size_t i = 0; i < data[k].size(); ++i) {
      const double re = std::ldexp(part(random), shift), im = std::ldexp(part(random), shift);
      data[k].Set(i, {re, im});
    }
  }
  void Set(size_t k, const std::vector<double>& values) {
    ASSERT_EQ(values.size(), data[k].size());
    for (size_t i = 0; i < values.size(); ++i) data[k].Set(i, values[i]);
  }
  std::vector<const void*> Pointers() const {
    std::vector<const void*> pointers;
    for (const Array& array : data) pointers.push_back(array.bytes.data());
    return pointers;
  }
};

struct Outcome {
  Array result{DType::kFloat64, 0};
  std::optional<int64_t> exponent;
  std::optional<double> log10_scale;
  ContractionReport report;
  int64_t planned_bytes = 0;

  // Of the true values, without rounding.
  Extended True(size_t i) const {
    const Extended value(result.Get(i));
    if (!exponent.has_value() || *exponent == kNoExponent) return value;
    const int shift = static_cast<int>(*exponent);
    return {std::ldexp(value.real(), shift), std::ldexp(value.imag(), shift)};
  }
};

inline absl::StatusOr<Outcome> RunJob(const Problem& problem,
                                      std::vector<std::shared_ptr<plugin::Provider>> providers) {
  const CancelToken cancel;
  TENON_ASSIGN_OR_RETURN(auto job,
                         ContractionJob::Prepare(problem.request, std::move(providers), &cancel));
  EXPECT_FALSE(job->exponent().has_value());
  TENON_RETURN_IF_ERROR(job->Start(problem.Pointers()));
  Outcome outcome;
  const auto count = static_cast<size_t>(*CheckedElementCount(job->program().output_spec().shape));
  outcome.result = Array(job->dtype(), count);
  std::fill(outcome.result.bytes.begin(), outcome.result.bytes.end(), '\xff');
  TENON_RETURN_IF_ERROR(job->RunSet({}, outcome.result.bytes.data(), nullptr));
  outcome.exponent = job->exponent();
  outcome.log10_scale = job->log10_scale();
  outcome.report = job->Report();
  outcome.planned_bytes = job->plan().Total();
  return outcome;
}

inline Outcome RunOrDie(const Problem& problem,
                        const std::shared_ptr<plugin::Provider>& provider = Cpu()) {
  auto outcome = RunJob(problem, {provider});
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *std::move(outcome) : Outcome();
}

// The largest part is in [0.5, 1), or the result is zero.
inline void ExpectNormalised(const Outcome& outcome) {
  ASSERT_TRUE(outcome.exponent.has_value());
  double largest = 0;
  for (size_t i = 0; i < outcome.result.size(); ++i) {
    const std::complex<double> value = outcome.result.Get(i);
    largest = std::max({largest, std::abs(value.real()), std::abs(value.imag())});
  }
  if (largest == 0) {
    EXPECT_EQ(*outcome.exponent, kNoExponent);
    EXPECT_EQ(*outcome.log10_scale, -std::numeric_limits<double>::infinity());
  } else {
    EXPECT_GE(largest, 0.5);
    EXPECT_LT(largest, 1);
    EXPECT_EQ(*outcome.log10_scale, Log10OfPowerOfTwo(*outcome.exponent));
  }
}

// Compares with the definition in extended precision; errors are bounded by the sums of the
// products' magnitudes.
class ExtendedOracle {
 public:
  explicit ExtendedOracle(const Problem& problem) {
    std::vector<std::vector<Extended>> values, magnitudes;
    for (const Array& array : problem.data) {
      values.push_back(array.Values());
      magnitudes.emplace_back();
      for (const Extended& value : values.back()) magnitudes.back().emplace_back(std::abs(value));
    }
    expected_ = testing::ExtendedEinsum(problem.request.network, values);
    magnitudes_ = testing::ExtendedEinsum(problem.request.network, magnitudes);
    double terms = 60;  // of a sum, and roundings of the factors
    for (const auto& [name, size] : problem.request.network.sizes) {
      terms += static_cast<double>(size);
    }
    tolerance_ = 8 * terms * Epsilon(problem.dtype());
  }

  void Compare(const Outcome& outcome) const {
    ASSERT_EQ(outcome.result.size(), expected_.size());
    long double largest = 0;
    for (const Extended& bound : magnitudes_) largest = std::max(largest, bound.real());
    for (size_t i = 0; i < expected_.size(); ++i) {
      // Elements far below the largest may underflow.
      const long double bound = tolerance_ * magnitudes_[i].real() + 0x1p-60L * largest;
      ASSERT_LE(std::abs(outcome.True(i) - expected_[i]), bound)
          << "element " << i << ": " << outcome.True(i) << ", expected " << expected_[i];
    }
  }

 private:
  std::vector<Extended> expected_, magnitudes_;
  long double tolerance_;
};

inline PathSteps SsaSteps(const contraction::Path& path) {
  PathSteps steps{PathSteps::Format::kSsa, {}};
  for (const auto& [a, b] : path.pairs) steps.steps.push_back({a, b});
  return steps;
}

// A random network, path and slicing set with operands far from 1.
inline Problem RandomProblem(DType dtype, std::mt19937_64& random, bool extreme) {
  Problem problem(testing::RandomNetwork(random), dtype);
  const contraction::Expression expression = testing::ExpressionOf(problem.request.network);
  problem.request.path = SsaSteps(testing::RandomPath(problem.data.size(), random));
  for (const int index : testing::RandomSliced(expression, random)) {
    problem.request.sliced.push_back(expression.names[index]);
  }
  problem.request.accumulate_double = IsSingle(dtype) && random() % 4 == 0;
  const int range = extreme ? MaxExponent(dtype) - 3 : 0;
  for (size_t k = 0; k < problem.data.size(); ++k) {
    problem.Fill(k, range == 0 ? 0 : static_cast<int>(random() % (2 * range)) - range, random);
  }
  return problem;
}

}  // namespace tenon::schedule::normalize_testing

#endif  // TENON_TESTS_BACKENDS_SCHEDULE_NORMALIZE_FIXTURE_H_
