// Networks that are large, odd or impossible: a plan or a clear error, in bounded time and memory.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "backends/planner/random.h"
#include "backends/planner/search.h"
#include "tests/support/status_matchers.h"

namespace tenon::planner {
namespace {

using contraction::ComputeCost;
using contraction::Expression;
using ::tenon::testing::Fails;

using Tensors = std::vector<std::vector<std::string>>;

Expression Make(const Tensors& inputs, const std::vector<std::string>& output,
                const std::map<std::string, int64_t>& sizes, int64_t other_size = 2) {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& input : inputs) {
    auto& shape = shapes.emplace_back();
    for (const std::string& name : input) {
      const auto known = sizes.find(name);
      shape.push_back(known == sizes.end() ? other_size : known->second);
    }
  }
  auto expression = contraction::MakeExpression({inputs, output, {}}, shapes);
  EXPECT_TRUE(expression.ok()) << expression.status();
  return *std::move(expression);
}

// Tensors of equal rank, joined at random; names begin with `prefix`.
Tensors RandomRegular(int n, int degree, uint64_t seed, const std::string& prefix = "") {
  Random random(seed, 0);
  std::vector<int> ends;
  for (int t = 0; t < n; ++t) ends.insert(ends.end(), degree, t);
  for (int e = static_cast<int>(ends.size()) - 1; e > 0; --e) {
    std::swap(ends[e], ends[random.Below(e + 1)]);
  }
  Tensors tensors(n);
  for (size_t e = 0; e < ends.size(); ++e) {
    tensors[ends[e]].push_back(StrCat(prefix, e / 2));
  }
  return tensors;
}

Tensors Chain(int n) {
  Tensors tensors;
  for (int t = 0; t < n; ++t) tensors.push_back({StrCat(t), StrCat(t + 1)});
  return tensors;
}

SearchOptions Budget(int64_t trials, double seconds) {
  SearchOptions options;
  options.objective.read_write_weight = 0;
  options.max_trials = trials;
  options.max_seconds = seconds;
  options.deterministic = true;
  return options;
}

absl::StatusOr<FoundPlan> Searched(const Expression& expression, const SearchOptions& options) {
  absl::StatusOr<FoundPlan> found = Search(expression, options, nullptr, nullptr);
  if (!found.ok()) return found;
  PathSteps steps;
  for (const auto& [left, right] : found->plan.path.pairs) steps.steps.push_back({left, right});
  const auto path = contraction::MakePath(steps, expression.inputs.size());
  EXPECT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->pairs, found->plan.path.pairs);
  return found;
}

double Flops(const Expression& expression, const FoundPlan& found) {
  return ComputeCost(expression, found.plan.path, found.plan.sliced).flops;
}

TEST(HardInput, AChainOf20000Tensors) {
  constexpr int kTensors = 20'000;
  const Expression expression = Make(Chain(kTensors), {"0", StrCat(kTensors)}, {});
  for (const bool simplify : {true, false}) {
    SearchOptions options = Budget(4, 1);
    options.simplify = simplify;
    const auto found = Searched(expression, options);
    ASSERT_TRUE(found.ok()) << found.status();
    // Every order of 2 x 2 matrices multiplies 8 elements a step.
    EXPECT_EQ(Flops(expression, *found), 8.0 * (kTensors - 1));
    options.target_elements = 2;
    EXPECT_TRUE(Fails(Search(expression, options, nullptr, nullptr).status(),
                      Reason::kUnreachableTarget, "target_size"));
  }
}

// 500 tensors on one index, each with a bond to the next.
TEST(HardInput, AStarOnOneIndex) {
  constexpr int kTensors = 500;
  Tensors tensors;
  for (int t = 0; t < kTensors; ++t) {
    tensors.push_back({"hub", StrCat(t), StrCat((t + 1) % kTensors)});
  }
  for (const int64_t size : {int64_t{2}, int64_t{1} << 50}) {
    const Expression expression = Make(tensors, {}, {{"hub", size}});
    const auto found = Searched(expression, Budget(4, 2));
    ASSERT_TRUE(found.ok()) << found.status();
    // A ring of bonds, once for every value of the hub.
    EXPECT_LE(Flops(expression, *found), 8.0 * kTensors * static_cast<double>(size));
    // Only the hub is left to slice once the ring is cut.
    SearchOptions options = Budget(2, 2);
    options.target_elements = 4;
    const auto sliced = Searched(expression, options);
    ASSERT_TRUE(sliced.ok()) << sliced.status();
    EXPECT_LE(ComputeCost(expression, sliced->plan.path, sliced->plan.sliced).max_size, 4);
  }
  // Nothing but the index.
  const Expression vectors = Make(Tensors(kTensors, {"hub"}), {"hub"}, {{"hub", 1 << 20}});
  const auto found = Searched(vectors, Budget(4, 2));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(Flops(vectors, *found), (kTensors - 1.0) * (1 << 20));
}

TEST(HardInput, PartsThatAreApartCostWhatEachCostsAlone) {
  const Tensors left = RandomRegular(60, 3, 1, "l"), right = RandomRegular(60, 3, 2, "r");
  Tensors both = left;
  both.insert(both.end(), right.begin(), right.end());
  const auto flops = [](const Tensors& tensors) {
    const Expression expression = Make(tensors, {}, {});
    const auto found = Searched(expression, Budget(16, 1e9));
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? Flops(expression, *found) : 0;
  };
  EXPECT_LE(flops(both), 1.2 * (flops(left) + flops(right)));
}

// Sizes that a double rounds: limits are met as integers all the same.
TEST(HardInput, IndicesNear2To62) {
  constexpr int64_t kHuge = (int64_t{1} << 62) - 1;
  const Expression expression =
      Make({{"a"}, {"a"}, {"b", "c"}, {"c", "d"}, {"d"}}, {"b"}, {{"a", kHuge}, {"b", kHuge / 2}});
  const auto found = Searched(expression, Budget(4, 2));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LT(Flops(expression, *found), 4.0 * static_cast<double>(kHuge));
  SearchOptions options = Budget(4, 2);
  options.target_elements = kHuge / 2;  // exactly the output
  EXPECT_TRUE(Searched(expression, options).ok());
  options.target_elements = kHuge / 2 - 1;
  EXPECT_TRUE(Fails(Search(expression, options, nullptr, nullptr).status(),
                    Reason::kUnreachableTarget, "target_size"));
}

// Every tree costs more than a double can tell.
TEST(HardInput, CostsBeyondADouble) {
  const Expression expression = Make(RandomRegular(300, 60, 3), {}, {});
  for (const Objective::Kind kind : {Objective::Kind::kWeighted, Objective::Kind::kLargest}) {
    SearchOptions options = Budget(2, 2);
    options.objective.kind = kind;
    const auto found = Searched(expression, options);
    ASSERT_TRUE(found.ok()) << found.status();
    options.target_elements = 1 << 20;
    const auto sliced = Searched(expression, options);
    if (sliced.ok()) {
      EXPECT_LE(ComputeCost(expression, sliced->plan.path, sliced->plan.sliced).max_size, 1 << 20);
    } else {
      EXPECT_TRUE(Fails(sliced.status(), Reason::kUnreachableTarget, "target_size"));
    }
  }
}

TEST(HardInput, EmptyNetworks) {
  EXPECT_TRUE(
      Fails(contraction::MakeExpression({}, {}).status(), Reason::kBadExpression, "operands"));
  // Many scalars, and many tensors of one element.
  for (const Tensors& tensors : {Tensors(2000), Tensors(2000, {"a"}), Chain(2000)}) {
    const Expression expression = Make(tensors, {}, {}, 1);
    const auto found = Searched(expression, Budget(4, 2));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(Flops(expression, *found), 1999);
  }
  // No elements at all.
  const Expression none = Make(RandomRegular(60, 3, 4), {}, {}, 0);
  for (const bool simplify : {true, false}) {
    SearchOptions options = Budget(4, 2);
    options.simplify = simplify;
    options.target_elements = 1;
    const auto found = Searched(none, options);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(Flops(none, *found), 0);
  }
}

TEST(HardInput, AnIndexSeveralTimesOnOneTensor) {
  // Traces, diagonals, and an index that a tensor holds as often as it can.
  Tensors tensors = RandomRegular(30, 3, 5);
  for (size_t t = 0; t < tensors.size(); ++t) {
    tensors[t].insert(tensors[t].end(), {tensors[t][0], StrCat("trace", t), StrCat("trace", t)});
  }
  tensors.push_back(std::vector<std::string>(40, tensors[0][0]));
  const Expression expression = Make(tensors, {"trace7"}, {});
  SearchOptions options = Budget(4, 2);
  options.target_elements = 16;
  const auto found = Searched(expression, options);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LE(ComputeCost(expression, found->plan.path, found->plan.sliced).max_size, 16);
}

TEST(HardInput, OptionsOfAnySize) {
  const Expression expression = Make(RandomRegular(40, 3, 6), {}, {});
  SearchOptions options = Budget(2, 1e300);
  options.target_elements = INT64_MAX;
  options.objective.flops_weight = 1e308;
  options.objective.read_write_weight = 1e308;
  options.threads = INT32_MAX;
  options.seed = UINT64_MAX;
  ASSERT_TRUE(Searched(expression, options).ok());
  options.objective.flops_weight = 1e-320;  // denormal
  options.objective.read_write_weight = 0;
  ASSERT_TRUE(Searched(expression, options).ok());
  options = Budget(INT64_MAX, 1e-9);
  ASSERT_TRUE(Searched(expression, options).ok());
  for (const double seconds : {0.0, -1.0, std::nan("")}) {
    EXPECT_TRUE(Fails(Search(expression, Budget(1, seconds), nullptr, nullptr).status(),
                      Reason::kBadParameter, "max_time_seconds"));
  }
}

}  // namespace
}  // namespace tenon::planner
