// Sliced trees: steps are charged as often as the engine runs them.

#include "backends/planner/slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/contraction/path.h"
#include "backends/core/network.h"
#include "backends/planner/annealing.h"
#include "backends/planner/leaf_order.h"
#include "backends/planner/reconfigure.h"
#include "backends/planner/search.h"
#include "backends/planner/slicer.h"
#include "backends/planner/subset_table.h"
#include "backends/planner/time_model.h"
#include "backends/planner/trial.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/backends/planner/planner_networks.h"
#include "tests/support/test_data.h"

namespace tenon::planner {
namespace {

using testing::ExpressionOf;
using testing::SearchNetworkOf;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

StepPrice Flops() {
  StepPrice price;
  price.objective.read_write_weight = 0;
  return price;
}

// A few legs of a network.
std::vector<int> SomeLegs(const SearchNetwork& network, int count, Random& random) {
  std::vector<int> legs;
  for (int leg = 0; leg < network.leg_positions(); ++leg) {
    if (network.index_of(leg) >= 0 && network.leg_size(leg) > 1) legs.push_back(leg);
  }
  while (static_cast<int>(legs.size()) > count) {
    legs.erase(legs.begin() + random.Below(static_cast<int>(legs.size())));
  }
  return legs;
}

TEST(Slice, CostsWhatTheEngineRuns) {
  std::mt19937_64 random(11);
  int equal = 0, hoisted = 0;
  for (int repeat = 0; repeat < 400; ++repeat) {
    const contraction::Expression expression =
        ExpressionOf(testing::Reduced(testing::RandomNetwork(random)));
    const SearchNetwork network = SearchNetworkOf(expression);
    const contraction::Path path = testing::RandomPath(expression.inputs.size(), random);
    const std::vector<int> sliced = testing::RandomSliced(expression, random);
    std::vector<int> legs;
    for (const int index : sliced) legs.push_back(network.leg_of(index));
    const auto work = ComputeExecutedWork(expression, path, sliced);
    const auto cost = ComputeCost(expression, path, sliced);
    const Slice slice(Tree(network, path.pairs), legs);
    // The engine may nest the loops better.
    const double flops = slice.tree().Cost(Flops());
    EXPECT_GE(flops, work.flops);
    EXPECT_LE(flops, cost.flops);
    equal += flops == work.flops;
    hoisted += flops < cost.flops;
    EXPECT_EQ(slice.tree().Largest(), cost.max_size);
    // Reading and writing are charged alike.
    if (sliced.size() == 1) {
      EXPECT_EQ(slice.tree().Cost({}), work.flops + 64 * work.read_write);
    }
  }
  EXPECT_GT(equal, 350);
  EXPECT_GT(hoisted, 50);
}

TEST(Slice, StaysTrueWhileItsTreeMoves) {
  std::mt19937_64 shapes(12);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const SearchNetwork network =
        testing::RandomSearchNetwork({20, 34, 2 + repeat % 3, 5, {2, 3}}, shapes);
    Random random(5, repeat);
    const Tree whole(network, testing::RandomPairs(20, shapes));
    const std::vector<int> legs = SomeLegs(network, 7, random);
    Slice slice(whole, legs);
    Anneal({}, {1, 1, 5, /*keep_best=*/false}, random, Stop(), slice.tree());
    const double annealed = slice.tree().Cost({});
    Reconfigure({}, {}, random, Stop(), slice.tree());
    const double reconfigured = slice.tree().Cost({});
    EXPECT_LE(reconfigured, annealed * (1 + 1e-12));
    ImproveOverOrder({}, Stop(), slice.tree());
    // Levels were kept through all moves.
    const double kept = slice.tree().Cost({});
    slice.tree().SetLevels();
    EXPECT_DOUBLE_EQ(slice.tree().Cost({}), kept);
    EXPECT_LE(kept, reconfigured * (1 + 1e-12));
    slice.NestAgain();
    EXPECT_DOUBLE_EQ(slice.tree().Cost({}), Slice(slice.Whole(), legs).tree().Cost({}));
  }
}

TEST(Slice, FlatAllStepsRunInEverySlice) {
  const SearchNetwork network = testing::ChainOf(6, {4});
  const Tree whole(network, {{0, 1}, {6, 2}, {7, 3}, {8, 4}, {9, 5}});
  const std::vector<int> last = {network.leg_of(4)};
  Slice slice(whole, last);
  const double one = whole.On(network.Without(last)).Cost({});
  EXPECT_LT(slice.tree().Cost({}), 4 * one);
  slice.Flatten();
  EXPECT_EQ(slice.tree().Cost({}), 4 * one);
  slice.NestAgain();
  EXPECT_LT(slice.tree().Cost({}), 4 * one);
}

// The largest result of a slice is no larger for being made often.
TEST(Slice, RunsDoNotCountForTheLargestResult) {
  StepPrice largest;
  largest.objective.kind = Objective::Kind::kLargest;
  const SearchNetwork network = testing::ChainOf(3, {4});
  const Tree whole(network, {{0, 1}, {3, 2}});
  EXPECT_EQ(Slice(whole, {network.leg_of(0)}).tree().Cost(largest),
            whole.On(network.Without({network.leg_of(0)})).Cost(largest));
}

TEST(Slice, ExactTreesKnowRuns) {
  std::mt19937_64 shapes(13);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const int n = 4 + repeat % 3;
    const SearchNetwork network =
        testing::RandomSearchNetwork({n, 2 * n, 2 + repeat % 3, 5, {2, 3, 4}}, shapes);
    Random random(6, repeat);
    const Slice slice(Tree(network, testing::RandomPairs(n, shapes)), SomeLegs(network, 3, random));
    const SearchNetwork& on = slice.network();
    std::vector<const Word*> tensors;
    std::vector<int> levels, order;
    for (int t = 0; t < n; ++t) {
      tensors.push_back(on.legs(t));
      levels.push_back(on.level(t));
      order.push_back(t);
    }
    for (const StepPrice& price : testing::SomePrices()) {
      SubsetTable table(on);
      const double found = table.Solve(tensors, on.output(), price, kInfinite, Stop(), levels);
      EXPECT_DOUBLE_EQ(found, testing::LeastCostOfAll(on, price));
      EXPECT_NEAR(Tree(on, table.Pairs()).Cost(price), found, 1e-9 * found);
      const auto pairs = BestOverOrder(on, order, price, Stop());
      ASSERT_TRUE(pairs.has_value());
      const double least = testing::LeastCostOverOrder(on, order, price);
      EXPECT_NEAR(Tree(on, *pairs).Cost(price), least, 1e-9 * least);
    }
  }
}

TEST(SlicePlainly, MeetsTheLimitForResultsOfAnySize) {
  // Results of up to 2^1600 elements, beyond the range of a double.
  const SearchNetwork network = testing::LatticeOf(40, 40);
  Pairs pairs;
  std::vector<int> order;  // the black fields first, then the white ones
  for (const int colour : {0, 1}) {
    for (int t = 0; t < 1600; ++t) {
      if ((t / 40 + t % 40) % 2 == colour) order.push_back(t);
    }
  }
  pairs.emplace_back(order[0], order[1]);
  for (int t = 2; t < 1600; ++t) pairs.emplace_back(1600 + t - 2, order[t]);
  const Tree tree(network, pairs);
  ASSERT_TRUE(std::isinf(tree.Largest()));
  std::vector<int> sliced = {network.leg_of(0)};
  ASSERT_TRUE(SlicePlainly({.largest_elements = 1 << 10}, tree, sliced));
  EXPECT_LE(tree.On(network.Without(sliced)).Largest(), 1 << 10);
  EXPECT_EQ(sliced.front(), network.leg_of(0));
  std::sort(sliced.begin(), sliced.end());
  EXPECT_EQ(std::unique(sliced.begin(), sliced.end()), sliced.end());
  CancelToken cancel;
  cancel.Cancel();
  EXPECT_FALSE(SlicePlainly({.largest_elements = 8, .stop = Stop({}, &cancel)}, tree, sliced));
}

TEST(SlicePlainly, LeavesTheOutputUnlessAllowed) {
  const SearchNetwork network({{0, 1}, {1, 2}}, {0, 2}, {4, 8, 4});
  const Tree tree(network, {{0, 1}});
  std::vector<int> sliced;
  EXPECT_FALSE(SlicePlainly({.largest_elements = 4}, tree, sliced));
  sliced.clear();
  EXPECT_TRUE(SlicePlainly({.largest_elements = 4, .allow_output = true}, tree, sliced));
  EXPECT_EQ(sliced.size(), 1u);
}

// Without the trees that a search would need, too large to be made.
TEST(PlanScore, InSecondsOfAChainOfManyTensors) {
  Network network;
  for (int t = 0; t < 20000; ++t) {
    network.inputs.push_back({"i" + std::to_string(t), "i" + std::to_string(t + 1)});
  }
  network.output = {"i0", "i20000"};
  for (int i = 0; i <= 20000; ++i) network.sizes["i" + std::to_string(i)] = 2;
  const contraction::Expression expression = ExpressionOf(network);
  StepTimes times;
  times.step = 1;
  times.multiply_add = 0.125;
  const Objective seconds{Objective::Kind::kSeconds, 1, 64, &times};
  const Plan plan = {GreedyPath(expression), {}};
  EXPECT_EQ(PlanScore(expression, seconds, plan), 19999 * (1 + 8 * 0.125));
}

// A tree and a path tell the same seconds, slices and their runs included.
TEST(PlanScore, InSecondsIsThatOfTheTree) {
  std::mt19937_64 random(15);
  StepTimes times;
  times.step = 3;
  times.multiply_add = 2;
  times.near_read = 5;
  times.near_write = 7;
  times.near_elements = 1e9;
  const Objective seconds{Objective::Kind::kSeconds, 1, 64, &times};
  for (int repeat = 0; repeat < 100; ++repeat) {
    const contraction::Expression expression =
        ExpressionOf(testing::Reduced(testing::RandomNetwork(random)));
    const SearchNetwork network = SearchNetworkOf(expression);
    const contraction::Path path = testing::RandomPath(expression.inputs.size(), random);
    std::vector<int> sliced = testing::RandomSliced(expression, random);
    while (sliced.size() > 1) sliced.pop_back();
    std::vector<int> legs;
    for (const int index : sliced) legs.push_back(network.leg_of(index));
    EXPECT_EQ(PlanScore(expression, seconds, {path, sliced}),
              Slice(Tree(network, path.pairs), legs).tree().Cost({seconds}));
  }
}

// A plan's score is what the engine runs, less than all steps in all slices.
TEST(Search, ChargesSlicedStepsAsOftenAsTheyRun) {
  const auto file = ReadNetworkFile(testing::TestPath("data/networks/peps_norm_6x6_D4.json"));
  ASSERT_TRUE(file.ok()) << file.status();
  const contraction::Expression expression = ExpressionOf(file->network);
  SearchOptions options;
  options.objective.read_write_weight = 0;
  options.max_trials = 8;
  options.target_elements = 1 << 20;
  const auto found = Search(expression, options, nullptr, nullptr);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto& [path, sliced] = found->plan;
  EXPECT_EQ(found->score, ComputeExecutedWork(expression, path, sliced).flops);
  EXPECT_LT(found->score, 0.9 * ComputeCost(expression, path, sliced).flops);
}

// Where very many legs are sliced, most trials are made for arithmetic alone, but all are scored by
// the objective.
TEST(Trial, OfVeryManySlicesIsMadeForArithmetic) {
  const SearchNetwork network = testing::LatticeOf(12, 12);
  TrialOptions weighted;
  weighted.largest_elements = 4;
  weighted.methods = Portfolio();
  weighted.sweeps = 20;
  TrialOptions flops = weighted;
  flops.objective = Flops().objective;
  const Stop never({}, nullptr);
  const Candidate best = RunTrial(network, weighted, 1, 0, nullptr, never);
  ASSERT_GE(best.sliced.size(), 50u);
  for (const int64_t trial : {2, 4, 6}) {
    const Candidate found = RunTrial(network, weighted, 1, trial, &best, never);
    const Slice slice(Tree(network, found.pairs), found.sliced);
    EXPECT_DOUBLE_EQ(found.score, slice.tree().Cost({weighted.objective, kInfinite}));
    const Candidate arithmetic = RunTrial(network, flops, 1, trial, &best, never);
    EXPECT_EQ(found.pairs == arithmetic.pairs, trial < 6);
  }
  Candidate few = best;
  few.sliced.resize(10);
  EXPECT_NE(RunTrial(network, weighted, 1, 2, &few, never).pairs,
            RunTrial(network, flops, 1, 2, &few, never).pairs);
}

}  // namespace
}  // namespace tenon::planner
