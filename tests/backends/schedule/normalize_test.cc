// Normalised contractions against extended precision, closed forms and plain contractions.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backends/core/binary_scale.h"
#include "backends/cpu/provider.h"
#include "backends/schedule/contraction_job.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/backends/schedule/normalize_fixture.h"
#include "tests/support/fake_provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::schedule::normalize_testing {
namespace {

using tenon::testing::Fails;

TEST(Normalize, RandomNetworksOfExtremeOperands) {
  for (const DType dtype : kDTypes) {
    std::mt19937_64 random(static_cast<unsigned>(dtype));
    for (int i = 0; i < 40; ++i) {
      SCOPED_TRACE(StrCat(DTypeName(dtype), " network ", i));
      Problem problem = RandomProblem(dtype, random, true);
      const ExtendedOracle oracle(problem);
      problem.request.threads = 1 + i % 3;
      for (const auto& provider : {Cpu(), Reference()}) {
        const Outcome outcome = RunOrDie(problem, provider);
        ExpectNormalised(outcome);
        oracle.Compare(outcome);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Normalize, BitsDoNotDependOnThreads) {
  for (const DType dtype : kDTypes) {
    std::mt19937_64 random(100 + static_cast<unsigned>(dtype));
    for (int i = 0; i < 10; ++i) {
      Problem problem = RandomProblem(dtype, random, true);
      problem.request.threads = 1;
      const Outcome one = RunOrDie(problem);
      for (const int threads : {2, 3, 8}) {
        problem.request.threads = threads;
        const Outcome other = RunOrDie(problem);
        EXPECT_EQ(other.result.bytes, one.result.bytes) << DTypeName(dtype) << " network " << i;
        EXPECT_EQ(other.exponent, one.exponent);
      }
    }
  }
}

// Within the range of the dtype, an unsliced result has the bits of the plain one.
TEST(Normalize, HasTheBitsOfThePlainResult) {
  for (const DType dtype : kDTypes) {
    std::mt19937_64 random(200 + static_cast<unsigned>(dtype));
    for (int i = 0; i < 20; ++i) {
      Problem problem = RandomProblem(dtype, random, false);
      problem.request.sliced.clear();
      for (const auto& provider : {Cpu(), Reference()}) {
        problem.request.normalize = true;
        const Outcome normalised = RunOrDie(problem, provider);
        problem.request.normalize = false;
        const Outcome plain = RunOrDie(problem, provider);
        EXPECT_FALSE(plain.exponent.has_value());
        EXPECT_FALSE(plain.log10_scale.has_value());
        for (size_t e = 0; e < plain.result.size(); ++e) {
          EXPECT_EQ(normalised.True(e), plain.True(e)) << DTypeName(dtype) << " network " << i;
        }
      }
    }
  }
}

std::string Site(size_t site) { return StrCat("s", site); }

// A ring of 2 x 2 transfer matrices, contracted pairwise.
Problem IsingRing(size_t sites, double coupling, double factor, DType dtype) {
  Network network;
  for (size_t i = 0; i < sites; ++i) {
    network.inputs.push_back({Site(i), Site((i + 1) % sites)});
    network.sizes[Site(i)] = 2;
  }
  Problem problem(std::move(network), dtype);
  const double same = factor * std::exp(coupling), other = factor * std::exp(-coupling);
  for (size_t i = 0; i < sites; ++i) problem.Set(i, {same, other, other, same});
  PathSteps path{PathSteps::Format::kSsa, {}};
  const auto n = static_cast<int64_t>(sites);
  for (int64_t i = 0; i + 1 < n; ++i) path.steps.push_back({2 * i, 2 * i + 1});
  problem.request.path = std::move(path);
  return problem;
}

// log10 of the partition function of a ring.
double Log10Ising(size_t sites, double coupling, double factor) {
  const long double n = static_cast<long double>(sites);
  const long double ratio = std::tanh(static_cast<long double>(coupling));
  return static_cast<double>(
      n * std::log10(2.0L * factor * std::cosh(static_cast<long double>(coupling))) +
      std::log10(1 + std::pow(ratio, n)));
}

// log10 of the partition function in the thousands and hundreds of thousands, both signs.
class LongChain : public ::testing::TestWithParam<std::tuple<double, DType, bool>> {};

TEST_P(LongChain, HasTheKnownPartitionFunction) {
  constexpr size_t kSites = 20000;
  constexpr double kCoupling = 0.3;
  const auto& [factor, dtype, sliced] = GetParam();
  Problem problem = IsingRing(kSites, kCoupling, factor, dtype);
  if (sliced) problem.request.sliced = {Site(0), Site(7001)};
  const Outcome outcome = RunOrDie(problem);
  ASSERT_EQ(outcome.result.size(), 1u);
  const double expected = Log10Ising(kSites, kCoupling, factor);
  const double log10 = std::log10(outcome.result.Get(0).real()) + *outcome.log10_scale;
  // Every matrix is rounded, and so is every product of the tree.
  const double relative = 2 * static_cast<double>(kSites) * Epsilon(dtype);
  EXPECT_NEAR(log10, expected, relative / std::log(10.0) + std::abs(expected) * 0x1p-52);
}

INSTANTIATE_TEST_SUITE_P(Normalize, LongChain,
                         ::testing::Values(std::tuple(1.7, DType::kFloat64, false),
                                           std::tuple(0.2, DType::kFloat64, true),
                                           std::tuple(0.2, DType::kFloat32, false),
                                           std::tuple(1.7, DType::kComplex64, true),
                                           std::tuple(0.2, DType::kComplex128, false),
                                           std::tuple(1e30, DType::kFloat32, true),
                                           std::tuple(1e-30, DType::kFloat64, false)));

// The sum over s of the products of `operands` vectors, sliced over s.
Problem SlicedDot(size_t operands, size_t slices, DType dtype) {
  Network network;
  network.inputs.assign(operands, {"s"});
  network.sizes = {{"s", static_cast<int64_t>(slices)}};
  Problem problem(std::move(network), dtype);
  problem.request.sliced = {"s"};
  return problem;
}

// Products of 10^560 cancel, and one of 10^-640 remains: between groups, and inside of them.
TEST(Normalize, CancellationLeavesWhatRemains) {
  for (const size_t slices : {3, 4097}) {
    Problem problem = SlicedDot(8, slices, DType::kFloat64);
    std::vector<double> values(slices, 1e70);
    values.back() = 1e-80;
    for (size_t k = 0; k < 8; ++k) problem.Set(k, values);
    for (size_t i = 1; i < slices; i += 2) values[i] *= -1;
    problem.Set(3, values);
    for (const auto& provider : {Cpu(), Reference()}) {
      const Outcome outcome = RunOrDie(problem, provider);
      EXPECT_EQ(outcome.report.slices_done > outcome.report.groups_done, slices > 3);
      ExpectNormalised(outcome);
      EXPECT_NEAR(static_cast<double>(outcome.True(0).real() / 1e-640L), 1, 1e-14);
    }
  }
}

// Slices of one group whose magnitudes rise and fall by more than the range.
TEST(Normalize, SlicesOfAllMagnitudes) {
  constexpr size_t kSlices = 3000, kOperands = 8;
  for (const DType dtype : kDTypes) {
    Problem problem = SlicedDot(kOperands, kSlices, dtype);
    std::mt19937_64 random(7);
    const int range = MaxExponent(dtype) / 4 - 8;
    for (size_t i = 0; i < kSlices; ++i) {
      const int shift = static_cast<int>(random() % (2 * range)) - range;
      for (size_t k = 0; k < kOperands; ++k) {
        problem.data[k].Set(i, std::ldexp(1.0 + static_cast<double>(random() % 8), shift));
      }
    }
    const Outcome outcome = RunOrDie(problem);
    EXPECT_LT(outcome.report.groups_done, static_cast<int64_t>(kSlices));
    ExpectNormalised(outcome);
    ExtendedOracle(problem).Compare(outcome);
  }
}

TEST(Normalize, BlocksGetOneScale) {
  Network network;
  network.inputs = {{"o", "p"}, {"o", "q"}};
  network.output = {"q", "o"};
  network.sizes = {{"o", 5}, {"p", 1}, {"q", 2}};
  Problem problem(std::move(network), DType::kFloat64);
  problem.Set(0, {1e-200, 1, 3e150, 0, -1e130});
  problem.Set(1, {1e-200, 2e-200, 1, 2, 1e150, 2e150, 1, 2, 1e150, 2e150});
  for (const std::vector<std::string>& sliced :
       std::vector<std::vector<std::string>>{{}, {"o"}, {"q"}, {"o", "q"}, {"o", "p"}}) {
    problem.request.sliced = sliced;
    const Outcome outcome = RunOrDie(problem);
    ExpectNormalised(outcome);
    const std::vector<long double> expected = {0, 1, 3e300L, 0, -1e280L, 0, 2, 6e300L, 0, -2e280L};
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(outcome.True(i).real() / 6e300L),
                  static_cast<double>(expected[i] / 6e300L),
                  1e-15 * static_cast<double>(std::abs(expected[i]) / 6e300L) + 1e-305)
          << i;
    }
  }
}

// Many sets, each of its own magnitude, in buffers that are used again.
TEST(Normalize, SetsHaveTheirOwnScales) {
  Network network;
  network.inputs = {{"a", "b"}, {"b", "c"}, {"c", "a"}, {"a"}};
  network.sizes = {{"a", 3}, {"b", 2}, {"c", 4}};
  Problem problem(std::move(network), DType::kFloat64);
  std::mt19937_64 random(3);
  const std::vector<int> constant = {0, 900, -1000, 0};
  for (size_t k = 0; k < 4; ++k) problem.Fill(k, constant[k], random);
  problem.request.varying = {false, false, false, true};
  for (const std::vector<std::string>& sliced :
       std::vector<std::vector<std::string>>{{}, {"a"}, {"c"}}) {
    problem.request.sliced = sliced;
    const CancelToken cancel;
    auto job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
    ASSERT_TRUE(job.ok()) << job.status();
    std::vector<const void*> pointers = problem.Pointers();
    pointers[3] = nullptr;
    ASSERT_TRUE((*job)->Start(pointers).ok());
    for (const int shift : {0, 1000, -1000, 5, -400, 1000}) {
      problem.Fill(3, shift, random);
      Outcome outcome;
      outcome.result = Array(DType::kFloat64, 1);
      ASSERT_TRUE((*job)
                      ->RunSet({problem.data[3].bytes.data()}, outcome.result.bytes.data(), nullptr)
                      .ok());
      outcome.exponent = (*job)->exponent();
      outcome.log10_scale = (*job)->log10_scale();
      ExpectNormalised(outcome);
      ExtendedOracle(problem).Compare(outcome);
    }
  }
}

TEST(Normalize, ZerosHaveNoScale) {
  for (const std::vector<std::string>& sliced :
       std::vector<std::vector<std::string>>{{}, {"a"}, {"b"}, {"a", "c"}}) {
    Network network;
    network.inputs = {{"a", "b"}, {"b", "c"}};
    network.output = {"a", "c"};
    network.sizes = {{"a", 2}, {"b", 3}, {"c", 2}};
    Problem problem(std::move(network), DType::kFloat64);
    problem.request.sliced = sliced;
    problem.Set(1, std::vector<double>(6, 1e300));
    ExpectNormalised(RunOrDie(problem));
    // Some slices are zero, and have no say.
    problem.Set(0, {0, 0, 1e-300, 0, 0, 0});
    const Outcome outcome = RunOrDie(problem);
    ExpectNormalised(outcome);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(static_cast<double>(outcome.True(i).real()), i < 2 ? 1 : 0, 1e-15);
    }
  }
}

TEST(Normalize, NothingAndEmptyResults) {
  Network network;
  network.inputs = {{"a", "b"}, {"b"}};
  network.output = {"a"};
  network.sizes = {{"a", 3}, {"b", 0}};
  ExpectNormalised(RunOrDie(Problem(network, DType::kFloat32)));
  network.sizes = {{"a", 0}, {"b", 3}};
  const Outcome empty = RunOrDie(Problem(network, DType::kComplex64));
  EXPECT_EQ(empty.exponent, kNoExponent);
}

TEST(Normalize, NanAndInfinityGoThrough) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Network network;
  network.inputs = {{"a", "b"}, {"b"}};
  network.output = {"a"};
  network.sizes = {{"a", 4}, {"b", 2}};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const double huge = IsSingle(dtype) ? 0x1p120 : 0x1p1000;
    for (const std::vector<std::string>& sliced :
         std::vector<std::vector<std::string>>{{}, {"a"}, {"b"}, {"a", "b"}}) {
      Problem problem(network, dtype);
      problem.request.sliced = sliced;
      problem.Set(0, {huge, huge, kNaN, huge, kInf, huge, -huge, huge / 2});
      problem.Set(1, {huge, huge});
      for (const auto& provider : {Cpu(), Reference()}) {
        const Outcome outcome = RunOrDie(problem, provider);
        EXPECT_EQ(outcome.result.Get(0), 0.5);
        EXPECT_TRUE(std::isnan(outcome.result.Get(1).real()));
        EXPECT_EQ(outcome.result.Get(2), kInf);
        EXPECT_EQ(outcome.result.Get(3), -0.125);
        EXPECT_EQ(outcome.exponent, 2 + 2 * std::ilogb(huge));
      }
      problem.Set(0, {kNaN, 0, 0, kInf, -kInf, 0, kInf, -kInf});
      for (const auto& provider : {Cpu(), Reference()}) {
        const Outcome outcome = RunOrDie(problem, provider);
        EXPECT_EQ(outcome.exponent, 0);
        EXPECT_EQ(outcome.log10_scale, 0);
        EXPECT_TRUE(std::isnan(outcome.result.Get(0).real()));
        EXPECT_EQ(outcome.result.Get(1), kInf);
        EXPECT_EQ(outcome.result.Get(2), -kInf);
        EXPECT_TRUE(std::isnan(outcome.result.Get(3).real()));
      }
    }
  }
}

// Steps without a partner: sums, traces and diagonals of operands at the ends of the range.
TEST(Normalize, UnaryStepsOfExtremeOperands) {
  for (const double magnitude : {0x1p1023, 0x1p-1074}) {
    Network network;
    network.inputs = {{"a", "a", "b"}};
    network.sizes = {{"a", 16}, {"b", 16}};
    Problem problem(std::move(network), DType::kFloat64);
    problem.Set(0, std::vector<double>(16 * 16 * 16, magnitude));
    for (const std::vector<std::string>& sliced :
         std::vector<std::vector<std::string>>{{}, {"a"}, {"b"}}) {
      problem.request.sliced = sliced;
      const Outcome outcome = RunOrDie(problem);
      EXPECT_EQ(outcome.result.Get(0), 0.5);
      EXPECT_EQ(outcome.exponent, 9 + std::ilogb(magnitude));
    }
  }
}

// Nodes of the tree, normalised apart, give the whole.
TEST(Normalize, GroupRangesAddUpToTheWhole) {
  std::mt19937_64 random(5);
  Network network;
  network.inputs = {{"t", "a"}, {"a", "b", "t"}, {"b", "a"}};
  network.output = {"t"};
  network.sizes = {{"t", 3}, {"a", 5}, {"b", 4}};
  Problem problem(std::move(network), DType::kFloat64);
  for (size_t k = 0; k < 3; ++k) problem.Fill(k, 700, random);
  problem.request.sliced = {"t", "a"};
  const Outcome whole = RunOrDie(problem);
  std::vector<Extended> sum(3);
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 4},   {4, 5},   {5, 10},
                                                           {10, 12}, {12, 14}, {14, 15}};
  for (const auto& [first, last] : ranges) {
    problem.request.first_group = first;
    problem.request.last_group = last;
    const Outcome part = RunOrDie(problem);
    for (size_t i = 0; i < 3; ++i) {
      const bool inside =
          static_cast<int64_t>(i) >= first / 5 && static_cast<int64_t>(i) <= (last - 1) / 5;
      if (!inside) {
        EXPECT_EQ(part.result.Get(i), 0.0);
      }
      sum[i] += part.True(i);
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(static_cast<double>(sum[i].real() / whole.True(i).real()), 1, 1e-12);
  }
}

TEST(Normalize, ProvidersShareTheGroups) {
  std::mt19937_64 random(11);
  Network network;
  network.inputs = {{"a", "b"}, {"b", "c"}, {"c", "a"}};
  network.sizes = {{"a", 8}, {"b", 8}, {"c", 8}};
  Problem problem(std::move(network), DType::kComplex64);
  for (size_t k = 0; k < 3; ++k) problem.Fill(k, -100, random);
  problem.request.sliced = {"a", "b"};
  problem.request.threads = 4;
  const auto outcome = RunJob(problem, {Cpu(), Reference()});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ExpectNormalised(*outcome);
  ExtendedOracle(problem).Compare(*outcome);
}

// Copies of extreme operands and results of slices are in the plan.
TEST(Normalize, PlanHoldsWhatItTakes) {
  std::mt19937_64 random(13);
  Network network;
  network.inputs = {{"a", "b", "s"}, {"b", "c", "s"}, {"c", "d", "t"}};
  network.output = {"a", "d"};
  network.sizes = {{"a", 64}, {"b", 64}, {"c", 64}, {"d", 64}, {"s", 24}, {"t", 24}};
  Problem problem(std::move(network), DType::kFloat64);
  for (size_t k = 0; k < 3; ++k) problem.Fill(k, 1000, random);
  problem.request.sliced = {"s", "t"};
  for (const int threads : {1, 2, 3, 8}) {
    problem.request.threads = threads;
    const Outcome outcome = RunOrDie(problem);
    EXPECT_LE(outcome.report.measured_peak_bytes, outcome.planned_bytes + (1 << 16));
    int64_t operands = 0;
    for (const Array& array : problem.data) operands += static_cast<int64_t>(array.bytes.size());
    EXPECT_GT(outcome.report.measured_peak_bytes, 2 * operands);  // the test would see copies
  }
}

TEST(Normalize, ProvidersThatCannotSaySo) {
  testing::FakeProvider fake;
  const auto provider = MakeProvider(fake.api(), fake.options());
  EXPECT_TRUE(Cpu()->CanNormalize());
  EXPECT_TRUE(Reference()->CanNormalize());
  EXPECT_FALSE(provider->CanNormalize());
  const Problem problem = SlicedDot(2, 3, DType::kFloat64);
  EXPECT_TRUE(Fails(RunJob(problem, {provider}).status(), Reason::kUnsupportedByProvider,
                    "execution.normalize"));
  EXPECT_TRUE(Fails(RunJob(problem, {Cpu(), provider}).status(), Reason::kUnsupportedByProvider,
                    "execution.normalize"));
}

}  // namespace
}  // namespace tenon::schedule::normalize_testing
