// Each method alone, and the same answer whatever the threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/core/error.h"
#include "backends/planner/random.h"
#include "backends/planner/search.h"

namespace tenon::planner {
namespace {

using contraction::ComputeCost;
using contraction::Expression;

// A ladder of `rungs` x 2 tensors with indices of several sizes, a vector on every third of them
// and a matrix on every fourth bond: 40 tensors for 13 rungs. All but the ladder is simplified
// away.
Expression Ladder(int rungs) {
  const std::vector<int64_t> sizes = {2, 3, 4};
  std::vector<std::vector<std::string>> inputs;
  std::vector<std::vector<int64_t>> shapes;
  const auto add = [&](const std::vector<std::string>& names) {
    auto& shape = shapes.emplace_back();
    // By the digits before the prime, so that both ends of a split bond have one size.
    for (const std::string& name : names) shape.push_back(sizes[std::stoi(name.substr(1)) % 3]);
    inputs.push_back(names);
  };
  int bond = 0;
  for (int r = 0; r < rungs; ++r) {
    for (const char side : {'l', 'r'}) {
      std::vector<std::string> names = {StrCat("x", r)};
      if (r > 0) names.push_back(StrCat(std::string(1, side), r));
      if (r + 1 < rungs) {
        std::string next = StrCat(std::string(1, side), r + 1);
        if (++bond % 4 == 0) {
          add({next, next + "'"});
          next += "'";
        }
        names.push_back(next);
      }
      if ((2 * r + (side == 'r')) % 3 == 0) {
        names.push_back(StrCat("v", inputs.size()));
        const std::string vector = names.back();
        add(names);
        add({vector});
      } else {
        add(names);
      }
    }
  }
  auto expression = contraction::MakeExpression({inputs, {"x0"}, {}}, shapes);
  EXPECT_TRUE(expression.ok()) << expression.status();
  return *std::move(expression);
}

void ExpectPlan(const Expression& expression, const FoundPlan& found) {
  PathSteps steps;
  for (const auto& [left, right] : found.plan.path.pairs) steps.steps.push_back({left, right});
  const auto path = contraction::MakePath(steps, expression.inputs.size());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->pairs, found.plan.path.pairs);
  const auto& [pairs, sliced] = found.plan;
  EXPECT_DOUBLE_EQ(found.score, ComputeExecutedWork(expression, pairs, sliced).flops);
}

TEST(SearchMethods, EachAlonePlansForTheOperandsAsTheyAre) {
  const Expression expression = Ladder(13);
  ASSERT_GE(expression.inputs.size(), 40u);
  for (const Method method :
       {Method::kGreedy, Method::kRandomGreedy, Method::kExact, Method::kBisection,
        Method::kLeafOrder, Method::kReconfigure, Method::kAnnealing, Method::kTempering}) {
    for (const bool simplify : {true, false}) {
      SCOPED_TRACE(StrCat("method ", static_cast<int>(method), ", simplify ", simplify));
      SearchOptions options;
      options.objective.read_write_weight = 0;
      options.max_trials = 4;
      options.methods = {method};
      options.simplify = simplify;
      const auto whole = Search(expression, options, nullptr, nullptr);
      ASSERT_TRUE(whole.ok()) << whole.status();
      ExpectPlan(expression, *whole);
      EXPECT_TRUE(std::count(whole->methods.begin(), whole->methods.end(), method))
          << whole->methods.size();
      options.target_elements = 8;
      const auto sliced = Search(expression, options, nullptr, nullptr);
      ASSERT_TRUE(sliced.ok()) << sliced.status();
      ExpectPlan(expression, *sliced);
      EXPECT_LE(ComputeCost(expression, sliced->plan.path, sliced->plan.sliced).max_size, 8);
    }
  }
}

TEST(SearchMethods, ThreadsNeverChangeAPlanUnderTrials) {
  const Expression expression = Ladder(16);
  struct Case {
    Objective objective;
    int64_t target;
    std::vector<Method> methods;
  };
  // More than one generation of trials, so that the later ones build on the best so far.
  constexpr int kTrials = 10;
  const std::vector<Case> cases = {
      {{}, 16, {Method::kRandomGreedy, Method::kAnnealing}},
      {{.flops_weight = 0}, 16, {Method::kBisection, Method::kReconfigure}},
      {{.kind = Objective::Kind::kLargest}, INT64_MAX, {Method::kRandomGreedy, Method::kTempering}},
  };
  for (const Case& one_case : cases) {
    SearchOptions options;
    options.objective = one_case.objective;
    options.max_trials = kTrials;
    options.seed = 5;
    options.methods = one_case.methods;
    options.target_elements = one_case.target;
    options.threads = 1;
    const auto one = Search(expression, options, nullptr, nullptr);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->plan.sliced.empty(), one_case.target > 16);
    for (const int threads : {2, 3, 8}) {
      options.threads = threads;
      const auto many = Search(expression, options, nullptr, nullptr);
      ASSERT_TRUE(many.ok()) << many.status();
      EXPECT_EQ(many->plan.path.pairs, one->plan.path.pairs) << threads;
      EXPECT_EQ(many->plan.sliced, one->plan.sliced) << threads;
      EXPECT_EQ(many->methods, one->methods);
      EXPECT_EQ(many->trials, kTrials);
    }
  }
}

// What tells about a search while it runs.
TEST(SearchMethods, CountsItsTrials) {
  std::atomic<int64_t> trials = 0;
  SearchOptions options;
  options.max_trials = 5;
  options.trials_made = &trials;
  ASSERT_TRUE(Search(Ladder(16), options, nullptr, nullptr).ok());
  EXPECT_EQ(trials, 5);
}

}  // namespace
}  // namespace tenon::planner
