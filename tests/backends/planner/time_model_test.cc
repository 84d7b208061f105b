// Searches by seconds, with made-up times.

#include "backends/planner/time_model.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/planner/search.h"

namespace tenon::planner {
namespace {

using contraction::Expression;
using contraction::PathCost;

Expression Make(const std::vector<std::vector<std::string>>& inputs,
                const std::vector<std::string>& output,
                const std::map<std::string, int64_t>& sizes) {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& input : inputs) {
    shapes.emplace_back();
    for (const std::string& index : input) shapes.back().push_back(sizes.at(index));
  }
  return *contraction::MakeExpression({inputs, output, {}}, shapes);
}

// Three matrices: the first two first have the fewest multiply-adds, the last two move the least.
Expression Chain() {
  return Make({{"a", "b"}, {"b", "c"}, {"c", "d"}}, {"a", "d"},
              {{"a", 2}, {"b", 30}, {"c", 1000}, {"d", 30}});
}

// A square lattice with bonds of 2 and 3.
Expression Lattice(int width) {
  std::vector<std::vector<std::string>> inputs(width * width);
  std::map<std::string, int64_t> sizes;
  const auto bind = [&](int a, int b) {
    const std::string bond = std::to_string(a) + "-" + std::to_string(b);
    inputs[a].push_back(bond);
    inputs[b].push_back(bond);
    sizes[bond] = 2 + (a * 7 + b) % 2;
  };
  for (int t = 0; t < width * width; ++t) {
    if (t % width < width - 1) bind(t, t + 1);
    if (t / width < width - 1) bind(t, t + width);
  }
  return Make(inputs, {}, sizes);
}

SearchOptions BySeconds(const StepTimes& times, int64_t trials = 12) {
  SearchOptions options;
  options.objective.kind = Objective::Kind::kSeconds;
  options.objective.times = &times;
  options.max_trials = trials;
  options.simplify = false;
  return options;
}

FoundPlan Find(const Expression& expression, const SearchOptions& options) {
  const auto found = Search(expression, options, nullptr, nullptr);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *found : FoundPlan();
}

TEST(TimeModel, StepsHaveTheirOverheadArithmeticAndTraffic) {
  StepTimes times;
  times.step = 1000;
  times.multiply_add = 1;
  times.near_read = 2;
  times.far_read = 3;
  times.near_write = 5;
  times.far_write = 7;
  times.near_elements = 16;
  EXPECT_EQ(StepSeconds(times, {4, 8, 4, 32}), 1000 + 32 + 2 * 12 + 5 * 4);
  EXPECT_EQ(StepSeconds(times, {5, 8, 4, 32}), 1000 + 32 + 3 * 13 + 7 * 4);
}

TEST(TimeModel, ThreadsShareWhatWasMeasured) {
  tenon_calibration calibration{};
  calibration.threads = 3;
  calibration.arithmetic_speedup = 3;
  calibration.traffic_speedup = 2;
  calibration.times[2] = {1, 6, 6, 6, 6, 6, 100};  // complex64
  const StepTimes one = MakeStepTimes(calibration, DType::kComplex64, 1);
  EXPECT_EQ(one.multiply_add, 6);
  EXPECT_EQ(one.far_write, 6);
  const StepTimes two = MakeStepTimes(calibration, DType::kComplex64, 2);
  EXPECT_EQ(two.multiply_add, 3);
  EXPECT_EQ(two.far_read, 4);
  const StepTimes many = MakeStepTimes(calibration, DType::kComplex64, 100);
  EXPECT_EQ(many.near_read, 2);
  EXPECT_EQ(many.far_write, 3);
  EXPECT_EQ(many.step, 1);
  EXPECT_EQ(many.near_elements, 100);
}

TEST(TimeModel, WhatIsDearDecidesTheTree) {
  StepTimes arithmetic, traffic;
  arithmetic.multiply_add = 1;
  traffic.far_read = traffic.far_write = 1;
  const Expression chain = Chain();
  EXPECT_EQ(Find(chain, BySeconds(arithmetic)).plan.path.pairs.front(), std::pair(0, 1));
  EXPECT_EQ(Find(chain, BySeconds(traffic)).plan.path.pairs.front(), std::pair(1, 2));
}

// Seconds of a compiled program that know better than the model: here, the model turned around.
class RankedSearch : public ::testing::Test {
 protected:
  RankedSearch() { times_.multiply_add = 1; }

  std::optional<double> Predict(const Plan& plan) {
    const PathCost cost = ComputeCost(lattice_, plan.path, plan.sliced);
    const double seconds = 1 / cost.flops;
    asked_.insert(seconds);
    return seconds;
  }
  SearchOptions Options() {
    SearchOptions options = BySeconds(times_, 16);
    options.predicted_seconds = [this](const Plan& plan) { return Predict(plan); };
    return options;
  }

  const Expression lattice_ = Lattice(7);
  StepTimes times_;
  std::set<double> asked_;
};

TEST_F(RankedSearch, TheCompiledProgramHasTheLastWord) {
  const FoundPlan found = Find(lattice_, Options());
  ASSERT_TRUE(found.predicted_seconds.has_value());
  EXPECT_GT(asked_.size(), 1u);
  EXPECT_EQ(*found.predicted_seconds, *asked_.begin());
  EXPECT_EQ(found.trials, 16);
}

TEST_F(RankedSearch, PlansThatNearlyWonAreRankedToo) {
  SearchOptions options;
  options.max_trials = 32;
  options.target_elements = 64;
  std::vector<double> best, near;
  options.on_near_miss = [&](const FoundPlan& plan) {
    ASSERT_FALSE(best.empty());
    EXPECT_GT(plan.score, best.back());
    EXPECT_LT(plan.score, 2 * best.back());
    EXPECT_EQ(plan.score, PlanScore(lattice_, options.objective, plan.plan));
    const PathCost cost = ComputeCost(lattice_, plan.plan.path, plan.plan.sliced);
    EXPECT_LE(cost.max_size, 64);
    near.push_back(plan.score);
  };
  const auto found = Search(lattice_, options, nullptr,
                            [&](const FoundPlan& better) { best.push_back(better.score); });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(near.empty());
  EXPECT_EQ(found->score, best.back());
}

TEST_F(RankedSearch, PlansThatNearlyWonFitTheMemory) {
  SearchOptions options;
  options.max_trials = 24;
  options.element_bytes = 8;
  options.memory_bytes = 8 * 256;
  const auto bytes = [&](const Plan& plan) {
    return static_cast<int64_t>(8 * ComputeCost(lattice_, plan.path, plan.sliced).max_size);
  };
  options.planned_bytes = bytes;
  int near = 0;
  options.on_near_miss = [&](const FoundPlan& plan) {
    EXPECT_LE(bytes(plan.plan), 8 * 256);
    ++near;
  };
  const FoundPlan found = Find(lattice_, options);
  EXPECT_LE(bytes(found.plan), 8 * 256);
  EXPECT_GT(near, 0);
  // Those that miss do not make the search stricter.
  options.on_near_miss = nullptr;
  EXPECT_EQ(Find(lattice_, options).plan.path.pairs, found.plan.path.pairs);
}

TEST_F(RankedSearch, ImprovementsGetFaster) {
  std::vector<FoundPlan> improvements;
  const auto found = Search(lattice_, Options(), nullptr,
                            [&](const FoundPlan& better) { improvements.push_back(better); });
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_FALSE(improvements.empty());
  for (size_t i = 1; i < improvements.size(); ++i) {
    EXPECT_LT(*improvements[i].predicted_seconds, *improvements[i - 1].predicted_seconds);
    EXPECT_GE(improvements[i].trials, improvements[i - 1].trials);
    EXPECT_GE(improvements[i].seconds, improvements[i - 1].seconds);
  }
  EXPECT_EQ(improvements.back().plan.path.pairs, found->plan.path.pairs);
}

TEST_F(RankedSearch, UnderTrialsThePlanDependsOnTheSeedAlone) {
  SearchOptions options = Options();
  options.threads = 1;
  const FoundPlan one = Find(lattice_, options);
  options.threads = 0;
  const FoundPlan all = Find(lattice_, options);
  EXPECT_EQ(one.plan.path.pairs, all.plan.path.pairs);
  EXPECT_EQ(one.plan.sliced, all.plan.sliced);
}

TEST_F(RankedSearch, PlansWithoutAProgramAreAnswersToo) {
  SearchOptions options = Options();
  options.predicted_seconds = [](const Plan&) { return std::nullopt; };
  const FoundPlan found = Find(lattice_, options);
  EXPECT_FALSE(found.predicted_seconds.has_value());
  EXPECT_EQ(found.plan.path.pairs.size(), 48u);
}

TEST_F(RankedSearch, ALimitHoldsForEveryCandidate) {
  SearchOptions options = Options();
  options.target_elements = 128;
  const FoundPlan found = Find(lattice_, options);
  EXPECT_LE(ComputeCost(lattice_, found.plan.path, found.plan.sliced).max_size, 128);
}

}  // namespace
}  // namespace tenon::planner
