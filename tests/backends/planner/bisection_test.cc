#include "backends/planner/bisection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "backends/planner/hypergraph_cut.h"
#include "backends/planner/random_greedy.h"
#include "tests/backends/planner/planner_networks.h"

namespace tenon::planner {
namespace {

using testing::IsCompleteTree;

Hypergraph GraphOf(int vertices, const std::vector<std::vector<int>>& nets) {
  Hypergraph graph;
  graph.weight.assign(vertices, 1);
  graph.pull.assign(vertices, 0);
  for (const std::vector<int>& net : nets) {
    graph.pins.insert(graph.pins.end(), net.begin(), net.end());
    graph.net_begin.push_back(static_cast<int>(graph.pins.size()));
    graph.net_weight.push_back(1 + static_cast<double>(graph.net_weight.size() % 3));
  }
  return graph;
}

Hypergraph RandomGraph(int vertices, int nets, int most_pins, std::mt19937_64& random) {
  std::vector<std::vector<int>> pins(nets);
  for (std::vector<int>& net : pins) {
    while (net.size() < 2) {
      net.clear();
      for (int p = 0; p < most_pins; ++p) net.push_back(static_cast<int>(random() % vertices));
      std::sort(net.begin(), net.end());
      net.erase(std::unique(net.begin(), net.end()), net.end());
    }
  }
  return GraphOf(vertices, pins);
}

double CostOf(const Hypergraph& graph, const std::vector<int>& sides) {
  double cost = 0;
  for (int e = 0; e < graph.nets(); ++e) {
    bool on[2] = {false, false};
    for (int p = graph.net_begin[e]; p < graph.net_begin[e + 1]; ++p) {
      on[sides[graph.pins[p]]] = true;
    }
    if (on[0] && on[1]) cost += graph.net_weight[e];
  }
  for (int v = 0; v < graph.vertices(); ++v) cost += sides[v] == 0 ? graph.pull[v] : 0;
  return cost;
}

TEST(CutInTwo, KeepsTheBalance) {
  std::mt19937_64 seeds(1);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const int vertices = 2 + repeat * 3;
    const Hypergraph graph = RandomGraph(vertices, 2 * vertices, 2 + repeat % 4, seeds);
    const double imbalance = (repeat % 10) / 10.0;
    Random random(repeat, 0);
    const std::vector<int> sides = CutInTwo(graph, imbalance, random);
    const auto ones = static_cast<int>(std::count(sides.begin(), sides.end(), 1));
    const int larger = std::max(ones, vertices - ones);
    EXPECT_LT(larger, vertices);
    EXPECT_LE(larger, std::max<int>((1 + imbalance) / 2 * vertices, (vertices + 1) / 2));
  }
}

TEST(CutInTwo, FindsTheBestCutOfSmallGraphs) {
  std::mt19937_64 seeds(2);
  int best_found = 0;
  constexpr int kGraphs = 40, kVertices = 12;
  for (int repeat = 0; repeat < kGraphs; ++repeat) {
    Hypergraph graph = RandomGraph(kVertices, 20, 2 + repeat % 3, seeds);
    for (double& pull : graph.pull) pull = static_cast<double>(seeds() % 3);
    double best = 1e300;
    for (uint32_t set = 1; set + 1 < 1u << kVertices; ++set) {
      if (std::abs(2 * std::popcount(set) - kVertices) > 4) continue;
      std::vector<int> sides(kVertices);
      for (int v = 0; v < kVertices; ++v) sides[v] = static_cast<int>(set >> v & 1);
      best = std::min(best, CostOf(graph, sides));
    }
    Random random(repeat, 0);
    const double found = CostOf(graph, CutInTwo(graph, 0.34, random));
    EXPECT_GE(found, best);
    best_found += found == best;
  }
  EXPECT_GE(best_found, kGraphs * 3 / 4);
}

TEST(CutInTwo, CutsALatticeAcross) {
  std::vector<std::vector<int>> nets;
  for (int t = 0; t < 40 * 8; ++t) {
    if (t % 40 > 0) nets.push_back({t - 1, t});
    if (t >= 40) nets.push_back({t - 40, t});
  }
  Hypergraph graph = GraphOf(40 * 8, nets);
  std::fill(graph.net_weight.begin(), graph.net_weight.end(), 1);
  double best = 1e300;
  for (int trial = 0; trial < 4; ++trial) {
    Random random(3, trial);
    best = std::min(best, CostOf(graph, CutInTwo(graph, 0.1, random)));
  }
  EXPECT_LE(best, 8);
}

TEST(Bisect, MakesCompleteTreesOfAnything) {
  std::mt19937_64 seeds(4);
  for (int repeat = 0; repeat < 120; ++repeat) {
    const int n = 1 + repeat;
    const SearchNetwork network = testing::RandomSearchNetwork(
        {n, static_cast<int>(seeds() % (2 * n + 1)), 2 + repeat % 5, 6, {1, 2, 3}}, seeds);
    Random random(5, repeat);
    BisectionChoice choice = RandomBisectionChoice({}, random);
    choice.cutoff = 2 + repeat % 9;
    ASSERT_TRUE(IsCompleteTree(Bisect(network, choice, random, Stop()), n)) << repeat;
    const Stop stop(Stop::TimePoint::min(), nullptr);
    ASSERT_TRUE(IsCompleteTree(Bisect(network, choice, random, stop), n)) << repeat;
  }
  Random random(6, 0);
  EXPECT_TRUE(Bisect(SearchNetwork({}, {}, {}), {}, random, Stop()).empty());
  // No finite tree below the cutoff.
  const SearchNetwork huge = testing::CompleteOf(12, {int64_t{1} << 62});
  EXPECT_TRUE(IsCompleteTree(Bisect(huge, {}, random, Stop()), 12));
}

TEST(Bisect, SameSeedSameTree) {
  const SearchNetwork lattice = testing::LatticeOf(15, 15, {2, 3});
  const auto tree = [&](int seed) {
    Random random(seed, 0);
    return Bisect(lattice, RandomBisectionChoice({}, random), random, Stop());
  };
  EXPECT_EQ(tree(1), tree(1));
  EXPECT_NE(tree(1), tree(2));
}

TEST(Bisect, FindsNarrowTreesOfLattices) {
  const SearchNetwork lattice = testing::LatticeOf(30, 6);
  double least = 1e300;
  for (int trial = 0; trial < 8; ++trial) {
    Random random(7, trial);
    const BisectionChoice choice = RandomBisectionChoice({}, random);
    least = std::min(least, Tree(lattice, Bisect(lattice, choice, random, Stop())).Largest());
  }
  EXPECT_LE(least, 1 << 13);  // a piece between two cuts, and a little
}

TEST(Bisect, LongChainsAndWideStars) {
  const auto start = std::chrono::steady_clock::now();
  const SearchNetwork chain = testing::ChainOf(5000);
  Random random(8, 0);
  const Pairs pairs = Bisect(chain, {}, random, Stop());
  EXPECT_TRUE(IsCompleteTree(pairs, 5000));
  EXPECT_LE(Tree(chain, pairs).Largest(), 16);
  EXPECT_TRUE(IsCompleteTree(Bisect(testing::StarOf(500), {}, random, Stop()), 500));
  const SearchNetwork loose(std::vector<std::vector<int>>(5000), {}, {});
  EXPECT_TRUE(IsCompleteTree(Bisect(loose, {}, random, Stop()), 5000));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace tenon::planner
