// What all searches stand on: networks as sets of legs, trees, random steps that keep them true.

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>

#include "backends/contraction/path.h"
#include "backends/planner/annealing.h"
#include "backends/planner/random_greedy.h"
#include "backends/planner/reconfigure.h"
#include "backends/planner/subset_table.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/backends/planner/planner_networks.h"

namespace tenon::planner {
namespace {

using testing::ExpressionOf;
using testing::IsCompleteTree;
using testing::LegsByDefinition;
using testing::NetworkOf;
using testing::SearchNetworkOf;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

StepPrice Flops() {
  StepPrice price;
  price.objective.read_write_weight = 0;
  return price;
}

// The legs and sizes that a tree keeps are those of its pairs.
void ExpectTrue(const Tree& tree) {
  const SearchNetwork& network = tree.network();
  const Pairs pairs = tree.ToPairs();
  ASSERT_TRUE(IsCompleteTree(pairs, tree.leaves()));
  const std::vector<std::vector<bool>> legs = LegsByDefinition(network, pairs);
  // A node is known by the tensors below.
  std::vector<std::set<int>> below(tree.nodes()), below_pair(tree.nodes());
  std::map<std::set<int>, int> node_of;
  for (int t = 0; t < tree.leaves(); ++t) below[t] = below_pair[t] = {t};
  const auto joined = [](std::set<int> a, const std::set<int>& b) {
    a.insert(b.begin(), b.end());
    return a;
  };
  for (const int node : tree.PostOrder()) {
    below[node] = joined(below[tree.left(node)], below[tree.right(node)]);
    node_of[below[node]] = node;
    EXPECT_EQ(tree.parent(tree.left(node)), node);
    EXPECT_EQ(tree.parent(tree.right(node)), node);
  }
  for (size_t s = 0; s < pairs.size(); ++s) {
    const int id = tree.leaves() + static_cast<int>(s);
    below_pair[id] = joined(below_pair[pairs[s].first], below_pair[pairs[s].second]);
    ASSERT_TRUE(node_of.contains(below_pair[id]));
    const int node = node_of[below_pair[id]];
    double size = 1, joint = 1;
    for (int leg = 0; leg < network.leg_positions(); ++leg) {
      EXPECT_EQ(HasLeg(tree.legs(node), leg), legs[id][leg]);
      if (legs[id][leg]) size *= network.leg_size(leg);
      if (legs[pairs[s].first][leg] || legs[pairs[s].second][leg]) joint *= network.leg_size(leg);
    }
    EXPECT_EQ(tree.size(node), size);
    EXPECT_EQ(tree.joint(node), joint);
  }
}

TEST(SearchNetwork, GivesEqualSizesWordsOfTheirOwn) {
  // Index 0 is private, 1 a hyperedge of 5, 2 an open index of one tensor, 3 of two, 4 .. of
  // size 2.
  std::vector<std::vector<int>> tensors = {{0, 1, 2}, {1, 3}, {1, 3}};
  std::vector<int64_t> sizes = {9, 5, 3, 5};
  for (int index = 4; index < 74; ++index) {
    tensors[index % 3].push_back(index);
    tensors[(index + 1) % 3].push_back(index);
    sizes.push_back(2);
  }
  const SearchNetwork network(tensors, {2, 3}, sizes);
  EXPECT_EQ(network.tensors(), 3);
  EXPECT_EQ(network.words(), 1 + 1 + 2);
  EXPECT_FALSE(network.is_graph());
  EXPECT_EQ(network.leg_of(0), -1);
  for (int index = 1; index < 74; ++index) {
    const int leg = network.leg_of(index);
    ASSERT_GE(leg, 0);
    EXPECT_EQ(network.index_of(leg), index);
    EXPECT_EQ(network.leg_size(leg), sizes[index]);
    EXPECT_EQ(HasLeg(network.output(), leg), index == 2 || index == 3);
  }
  EXPECT_EQ(network.holders(network.leg_of(1)), 3);
  EXPECT_EQ(network.holders(network.leg_of(2)), 2);
  EXPECT_EQ(network.holders(network.leg_of(3)), 3);
  for (int t = 0; t < 3; ++t) {
    double size = 1;
    for (const int index : tensors[t]) size *= index == 0 ? 1 : static_cast<double>(sizes[index]);
    EXPECT_EQ(network.SizeOf(network.legs(t)), size);
  }
  EXPECT_EQ(network.SizeOf(network.output()), 15);
  EXPECT_EQ(network.SizeOfUnion(network.legs(0), network.legs(1)), 5.0 * 3 * 5 * 0x1p70);
  const SearchNetwork slice = network.Without({network.leg_of(1), network.leg_of(2)});
  EXPECT_EQ(slice.SizeOf(slice.output()), 5);
  EXPECT_EQ(slice.SizeOf(slice.legs(0)) * 15, network.SizeOf(network.legs(0)));
}

TEST(SearchNetwork, KnowsGraphs) {
  EXPECT_TRUE(SearchNetwork({{0}, {0, 1}}, {1}, {2, 2}).is_graph());
  EXPECT_FALSE(SearchNetwork({{0}, {0, 1}}, {0, 1}, {2, 2}).is_graph());
  EXPECT_FALSE(SearchNetwork({{0}, {0}, {0}}, {}, {2}).is_graph());
}

TEST(Tree, CostsWhatThePathCosts) {
  std::mt19937_64 random(1);
  StepPrice traffic;
  traffic.objective = {Objective::Kind::kWeighted, 0, 1, nullptr};
  for (int repeat = 0; repeat < 300; ++repeat) {
    const contraction::Expression expression =
        ExpressionOf(testing::Reduced(testing::RandomNetwork(random)));
    const SearchNetwork network = SearchNetworkOf(expression);
    const contraction::Path path = testing::RandomPath(expression.inputs.size(), random);
    const contraction::PathCost cost = contraction::ComputeCost(expression, path, {});
    const Tree tree(network, path.pairs);
    EXPECT_EQ(tree.Cost(Flops()), cost.flops);
    EXPECT_EQ(tree.Cost(traffic), cost.read_write);
    EXPECT_EQ(tree.Cost({}), cost.flops + 64 * cost.read_write);
    EXPECT_EQ(tree.Largest(), cost.max_size);
    // A slice costs its part.
    const std::vector<int> sliced = testing::RandomSliced(expression, random);
    std::vector<int> legs;
    for (const int index : sliced) legs.push_back(network.leg_of(index));
    const SearchNetwork slice = network.Without(legs);
    const contraction::PathCost sliced_cost = contraction::ComputeCost(expression, path, sliced);
    EXPECT_EQ(tree.On(slice).Cost({}) * sliced_cost.slices,
              sliced_cost.flops + 64 * sliced_cost.read_write);
  }
}

TEST(Tree, LegsFollowTheDefinition) {
  std::mt19937_64 random(2);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const int n = 1 + repeat % 14;
    const SearchNetwork network =
        testing::RandomSearchNetwork({n, 2 * n, 2 + repeat % 6, 4, {1, 2, 3, 5}}, random);
    ExpectTrue(Tree(network, testing::RandomPairs(n, random)));
  }
}

TEST(Tree, GoldenFigures) {
  StepPrice traffic;
  traffic.objective = {Objective::Kind::kWeighted, 0, 1, nullptr};
  const SearchNetwork chain = SearchNetworkOf(
      ExpressionOf(NetworkOf({"ab", "bc", "cd"}, "ad", {{"a", 2}, {"b", 4}, {"c", 8}, {"d", 3}})));
  const Tree tree(chain, {{1, 2}, {0, 3}});
  EXPECT_EQ(tree.Cost(Flops()), 120);
  EXPECT_EQ(tree.Cost(traffic), 94);
  EXPECT_EQ(tree.Cost({}), 6136);
  const SearchNetwork dot = SearchNetworkOf(ExpressionOf(NetworkOf({"a", "a"}, "", {{"a", 7}})));
  EXPECT_EQ(Tree(dot, {{0, 1}}).Cost({}), 967);
  const SearchNetwork vectors = SearchNetworkOf(ExpressionOf(
      NetworkOf({"a", "b", "c", "d"}, "abcd", {{"a", 2}, {"b", 2}, {"c", 3}, {"d", 3}})));
  EXPECT_EQ(Tree(vectors, {{0, 1}, {2, 3}, {4, 5}}).Largest(), 36);
}

TEST(Objective, WeightsOfZeroTakeNoInfinity) {
  const StepSizes sizes = {1, kInfinite, 1, 8};
  EXPECT_EQ(Flops()(sizes), 8);
  StepPrice traffic;
  traffic.objective = {Objective::Kind::kWeighted, 0, 1, nullptr};
  EXPECT_EQ(traffic({1, 2, 3, kInfinite}), 6);
}

TEST(SubsetTable, GivesSomeTreeWhereNoneIsWanted) {
  const SearchNetwork network = testing::CompleteOf(9);
  std::vector<const Word*> tensors;
  for (int t = 0; t < 9; ++t) tensors.push_back(network.legs(t));
  SubsetTable table(network);
  EXPECT_EQ(table.Solve(tensors, network.output(), {}, 1), kInfinite);
  EXPECT_TRUE(IsCompleteTree(table.Pairs(), 9));
  EXPECT_LT(table.Solve(tensors, network.output(), {}, kInfinite), kInfinite);
  EXPECT_TRUE(IsCompleteTree(table.Pairs(), 9));
}

std::vector<SearchNetwork> SomeNetworks() {
  std::mt19937_64 random(3);
  std::vector<SearchNetwork> networks;
  for (int repeat = 0; repeat < 12; ++repeat) {
    const int n = repeat < 4 ? 1 + repeat : 6 + 2 * repeat;
    networks.push_back(
        testing::RandomSearchNetwork({n, 2 * n, 2 + repeat % 4, 6, {2, 3, 4}}, random));
  }
  networks.push_back(testing::StarOf(20));
  networks.push_back(testing::LatticeOf(5, 5));
  return networks;
}

TEST(RandomGreedy, MakesCompleteTrees) {
  for (const SearchNetwork& network : SomeNetworks()) {
    for (const double temperature : {0.0, 0.5}) {
      Random random(4, 0), same(4, 0);
      const Pairs pairs = RandomGreedy(network, {1, temperature}, random);
      EXPECT_TRUE(IsCompleteTree(pairs, network.tensors()));
      EXPECT_EQ(pairs, RandomGreedy(network, {1, temperature}, same));
    }
  }
}

TEST(Anneal, KeepsTheTreeTrueAndNeverWorse) {
  for (const SearchNetwork& network : SomeNetworks()) {
    for (const StepPrice& price : testing::SomePrices()) {
      Random random(5, 0), same(5, 0);
      Tree tree(network, RandomGreedy(network, {1, 0.5}, random));
      Tree again(network, RandomGreedy(network, {1, 0.5}, same));
      const double before = tree.Cost(price);
      Anneal(price, {1, 0.05, 40}, random, Stop(), tree);
      EXPECT_LE(tree.Cost(price), before);
      ExpectTrue(tree);
      Anneal(price, {1, 0.05, 40}, same, Stop(), again);
      EXPECT_EQ(tree.ToPairs(), again.ToPairs());
    }
  }
}

TEST(Reconfigure, KeepsTheTreeTrueAndNeverWorse) {
  for (const SearchNetwork& network : SomeNetworks()) {
    for (const StepPrice& price : testing::SomePrices()) {
      Random random(6, 0), same(6, 0);
      std::mt19937_64 pairs_random(7);
      const Pairs pairs = testing::RandomPairs(network.tensors(), pairs_random);
      Tree tree(network, pairs), again(network, pairs);
      const double before = tree.Cost(price);
      Reconfigure(price, {6, 5, 0.5}, random, Stop(), tree);
      EXPECT_LE(tree.Cost(price), before * (1 + 1e-12));
      ExpectTrue(tree);
      Reconfigure(price, {6, 5, 0.5}, same, Stop(), again);
      EXPECT_EQ(tree.ToPairs(), again.ToPairs());
    }
  }
}

// Neither time nor stack grows out of bounds: left-deep trees are as deep as they are large.
TEST(Tree, LongChainsAndWideStars) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<SearchNetwork> networks = {testing::ChainOf(5000), testing::StarOf(500)};
  for (const SearchNetwork& network : networks) {
    const int n = network.tensors();
    Pairs pairs = {{0, 1}};
    for (int t = 2; t < n; ++t) pairs.emplace_back(n + t - 2, t);
    Tree tree(network, pairs);
    EXPECT_EQ(tree.ToPairs(), pairs);
    Random random(8, 0);
    const double before = tree.Cost({});
    Anneal({}, {1, 0.05, 3}, random, Stop(), tree);
    Reconfigure({}, {4, 1, 0}, random, Stop(), tree);
    EXPECT_LE(tree.Cost({}), before * (1 + 1e-12));
    EXPECT_TRUE(IsCompleteTree(tree.ToPairs(), n));
    EXPECT_TRUE(IsCompleteTree(RandomGreedy(network, {1, 0.1}, random), n));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace tenon::planner
