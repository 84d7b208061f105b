#include "backends/planner/leaf_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backends/planner/random_greedy.h"
#include "tests/backends/planner/planner_networks.h"

namespace tenon::planner {
namespace {

using testing::CostByDefinition;
using testing::IsCompleteTree;

bool IsPermutation(std::vector<int> order, int n) {
  std::sort(order.begin(), order.end());
  std::vector<int> all(n);
  std::iota(all.begin(), all.end(), 0);
  return order == all;
}

TEST(BestOverOrder, IsTheBestOfAllTreesOverTheOrder) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const int n = 1 + repeat % 9;
    const SearchNetwork network =
        testing::RandomSearchNetwork({n, 3 + repeat % 11, 2 + repeat % 4, 4, {2, 3, 4, 1}}, random);
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const StepPrice& price : testing::SomePrices()) {
      const auto pairs = BestOverOrder(network, order, price, Stop());
      ASSERT_TRUE(pairs.has_value());
      ASSERT_TRUE(IsCompleteTree(*pairs, n));
      EXPECT_EQ(LeavesOf(Tree(network, *pairs)), order);
      const double least = testing::LeastCostOverOrder(network, order, price);
      EXPECT_NEAR(CostByDefinition(network, *pairs, price), least, 1e-9 * least);
    }
  }
}

TEST(ImproveOverOrder, NeverCostsMoreAndKeepsTheOrder) {
  std::mt19937_64 random(2);
  int improved = 0;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const SearchNetwork network =
        testing::RandomSearchNetwork({30, 50, 2 + repeat % 3, 8, {2, 3}}, random);
    Tree tree(network, testing::RandomPairs(30, random));
    const std::vector<int> order = LeavesOf(tree);
    const double before = tree.Cost({});
    const bool better = ImproveOverOrder({}, Stop(), tree);
    EXPECT_EQ(tree.Cost({}) < before, better);
    EXPECT_LE(tree.Cost({}), before);
    EXPECT_EQ(LeavesOf(tree), order);
    improved += better;
    EXPECT_FALSE(ImproveOverOrder({}, Stop(), tree)) << "it is the best already";
  }
  EXPECT_GT(improved, 30);
}

TEST(CuthillMcKeeOrder, IsAPermutationOfSmallBandwidth) {
  std::mt19937_64 random(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const SearchNetwork network =
        testing::RandomSearchNetwork({25, 20, 2 + repeat % 3, 8, {2}}, random);
    EXPECT_TRUE(IsPermutation(CuthillMcKeeOrder(network), 25));
  }
  // A lattice in any numbering is as wide as its short side.
  const SearchNetwork lattice = testing::LatticeOf(20, 4);
  const std::vector<int> order = CuthillMcKeeOrder(lattice);
  ASSERT_TRUE(IsPermutation(order, 80));
  std::vector<int> place(80);
  for (int p = 0; p < 80; ++p) place[order[p]] = p;
  for (int t = 0; t + 20 < 80; ++t) EXPECT_LE(std::abs(place[t] - place[t + 20]), 5);
  const auto pairs = BestOverOrder(lattice, order, {}, Stop());
  EXPECT_LE(Tree(lattice, *pairs).Largest(), 64);
}

TEST(BestOverOrder, LongOrdersAreRefusedOrStopped) {
  const SearchNetwork chain = testing::ChainOf(kMostOrderedLeaves + 1);
  EXPECT_FALSE(BestOverOrder(chain, CuthillMcKeeOrder(chain), {}, Stop()).has_value());
  const SearchNetwork shorter = testing::ChainOf(1500);
  const Stop soon(std::chrono::steady_clock::now() + std::chrono::milliseconds(5), nullptr);
  EXPECT_FALSE(BestOverOrder(shorter, CuthillMcKeeOrder(shorter), {}, soon).has_value());
  const SearchNetwork star = testing::StarOf(300);
  EXPECT_TRUE(BestOverOrder(star, CuthillMcKeeOrder(star), {}, Stop()).has_value());
}

TEST(LeavesOf, AreFromLeftToRight) {
  const SearchNetwork chain = testing::ChainOf(4);
  EXPECT_EQ(LeavesOf(Tree(chain, {{2, 1}, {3, 0}, {5, 4}})), (std::vector<int>{3, 0, 2, 1}));
}

}  // namespace
}  // namespace tenon::planner
