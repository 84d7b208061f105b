// Sets that are computed together: the same results, in their order, whatever comes together.

#include "backends/schedule/set_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/provider.h"
#include "backends/schedule/contraction_job.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/support/naive_einsum.h"
#include "tests/support/status_matchers.h"

namespace tenon::schedule {
namespace {

using tenon::testing::ExpressionOf;
using tenon::testing::Fails;
using tenon::testing::NaiveEinsum;
using tenon::testing::NetworkOf;
using Complex = std::complex<double>;
using Values = std::vector<Complex>;

std::shared_ptr<plugin::Provider> Cpu() {
  static const auto& provider = *new std::shared_ptr<plugin::Provider>([] {
    auto made = plugin::Provider::Create(cpu::CpuProviderApi(), "");
    EXPECT_TRUE(made.ok() && (*made)->WarmUp().ok());
    return *std::move(made);
  }());
  return provider;
}

// Operand sets of one request: small Gaussian integers, so that any order of summing is exact, or
// numbers that round.
struct Problem {
  ContractionRequest request;
  bool exact = true;
  std::vector<Values> fixed;              // per operand
  std::vector<std::vector<Values>> sets;  // per set, the varying ones in operand order

  Values Draw(size_t operand, uint64_t seed) const {
    std::mt19937_64 random(seed * 1000 + operand);
    std::normal_distribution<double> normal;
    Values values(*CheckedElementCount(request.operands[operand].shape));
    const auto number = [&] {
      return exact ? static_cast<double>(random() % 7) - 3 : normal(random);
    };
    for (Complex& value : values) value = {number(), number()};
    return values;
  }
  Values Expected(size_t set) const {
    std::vector<Values> operands = fixed;
    size_t next = 0;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (request.varying[k]) operands[k] = sets[set][next++];
    }
    return NaiveEinsum(request.network, operands);
  }
};

Problem MakeProblem(Network network, std::vector<bool> varying, size_t sets, bool exact = true) {
  Problem problem;
  problem.exact = exact;
  problem.request.network = std::move(network);
  problem.request.varying = std::move(varying);
  problem.request.expected_sets = static_cast<int64_t>(sets);
  const Network& made = problem.request.network;
  for (size_t k = 0; k < made.inputs.size(); ++k) {
    problem.request.operands.push_back({DType::kComplex128, *InputShape(made, k)});
    problem.fixed.push_back(problem.Draw(k, 1));
  }
  for (size_t set = 0; set < sets; ++set) {
    std::vector<Values>& operands = problem.sets.emplace_back();
    for (size_t k = 0; k < made.inputs.size(); ++k) {
      if (problem.request.varying[k]) operands.push_back(problem.Draw(k, set + 2));
    }
  }
  return problem;
}

// Vectors on the ends of a chain of matrices with a batch index: most of it depends on no set.
Network Chain() {
  return NetworkOf({"a", "abt", "bcu", "cdt", "d", "u"}, "t",
                   {{"a", 3}, {"b", 4}, {"c", 5}, {"d", 2}, {"t", 2}, {"u", 3}});
}

// Prepares and starts; a failure fails the test.
std::unique_ptr<ContractionJob> Begin(const Problem& problem, const CancelToken* cancel) {
  auto job = ContractionJob::Prepare(problem.request, {Cpu()}, cancel);
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return nullptr;
  std::vector<const void*> pointers;
  for (size_t k = 0; k < problem.fixed.size(); ++k) {
    pointers.push_back(problem.request.varying[k] ? nullptr : problem.fixed[k].data());
  }
  const absl::Status started = (*job)->Start(pointers);
  EXPECT_TRUE(started.ok()) << started;
  return *std::move(job);
}

// Runs all sets, as many together as `wanted` says of what may come; returns their results.
std::vector<Values> RunAll(const Problem& problem, ContractionJob& job,
                           const std::function<int64_t(int64_t)>& wanted) {
  const size_t elements = *CheckedElementCount(job.result_spec().shape);
  std::vector<Values> results(problem.sets.size(), Values(elements, {-99, -99}));
  for (size_t first = 0; first < problem.sets.size();) {
    const auto left = static_cast<int64_t>(problem.sets.size() - first);
    const int64_t count = std::min({wanted(job.sets_to_fill()), job.sets_to_fill(), left});
    std::vector<OperandSet> sets;
    for (int64_t i = 0; i < count; ++i, ++first) {
      OperandSet& set = sets.emplace_back();
      for (const Values& values : problem.sets[first]) set.varying.push_back(values.data());
      set.result = results[first].data();
    }
    const absl::Status status = job.RunSets(sets, nullptr);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) break;
  }
  return results;
}

int64_t AsManyAsFit(int64_t fit) { return fit; }

void ExpectExact(const Problem& problem, const std::vector<Values>& results) {
  for (size_t set = 0; set < results.size(); ++set) {
    EXPECT_EQ(results[set], problem.Expected(set)) << "set " << set;
  }
}

struct Case {
  const char* name;
  Network network;
  std::vector<bool> varying;
  std::vector<std::string> sliced;
};

// Of a's size 3, b's 4, c's 2, d's 1 and z's 0.
Network Small(const std::vector<std::string>& inputs, const std::string& output) {
  const std::map<char, int64_t> all = {{'a', 3}, {'b', 4}, {'c', 2}, {'d', 1}, {'z', 0}};
  std::map<std::string, int64_t> sizes;
  for (const std::string& input : inputs) {
    for (const char index : input) sizes[std::string(1, index)] = all.at(index);
  }
  return NetworkOf(inputs, output, sizes);
}

std::vector<Case> Cases() {
  return {
      {"Ends", Chain(), {true, false, false, false, true, true}, {}},
      {"Middle", Chain(), {false, false, true, false, false, false}, {}},
      {"All", Chain(), std::vector<bool>(6, true), {}},
      {"OperandIsTheResult", Small({"ab"}, "ba"), {true}, {}},
      {"OperandIsTheOutput", Small({"ab", "c"}, "ab"), {true, false}, {}},
      {"Scalars", Small({"", "ab", ""}, "a"), {true, false, true}, {}},
      {"ScalarResult", Small({"a", "ab", "b"}, ""), {true, false, true}, {}},
      {"TraceAndHyperedge", Small({"aab", "ba", "ac"}, "a"), {true, false, true}, {}},
      {"Private", Small({"abc", "b"}, "b"), {true, false}, {}},
      {"SizeOne", Small({"ad", "db"}, "abd"), {false, true}, {}},
      {"EmptySum", Small({"az", "zb"}, "ab"), {false, true}, {}},
      {"EmptyResult", Small({"az", "ab"}, "zb"), {false, true}, {}},
      {"SlicedSum", Chain(), {true, false, false, false, true, false}, {"b", "u"}},
      {"SlicedOutput", Chain(), {true, false, false, false, true, false}, {"t", "c"}},
  };
}

TEST(SetStack, GivesTheDefinitionForEverySet) {
  for (const Case& one : Cases()) {
    for (const size_t sets : {2, 5, 20, 300}) {
      SCOPED_TRACE(std::string(one.name) + " " + std::to_string(sets));
      Problem problem = MakeProblem(one.network, one.varying, sets);
      if (!one.sliced.empty()) {
        problem.request.sliced = one.sliced;
        PathSteps path{PathSteps::Format::kLinear, {}};
        for (size_t k = 1; k < problem.fixed.size(); ++k) path.steps.push_back({0, 1});
        problem.request.path = path;
      }
      const CancelToken cancel;
      const auto job = Begin(problem, &cancel);
      ASSERT_NE(job, nullptr);
      EXPECT_GT(job->sets_together(), 1);
      EXPECT_EQ(job->result_spec().shape.size(), one.network.output.size());
      ExpectExact(problem, RunAll(problem, *job, AsManyAsFit));
    }
  }
}

// Numbers that round, sums that are long enough for several ways to form them.
TEST(SetStack, BitsDoNotDependOnWhatComesTogether) {
  const std::map<std::string, int64_t> sizes = {{"a", 70}, {"b", 90}, {"c", 33}, {"d", 2}};
  const Network network = NetworkOf({"ad", "abd", "bc", "c"}, "d", sizes);
  const Problem problem = MakeProblem(network, {true, false, false, true}, 150, /*exact=*/false);
  const CancelToken cancel;
  const auto together = Begin(problem, &cancel);
  const auto alone = Begin(problem, &cancel);
  const auto mixed = Begin(problem, &cancel);
  EXPECT_EQ(together->fingerprint(), alone->fingerprint());
  const std::vector<Values> expected = RunAll(problem, *together, AsManyAsFit);
  EXPECT_EQ(RunAll(problem, *alone, [](int64_t) { return 1; }), expected);
  std::mt19937_64 random(7);
  EXPECT_EQ(RunAll(problem, *mixed, [&](int64_t fit) { return 1 + random() % fit; }), expected);
  for (const size_t set : {0, 77, 149}) {
    const Values exact = problem.Expected(set);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LT(std::abs(expected[set][i] - exact[i]), 1e-11 * (1 + std::abs(exact[i])));
    }
  }
}

// A set whose numbers are not finite leaves the others alone.
TEST(SetStack, SetsDoNotMixThroughNonFiniteValues) {
  Problem problem = MakeProblem(Chain(), {true, false, false, false, true, true}, 12);
  problem.sets[5][0].assign(3, std::numeric_limits<double>::quiet_NaN());
  problem.sets[11][1].assign(2, std::numeric_limits<double>::infinity());
  const CancelToken cancel;
  const auto job = Begin(problem, &cancel);
  const std::vector<Values> results = RunAll(problem, *job, AsManyAsFit);
  for (size_t set = 0; set < results.size(); ++set) {
    if (set == 5 || set == 11) continue;
    EXPECT_EQ(results[set], problem.Expected(set)) << set;
  }
  EXPECT_TRUE(std::isnan(results[5][0].real()));
}

TEST(SetStack, RunsFillOneStackAfterTheOther) {
  const Problem problem = MakeProblem(Chain(), {true, false, false, false, true, true}, 300);
  const CancelToken cancel;
  const auto job = Begin(problem, &cancel);
  ASSERT_EQ(job->sets_together(), 104);  // three stacks of 100, rounded up to whole vectors
  EXPECT_EQ(job->sets_to_fill(), 104);
  Values result(2);
  std::vector<const void*> varying;
  for (const Values& values : problem.sets[0]) varying.push_back(values.data());
  ASSERT_TRUE(job->RunSet(varying, result.data(), nullptr).ok());
  EXPECT_EQ(job->sets_to_fill(), 103);
  const std::vector<OperandSet> too_many(104, OperandSet{varying, result.data()});
  EXPECT_TRUE(Fails(job->RunSets(too_many, nullptr), Reason::kInternal));
  EXPECT_TRUE(Fails(job->RunSets({}, nullptr), Reason::kInternal));
  EXPECT_TRUE(Fails(job->RunSet({varying[0]}, result.data(), nullptr), Reason::kInternal));
}

TEST(SetStack, SharedStepsRunOnceAndTheReportCountsRuns) {
  const Problem problem = MakeProblem(Chain(), {true, false, false, false, true, true}, 200);
  const CancelToken cancel;
  const auto job = Begin(problem, &cancel);
  RunAll(problem, *job, AsManyAsFit);
  const double shared = job->shared_flops(), total = job->program().total_flops();
  EXPECT_GT(shared, 0);
  EXPECT_EQ(job->sets_together(), 104);
  EXPECT_EQ(job->Report().flops_done, shared + 2 * (total - shared));
  EXPECT_DOUBLE_EQ(job->OneSetFlops(total), shared + (total - shared) / 104);
}

TEST(SetStack, OneByOneWithoutAnExpectationOrWithNormalize) {
  Problem problem = MakeProblem(Chain(), {true, false, false, false, true, true}, 5);
  const CancelToken cancel;
  problem.request.expected_sets = 0;
  EXPECT_EQ(Begin(problem, &cancel)->sets_together(), 1);
  problem.request.expected_sets = 1;
  EXPECT_EQ(Begin(problem, &cancel)->sets_together(), 1);
  problem.request.expected_sets = 5;
  EXPECT_EQ(Begin(problem, &cancel)->sets_together(), 5);
  problem.request.max_sets_together = 3;
  EXPECT_EQ(Begin(problem, &cancel)->sets_together(), 3);  // two stacks of three
  problem.request.normalize = true;
  EXPECT_EQ(Begin(problem, &cancel)->sets_together(), 1);
  problem.request.normalize = false;
  problem.request.varying.assign(6, false);
  EXPECT_EQ(Begin(problem, &cancel)->sets_together(), 1);
}

TEST(SetStack, MemoryIsPlannedAndKept) {
  Problem problem = MakeProblem(Chain(), {true, false, false, false, true, true}, 64);
  const CancelToken cancel;
  const auto job = Begin(problem, &cancel);
  ASSERT_EQ(job->sets_together(), 64);
  const int64_t set_bytes = (3 + 2 + 3 + 2) * 16;  // varying operands and result
  EXPECT_GE(job->plan().stack, 64 * set_bytes);
  RunAll(problem, *job, AsManyAsFit);
  EXPECT_LE(job->Report().measured_peak_bytes, job->plan().Total() + (1 << 16));
  EXPECT_GE(job->Report().measured_peak_bytes, job->plan().Total() - (1 << 16));
}

TEST(SetStack, ShrinksToTheBudgetAndToTheTarget) {
  Problem problem = MakeProblem(Chain(), {true, false, false, false, true, true}, 64);
  const CancelToken cancel;
  const int64_t all = Begin(problem, &cancel)->plan().Total();
  problem.request.expected_sets = 1;
  const int64_t one = Begin(problem, &cancel)->plan().Total();
  problem.request.expected_sets = 64;
  int64_t last = 64;
  for (const int64_t budget : {all, all / 2, (all + 3 * one) / 4, one}) {
    problem.request.memory_budget_bytes = budget;
    const auto job = Begin(problem, &cancel);
    ASSERT_NE(job, nullptr);
    EXPECT_LE(job->plan().Total(), budget);
    EXPECT_LE(job->sets_together(), last);
    last = job->sets_together();
    ExpectExact(problem, RunAll(problem, *job, AsManyAsFit));
  }
  EXPECT_EQ(last, 1);
  problem.request.memory_budget_bytes = one / 4;
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Cpu()}, &cancel).status(),
                    Reason::kExceedsMemoryBudget, {"execution.memory_budget_bytes"}));
  problem.request.memory_budget_bytes = 0;
  problem.request.target_elements = 100;
  const auto job = Begin(problem, &cancel);
  EXPECT_GT(job->sets_together(), 1);
  EXPECT_LT(job->sets_together(), 64);
  EXPECT_LE(job->program().largest_intermediate_elements(), 100);
}

// Two products that all sets share would take less memory one after the other.
TEST(SetStack, ShrinksBeforeItGivesUpWhatSetsShare) {
  const Network network =
      NetworkOf({"ak", "ab", "bc", "cd", "de", "ek"}, "",
                {{"a", 40}, {"b", 60}, {"c", 40}, {"d", 60}, {"e", 40}, {"k", 2}});
  Problem problem = MakeProblem(network, {true, false, false, false, false, true}, 16);
  problem.request.path =
      PathSteps{PathSteps::Format::kSsa, {{1, 2}, {0, 6}, {3, 4}, {7, 8}, {9, 5}}};
  problem.request.sliced = {"k"};
  const CancelToken cancel;
  const auto whole = Begin(problem, &cancel);
  ASSERT_EQ(whole->sets_together(), 16);
  for (int64_t budget = whole->plan().Total(); budget > 0; budget -= 4096) {
    problem.request.memory_budget_bytes = budget;
    const auto job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
    if (!job.ok() || (*job)->sets_together() == 1) break;
    EXPECT_EQ((*job)->shared_flops(), whole->shared_flops()) << budget;
  }
}

TEST(SetStack, CancelledBetweenStacks) {
  const Problem problem = MakeProblem(Chain(), {true, false, false, false, true, true}, 2);
  CancelToken cancel;
  const auto job = Begin(problem, &cancel);
  Values result(2, {5, 5});
  std::vector<const void*> varying;
  for (const Values& values : problem.sets[0]) varying.push_back(values.data());
  ASSERT_TRUE(job->RunSet(varying, result.data(), nullptr).ok());
  const Values before = result;
  cancel.Cancel();
  EXPECT_TRUE(Fails(job->RunSet(varying, result.data(), nullptr), Reason::kClientCancelled));
  EXPECT_EQ(result, before);
}

TEST(ChooseStack, LeavesIdsAloneAndAddsOneIndex) {
  const contraction::Expression expression = ExpressionOf(Chain());
  const std::vector<bool> varying = {true, false, false, false, false, true};
  const contraction::Expression stacked = StackSets(expression, varying, 9);
  ASSERT_EQ(stacked.sizes.size(), expression.sizes.size() + 1);
  EXPECT_EQ(stacked.sizes.back(), 9);
  const int index = static_cast<int>(expression.sizes.size());
  EXPECT_EQ(stacked.output.front(), index);
  EXPECT_EQ(stacked.inputs[0].front(), index);
  EXPECT_EQ(stacked.inputs[1], expression.inputs[1]);
  EXPECT_EQ(StackSets(expression, varying, 1).inputs, expression.inputs);
}

TEST(ChooseStack, EvenStacksOfAtMost128) {
  const contraction::Expression expression = ExpressionOf(Chain());
  const std::vector<bool> varying(6, true);
  const auto sets = [&](int64_t expected) {
    return ChooseStack(expression, varying, nullptr, expected, INT64_MAX, 16).sets;
  };
  EXPECT_EQ(sets(0), 1);
  EXPECT_EQ(sets(7), 7);
  EXPECT_EQ(sets(128), 128);
  EXPECT_EQ(sets(129), 72);
  EXPECT_EQ(sets(1000), 128);
}

TEST(ChooseStack, LargeSetsStandAlone) {
  const Network network = NetworkOf({"ab", "bc"}, "ac", {{"a", 1024}, {"b", 2}, {"c", 1024}});
  const auto sets = [&](int64_t bytes) {
    return ChooseStack(ExpressionOf(network), {true, false}, nullptr, 100, INT64_MAX, bytes).sets;
  };
  EXPECT_EQ(sets(16), 4);  // results of 16 MiB
  EXPECT_EQ(sets(64), 1);
}

// A stack makes a product with a shared side wider, one of two varying sides only more numerous.
TEST(ChooseStack, LargeProductsOfVaryingTensorsStandAlone) {
  const auto sets = [&](int64_t size, bool both) {
    const Network network = NetworkOf({"ab", "bc"}, "ac", {{"a", size}, {"b", size}, {"c", size}});
    return ChooseStack(ExpressionOf(network), {true, both}, nullptr, 100, INT64_MAX, 8).sets;
  };
  EXPECT_EQ(sets(64, false), 104);
  EXPECT_EQ(sets(64, true), 1);
  EXPECT_EQ(sets(32, true), 104);  // small enough for the calls to matter
}

// For one set the vectors make the tensors smaller; for many, the tensors meet first, once.
TEST(ChooseStack, PathSharesWhatItCan) {
  const Network network =
      NetworkOf({"a", "apq", "pbr", "b"}, "qr", {{"a", 2}, {"b", 2}, {"p", 2}, {"q", 2}, {"r", 2}});
  const contraction::Expression expression = ExpressionOf(network);
  const std::vector<bool> varying = {true, false, false, true};
  const auto tensors_meet = [&](int64_t sets) {
    const auto path = ChooseStack(expression, varying, nullptr, sets, INT64_MAX, 8).path;
    return std::any_of(path.pairs.begin(), path.pairs.end(), [](const auto& pair) {
      return std::minmax({pair.first, pair.second}) == std::pair<int, int>(1, 2);
    });
  };
  EXPECT_TRUE(tensors_meet(1000));
  EXPECT_FALSE(tensors_meet(1));
}

}  // namespace
}  // namespace tenon::schedule
