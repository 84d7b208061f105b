// Networks, trees and oracles for the tests of this room.

#ifndef TENON_TESTS_BACKENDS_PLANNER_PLANNER_NETWORKS_H_
#define TENON_TESTS_BACKENDS_PLANNER_PLANNER_NETWORKS_H_

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/contraction/expression.h"
#include "backends/core/network.h"
#include "backends/planner/tree.h"

namespace tenon::testing {

// The distinct indices of an expression's operands and the rest of it.
planner::SearchNetwork SearchNetworkOf(const contraction::Expression& expression);

// Operands without repeats and without indices of their own (what those cost is the same in every
// tree), and no empty index.
Network Reduced(Network network);

// Tensors joined by legs of these sizes (one after the other, again from the first).
planner::SearchNetwork FromEdges(int tensors, const std::vector<std::pair<int, int>>& edges,
                                 const std::vector<int64_t>& sizes = {2});
planner::SearchNetwork ChainOf(int tensors, const std::vector<int64_t>& sizes = {2});
planner::SearchNetwork LatticeOf(int width, int height, const std::vector<int64_t>& sizes = {2});
// Every pair of tensors shares a leg.
planner::SearchNetwork CompleteOf(int tensors, const std::vector<int64_t>& sizes = {2});
// One leg on all tensors, and one of its own in the output on every tenth.
planner::SearchNetwork StarOf(int tensors);

struct RandomShape {
  int tensors = 6;
  int indices = 9;
  int most_holders = 2;  // of an index: 2 makes a graph
  int one_output_in = 5;
  std::vector<int64_t> sizes = {2, 3, 4};
};
// Every index has two holders at least, or one and the output. May be disconnected.
planner::SearchNetwork RandomSearchNetwork(const RandomShape& shape, std::mt19937_64& random);

planner::Pairs RandomPairs(int tensors, std::mt19937_64& random);

// Whether the pairs are a complete tree in SSA form.
bool IsCompleteTree(const planner::Pairs& pairs, int tensors);

// The legs of every node by their definition: those of tensors below that a tensor elsewhere or
// the output holds.
std::vector<std::vector<bool>> LegsByDefinition(const planner::SearchNetwork& network,
                                                const planner::Pairs& pairs);
double CostByDefinition(const planner::SearchNetwork& network, const planner::Pairs& pairs,
                        const planner::StepPrice& price);

// The least cost over all trees, one by one. At most 7 tensors.
double LeastCostOfAll(const planner::SearchNetwork& network, const planner::StepPrice& price);
// Among trees that only join tensors which share a leg, by a table over all subsets.
double LeastCostConnected(const planner::SearchNetwork& network, const planner::StepPrice& price);
// Among trees whose leaves stand in this order.
double LeastCostOverOrder(const planner::SearchNetwork& network, const std::vector<int>& order,
                          const planner::StepPrice& price);

// Prices of several kinds, with and without a limit of the largest result.
std::vector<planner::StepPrice> SomePrices();

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_PLANNER_PLANNER_NETWORKS_H_
