// Optimal trees against all trees, one by one, and against golden figures.

#include "backends/planner/exact.h"

#include <gtest/gtest.h>

#include <chrono>

#include "backends/planner/annealing.h"
#include "backends/planner/connected_sets.h"
#include "backends/planner/random_greedy.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/backends/planner/planner_networks.h"

namespace tenon::planner {
namespace {

using testing::CompleteOf;
using testing::CostByDefinition;
using testing::ExpressionOf;
using testing::IsCompleteTree;
using testing::NetworkOf;
using testing::RandomShape;
using testing::SearchNetworkOf;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double ExactCost(const SearchNetwork& network, const StepPrice& price) {
  const auto pairs = ExactTree(network, price, {}, Stop());
  EXPECT_TRUE(pairs.has_value());
  if (!pairs.has_value()) return kInfinite;
  EXPECT_TRUE(IsCompleteTree(*pairs, network.tensors()));
  return CostByDefinition(network, *pairs, price);
}

// Of ConnectedSets by itself.
double ConnectedCost(const SearchNetwork& network, const StepPrice& price) {
  ConnectedSets sets(network, price, kInfinite, {int64_t{1} << 28, int64_t{1} << 40});
  if (sets.Solve(Stop()) != ConnectedSets::End::kFound) return kInfinite;
  EXPECT_TRUE(IsCompleteTree(sets.Emit(), network.tensors()));
  return CostByDefinition(network, sets.Emit(), price);
}

TEST(ExactTree, GoldenFigures) {
  const StepPrice score;
  StepPrice flops, traffic;
  flops.objective.read_write_weight = 0;
  traffic.objective = {Objective::Kind::kWeighted, 0, 1, nullptr};
  const SearchNetwork chain = SearchNetworkOf(
      ExpressionOf(NetworkOf({"ab", "bc", "cd"}, "ad", {{"a", 2}, {"b", 4}, {"c", 8}, {"d", 3}})));
  EXPECT_EQ(ExactCost(chain, score), 6136);
  const Tree best(chain, *ExactTree(chain, score, {}, Stop()));
  EXPECT_EQ(best.Cost(flops), 120);
  EXPECT_EQ(best.Cost(traffic), 94);
  EXPECT_EQ(best.Cost(score), 6136);
  const SearchNetwork vectors = SearchNetworkOf(ExpressionOf(
      NetworkOf({"a", "b", "c", "d"}, "abcd", {{"a", 2}, {"b", 2}, {"c", 3}, {"d", 3}})));
  EXPECT_EQ(ExactCost(vectors, score), 4528);
  const SearchNetwork dot = SearchNetworkOf(ExpressionOf(NetworkOf({"a", "a"}, "", {{"a", 7}})));
  EXPECT_EQ(ExactCost(dot, score), 967);
  EXPECT_EQ(ExactCost(dot, flops), 7);
  EXPECT_EQ(ExactCost(dot, traffic), 15);
}

TEST(ExactTree, IsTheBestOfAllTrees) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 60; ++repeat) {
    RandomShape shape;
    shape.tensors = 1 + repeat % 6;
    shape.indices = 2 + static_cast<int>(random() % 8);
    shape.most_holders = 2 + repeat % 3;
    const SearchNetwork network = testing::RandomSearchNetwork(shape, random);
    for (const StepPrice& price : testing::SomePrices()) {
      const double least = testing::LeastCostOfAll(network, price);
      EXPECT_NEAR(ExactCost(network, price), least, 1e-12 * least) << repeat;
    }
  }
}

TEST(ExactTree, IsTheBestOfAllTreesOfSevenTensors) {
  std::mt19937_64 random(2);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const SearchNetwork network =
        testing::RandomSearchNetwork({7, 9, 2 + repeat, 5, {2, 3, 5}}, random);
    const double least = testing::LeastCostOfAll(network, {});
    EXPECT_NEAR(ExactCost(network, {}), least, 1e-12 * least);
  }
}

TEST(ExactTree, UsesLegsOverSeveralWords) {
  std::mt19937_64 random(3);
  const SearchNetwork wide =
      testing::RandomSearchNetwork({5, 150, 3, 9, {1, 1, 1, 1, 1, 1, 1, 2, 3}}, random);
  EXPECT_GT(wide.words(), 2);
  const double least = testing::LeastCostOfAll(wide, {});
  EXPECT_NEAR(ExactCost(wide, {}), least, 1e-12 * least);
}

TEST(ConnectedSets, IsTheBestOfConnectedTrees) {
  std::mt19937_64 random(4);
  int found = 0;
  for (int repeat = 0; repeat < 80; ++repeat) {
    const RandomShape shape = {2 + repeat % 7, 5 + repeat % 9, 2 + repeat % 3, 5, {2, 3, 4}};
    const SearchNetwork network = testing::RandomSearchNetwork(shape, random);
    for (const StepPrice& price : testing::SomePrices()) {
      const double least = testing::LeastCostConnected(network, price);
      const double cost = ConnectedCost(network, price);
      if (least == kInfinite) {
        EXPECT_EQ(cost, kInfinite) << "disconnected";
      } else {
        ++found;
        EXPECT_NEAR(cost, least, 1e-12 * least) << repeat;
      }
    }
  }
  EXPECT_GT(found, 200);
}

TEST(ConnectedSets, FindsOnlyWhatCostsLess) {
  const SearchNetwork lattice = testing::LatticeOf(4, 3);
  const double least = ConnectedCost(lattice, {});
  const ConnectedSets::Limits limits = {int64_t{1} << 28, int64_t{1} << 40};
  EXPECT_EQ(ConnectedSets(lattice, {}, least, limits).Solve(Stop()),
            ConnectedSets::End::kNoneBelow);
  ConnectedSets above(lattice, {}, least * (1 + 1e-9), limits);
  EXPECT_EQ(above.Solve(Stop()), ConnectedSets::End::kFound);
  EXPECT_NEAR(CostByDefinition(lattice, above.Emit(), {}), least, 1e-9 * least);
  EXPECT_EQ(ConnectedSets(lattice, {}, kInfinite, {1000, 1 << 30}).Solve(Stop()),
            ConnectedSets::End::kGaveUp);
  EXPECT_EQ(ConnectedSets(lattice, {}, kInfinite, {1 << 30, 10}).Solve(Stop()),
            ConnectedSets::End::kGaveUp);
}

// Beyond the range of all trees: chains of matrices have a dynamic program of their own.
TEST(ExactTree, LongChains) {
  const std::vector<int64_t> sizes = {7, 2, 5, 3, 11, 4};
  for (const int n : {17, 40, 64}) {
    std::vector<int64_t> at;
    for (int e = 0; e < n - 1; ++e) at.push_back(sizes[e % sizes.size()]);
    const SearchNetwork chain = testing::ChainOf(n, sizes);
    const auto size = [&](int e) { return e < 0 || e >= n - 1 ? 1.0 : double(at[e]); };
    std::vector<std::vector<double>> least(n, std::vector<double>(n, 0));
    for (int length = 2; length <= n; ++length) {
      for (int i = 0; i + length <= n; ++i) {
        const int j = i + length - 1;
        least[i][j] = kInfinite;
        for (int k = i; k < j; ++k) {
          const double a = size(i - 1), b = size(k), c = size(j);
          const double cost = a * b * c + 64 * (a * b + b * c + a * c);
          least[i][j] = std::min(least[i][j], least[i][k] + least[k + 1][j] + cost);
        }
      }
    }
    EXPECT_LE(ExactCost(chain, {}), least[0][n - 1] * (1 + 1e-12));
  }
}

TEST(ExactTree, LatticesAndDenseNetworks) {
  // What annealing finds in many sweeps is not better.
  std::mt19937_64 seeds(6);
  std::vector<SearchNetwork> networks = {testing::LatticeOf(5, 4), testing::LatticeOf(9, 3),
                                         CompleteOf(17, {1, 2, 3})};
  networks.push_back(testing::RandomSearchNetwork({18, 26, 3, 8, {2, 3}}, seeds));
  for (const SearchNetwork& network : networks) {
    const double exact = ExactCost(network, {});
    for (int trial = 0; trial < 3; ++trial) {
      Random random(7, trial);
      Tree tree(network, RandomGreedy(network, {1, 0.5}, random));
      Anneal({}, {1, 0.05, 500}, random, Stop(), tree);
      EXPECT_GE(tree.Cost({}), exact * (1 - 1e-12));
    }
  }
}

TEST(ExactTree, DisconnectedParts) {
  // Two chains of ten with a leg to the output each, and a scalar.
  std::vector<std::vector<int>> tensors(21);
  for (int c = 0; c < 2; ++c) {
    for (int t = 0; t < 9; ++t) {
      tensors[10 * c + t].push_back(9 * c + t);
      tensors[10 * c + t + 1].push_back(9 * c + t);
    }
    tensors[10 * c].push_back(18 + c);
  }
  const SearchNetwork network(tensors, {18, 19}, std::vector<int64_t>(20, 3));
  const auto pairs = ExactTree(network, {}, {}, Stop());
  ASSERT_TRUE(pairs.has_value());
  EXPECT_TRUE(IsCompleteTree(*pairs, 21));
  EXPECT_EQ(Tree(network, *pairs).Largest(), 9);
  EXPECT_FALSE(ExactTree(SearchNetwork(std::vector<std::vector<int>>(17), {}, {}), {}, {}, Stop())
                   .has_value());
}

TEST(ExactTree, SaysThatItDidNotFinish) {
  const Stop stop(Stop::TimePoint::min(), nullptr);
  EXPECT_FALSE(ExactTree(CompleteOf(20), {}, {}, stop).has_value());
  EXPECT_FALSE(ExactTree(CompleteOf(12), {}, {}, stop).has_value());
  EXPECT_FALSE(ExactTree(testing::ChainOf(65), {}, {}, Stop()).has_value());
  EXPECT_FALSE(ExactTree(testing::LatticeOf(6, 6), {}, {10000}, Stop()).has_value());
  // Every tree costs more than can be told.
  EXPECT_FALSE(ExactTree(CompleteOf(8, {int64_t{1} << 62}), {}, {}, Stop()).has_value());
}

TEST(ExactTree, StopsInTime) {
  const auto start = std::chrono::steady_clock::now();
  const auto deadline = start + std::chrono::milliseconds(50);
  EXPECT_FALSE(ExactTree(CompleteOf(20), {}, {}, Stop(deadline, nullptr)).has_value());
  const SearchNetwork lattice = testing::LatticeOf(8, 8, {2, 3});
  EXPECT_FALSE(ExactTree(lattice, {}, {}, Stop(deadline, nullptr)).has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(ExactTree, NoAndOneTensor) {
  EXPECT_TRUE(ExactTree(SearchNetwork({}, {}, {}), {}, {}, Stop())->empty());
  EXPECT_TRUE(ExactTree(SearchNetwork({{0}}, {0}, {4}), {}, {}, Stop())->empty());
}

}  // namespace
}  // namespace tenon::planner
