// Searches under budgets: what they promise of limits, seeds, threads and improvements.

#include "backends/planner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/core/error.h"
#include "backends/planner/exact.h"
#include "backends/planner/random.h"
#include "backends/planner/reduced_network.h"
#include "tests/support/status_matchers.h"

namespace tenon::planner {
namespace {

using contraction::ComputeCost;
using contraction::Expression;
using contraction::PathCost;
using ::tenon::testing::Fails;

Expression Make(const std::vector<std::vector<std::string>>& inputs,
                const std::vector<std::string>& output, int64_t size) {
  Network network{inputs, output, {}};
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& input : inputs) shapes.emplace_back(input.size(), size);
  return *contraction::MakeExpression(network, shapes);
}

// A ring of `n` tensors with random chords: degree 3.
Expression RandomGraph(int n, uint64_t seed) {
  Random random(seed, 0);
  std::vector<std::vector<std::string>> inputs(n);
  for (int t = 0; t < n; ++t) {
    inputs[t].push_back("r" + std::to_string(t));
    inputs[(t + 1) % n].push_back("r" + std::to_string(t));
  }
  std::vector<int> free(n);
  for (int t = 0; t < n; ++t) free[t] = t;
  for (int chord = 0; chord < n / 2; ++chord) {
    for (int end = 0; end < 2; ++end) {
      const int pick = random.Below(static_cast<int>(free.size()));
      inputs[free[pick]].push_back("c" + std::to_string(chord));
      free.erase(free.begin() + pick);
    }
  }
  return Make(inputs, {"r0"}, 2);
}

SearchOptions Trials(int64_t trials) {
  SearchOptions options;
  options.max_trials = trials;
  options.objective.read_write_weight = 0;
  return options;
}

void ExpectComplete(const Expression& expression, const FoundPlan& found) {
  PathSteps steps;
  for (const auto& [left, right] : found.plan.path.pairs) steps.steps.push_back({left, right});
  const auto path = contraction::MakePath(steps, expression.inputs.size());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->pairs, found.plan.path.pairs);
}

TEST(Search, UnderTrialsDependsOnTheSeedAlone) {
  const Expression expression = RandomGraph(40, 1);
  SearchOptions options = Trials(20);
  options.threads = 1;
  const auto one = Search(expression, options, nullptr, nullptr);
  options.threads = 2;
  const auto two = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(one.ok() && two.ok());
  ExpectComplete(expression, *one);
  EXPECT_EQ(one->plan.path.pairs, two->plan.path.pairs);
  EXPECT_EQ(one->plan.sliced, two->plan.sliced);
  EXPECT_EQ(one->trials, 20);
  EXPECT_EQ(one->stop, SearchStop::kTrials);
}

TEST(Search, TellsEveryImprovementOnceAndEndsWithTheBest) {
  const Expression expression = RandomGraph(60, 2);
  std::vector<double> scores;
  const auto found = Search(expression, Trials(24), nullptr, [&](const FoundPlan& better) {
    ExpectComplete(expression, better);
    scores.push_back(better.score);
  });
  ASSERT_TRUE(found.ok());
  ASSERT_FALSE(scores.empty());
  EXPECT_TRUE(std::is_sorted(scores.rbegin(), scores.rend()));
  EXPECT_EQ(std::adjacent_find(scores.begin(), scores.end()), scores.end());
  EXPECT_EQ(found->score, scores.back());
  EXPECT_DOUBLE_EQ(found->score,
                   ComputeCost(expression, found->plan.path, found->plan.sliced).flops);
}

TEST(Search, OfFewTensorsIsExact) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Expression expression = RandomGraph(14, seed);
    const auto found = Search(expression, Trials(1), nullptr, nullptr);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->stop, SearchStop::kExhausted);
    ReducedNetwork::Options whole;
    whole.simplify = false;
    const ReducedNetwork network(expression, whole);
    StepPrice flops;
    flops.objective.read_write_weight = 0;
    const auto best = ExactTree(network.network(), flops, {}, Stop());
    ASSERT_TRUE(best.has_value());
    EXPECT_DOUBLE_EQ(found->score, Tree(network.network(), *best).Cost(flops));
  }
}

// Simplification would join matrices in the order in which nothing grows, which costs more.
TEST(Search, OfAChainIsTheBestOrderOfProducts) {
  Random random(3, 0);
  Network network;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> sizes;
  for (int i = 0; i <= 60; ++i) sizes.push_back(2 + random.Below(6));
  for (int t = 0; t < 60; ++t) {
    network.inputs.push_back({"i" + std::to_string(t), "i" + std::to_string(t + 1)});
    shapes.push_back({sizes[t], sizes[t + 1]});
  }
  network.output = {"i0", "i60"};
  const Expression expression = *contraction::MakeExpression(network, shapes);
  const auto found = Search(expression, Trials(4), nullptr, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectComplete(expression, *found);
  // least[i][j]: of the product of the matrices i .. j-1
  std::vector<std::vector<double>> least(61, std::vector<double>(61, 0));
  for (int length = 2; length <= 60; ++length) {
    for (int i = 0; i + length <= 60; ++i) {
      const int j = i + length;
      least[i][j] = std::numeric_limits<double>::infinity();
      for (int k = i + 1; k < j; ++k) {
        const auto product = static_cast<double>(sizes[i] * sizes[k] * sizes[j]);
        least[i][j] = std::min(least[i][j], least[i][k] + least[k][j] + product);
      }
    }
  }
  EXPECT_EQ(found->score, least[0][60]);
}

TEST(Search, MeetsATargetExactly) {
  const Expression expression = RandomGraph(60, 3);
  const auto unsliced = Search(expression, Trials(8), nullptr, nullptr);
  ASSERT_TRUE(unsliced.ok());
  const double largest = ComputeCost(expression, unsliced->plan.path, {}).max_size;
  for (const SlicingMode mode : {SlicingMode::kAuto, SlicingMode::kFixedTree, SlicingMode::kDynamic,
                                 SlicingMode::kAnnealed}) {
    SearchOptions options = Trials(8);
    options.slicing_mode = mode;
    options.target_elements = static_cast<int64_t>(largest / 8);
    const auto sliced = Search(expression, options, nullptr, nullptr);
    ASSERT_TRUE(sliced.ok()) << sliced.status();
    ExpectComplete(expression, *sliced);
    EXPECT_FALSE(sliced->plan.sliced.empty());
    const PathCost cost = ComputeCost(expression, sliced->plan.path, sliced->plan.sliced);
    EXPECT_LE(cost.max_size, largest / 8);
    // The output's only index may not be sliced.
    EXPECT_FALSE(
        std::count(sliced->plan.sliced.begin(), sliced->plan.sliced.end(), expression.output[0]));
  }
}

TEST(Search, LeavesATargetAloneThatItMayNotSliceFor) {
  const Expression expression = RandomGraph(40, 4);
  SearchOptions options = Trials(4);
  options.slicing_mode = SlicingMode::kNone;
  options.target_elements = 4;
  const auto found = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->plan.sliced.empty());
}

TEST(Search, RefusesATargetBelowTheOutput) {
  const Expression expression = Make({{"a", "b"}, {"b", "c"}, {"c", "d"}}, {"a", "d"}, 8);
  SearchOptions options = Trials(4);
  options.target_elements = 63;
  EXPECT_TRUE(Fails(Search(expression, options, nullptr, nullptr).status(),
                    Reason::kUnreachableTarget, "target_size"));
  options.allow_output_slicing = true;
  const auto found = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LE(ComputeCost(expression, found->plan.path, found->plan.sliced).max_size, 63);
}

TEST(Search, KeepsWithinMemory) {
  const Expression expression = RandomGraph(60, 5);
  const auto peak = [&](const Plan& plan) {
    return 8 * static_cast<int64_t>(ComputeCost(expression, plan.path, plan.sliced).peak_size);
  };
  const auto unsliced = Search(expression, Trials(8), nullptr, nullptr);
  ASSERT_TRUE(unsliced.ok());
  SearchOptions options = Trials(8);
  options.memory_bytes = peak(unsliced->plan) / 4;
  options.planned_bytes = [&](const Plan& plan) -> absl::StatusOr<int64_t> { return peak(plan); };
  const auto found = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LE(peak(found->plan), *options.memory_bytes);
  options.memory_bytes = 8;
  EXPECT_TRUE(Fails(Search(expression, options, nullptr, nullptr).status(),
                    Reason::kExceedsMemoryBudget, "memory_bytes"));
}

// The budget limits results from the start, and a plan that was made for an older limit lowers it
// no further.
TEST(Search, FillsMemoryAsATargetOfThatSizeWould) {
  const Expression expression = RandomGraph(60, 4);
  SearchOptions by_target = Trials(16);
  by_target.target_elements = 1 << 7;
  SearchOptions by_memory = Trials(16);
  by_memory.memory_bytes = 8 << 7;
  by_memory.element_bytes = 8;
  by_memory.planned_bytes = [&](const Plan& plan) -> absl::StatusOr<int64_t> {
    return static_cast<int64_t>(8 * ComputeCost(expression, plan.path, plan.sliced).max_size);
  };
  const auto target = Search(expression, by_target, nullptr, nullptr);
  const auto memory = Search(expression, by_memory, nullptr, nullptr);
  ASSERT_TRUE(target.ok() && memory.ok());
  EXPECT_FALSE(memory->plan.sliced.empty());
  EXPECT_EQ(memory->score, target->score);
}

TEST(Search, SlicesTheBlockOfOneOperand) {
  SearchOptions options = Trials(1);
  options.target_elements = 4;
  options.allow_output_slicing = true;
  const Expression expression = Make({{"a", "c", "b", "a", "c"}}, {"c", "a"}, 3);
  const auto found = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->plan.sliced.size(), 1u);
}

TEST(Search, IsNotWorseThanWhereItStarts) {
  const Expression expression = RandomGraph(40, 6);
  SearchOptions start = Trials(1);
  start.methods = {Method::kGreedy};
  const auto greedy = Search(expression, start, nullptr, nullptr);
  ASSERT_TRUE(greedy.ok());
  SearchOptions options = Trials(4);
  options.initial = greedy->plan;
  const auto same = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->plan.path.pairs, greedy->plan.path.pairs);  // nobody asked to improve it
  options.methods = {Method::kAnnealing};
  const auto better = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(better.ok());
  EXPECT_LT(better->score, greedy->score);
  options.methods.clear();
  // Without a budget it is only sliced.
  SearchOptions slice_only = options;
  slice_only.max_trials.reset();
  slice_only.target_elements = 16;
  const auto sliced = Search(expression, slice_only, nullptr, nullptr);
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  EXPECT_EQ(sliced->plan.path.pairs, greedy->plan.path.pairs);
  EXPECT_LE(ComputeCost(expression, sliced->plan.path, sliced->plan.sliced).max_size, 16);
}

TEST(Search, UsesTheMethodsThatAreNamed) {
  const Expression expression = RandomGraph(24, 7);
  for (const Method method :
       {Method::kGreedy, Method::kRandomGreedy, Method::kExact, Method::kBisection,
        Method::kLeafOrder, Method::kReconfigure, Method::kAnnealing, Method::kTempering}) {
    SearchOptions options = Trials(3);
    options.methods = {method};
    const auto found = Search(expression, options, nullptr, nullptr);
    ASSERT_TRUE(found.ok()) << static_cast<int>(method) << found.status();
    ExpectComplete(expression, *found);
    const bool improves = method == Method::kLeafOrder || method == Method::kReconfigure ||
                          method == Method::kAnnealing || method == Method::kTempering;
    for (const Method used : found->methods) {
      EXPECT_TRUE(used == method || (improves && used == Method::kGreedy));
    }
  }
}

TEST(Search, TakesEveryShapeOfNetwork) {
  const std::vector<Expression> expressions = {
      Make({{"a", "b"}}, {"b"}, 3),                       // one operand
      Make({{}, {}, {}}, {}, 1),                          // scalars
      Make({{"a"}, {"b"}, {"c"}, {"d"}}, {"d", "a"}, 2),  // all apart
      Make({{"h", "a"}, {"h", "b"}, {"h", "c"}, {"h"}}, {"h"}, 2),
      Make({{"a", "a", "b"}, {"b", "c", "c"}, {"c"}}, {}, 2),  // repeated
      Make({{"a", "b"}, {"b", "c"}, {"c", "a"}}, {}, 1),       // nothing to choose
      Make({{"a", "b"}, {"b", "c"}, {"c", "a"}, {"a"}}, {"c"}, 0),
  };
  for (size_t e = 0; e < expressions.size(); ++e) {
    SCOPED_TRACE(e);
    const auto found = Search(expressions[e], Trials(2), nullptr, nullptr);
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectComplete(expressions[e], *found);
  }
}

TEST(Search, OfACancelledRequestIsAnError) {
  const Expression expression = RandomGraph(200, 8);
  CancelToken cancel;
  SearchOptions options = Trials(1'000'000);
  const auto found =
      Search(expression, options, &cancel, [&](const FoundPlan&) { cancel.Cancel(); });
  EXPECT_TRUE(Fails(found.status(), Reason::kClientCancelled));
}

TEST(Search, AnswersWhenTheTimeIsOver) {
  const Expression expression = RandomGraph(300, 9);
  SearchOptions options;
  options.max_seconds = 0.05;
  options.target_elements = 1 << 12;
  const auto found = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->stop, SearchStop::kTime);
  EXPECT_LE(ComputeCost(expression, found->plan.path, found->plan.sliced).max_size, 1 << 12);
}

TEST(Search, RefusesOptionsOutOfRange) {
  const Expression expression = RandomGraph(14, 1);
  const auto refused = [&](const std::string& field, SearchOptions options) {
    return Fails(Search(expression, options, nullptr, nullptr).status(), Reason::kBadParameter,
                 field);
  };
  EXPECT_TRUE(refused("max_trials", SearchOptions()));
  SearchOptions options = Trials(0);
  EXPECT_TRUE(refused("max_trials", options));
  options = Trials(1);
  options.max_seconds = 0;
  EXPECT_TRUE(refused("max_time_seconds", options));
  options = Trials(1);
  options.objective.flops_weight = 0;
  EXPECT_TRUE(refused("read_write_weight", options));
  options.objective.flops_weight = std::nan("");
  EXPECT_TRUE(refused("flops_weight", options));
  options = Trials(1);
  options.target_elements = 0;
  EXPECT_TRUE(refused("target_size", options));
  options = Trials(1);
  options.objective.kind = Objective::Kind::kSeconds;
  EXPECT_TRUE(refused("objective", options));
}

}  // namespace
}  // namespace tenon::planner
