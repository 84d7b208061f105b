// The best tree over a given order of the tensors, and orders to give.
//
// A tree whose leaves stand in this order from left to right makes intervals of it, so that the
// best one follows from dynamic programming over intervals (as for chains of matrices).

#ifndef TENON_BACKENDS_PLANNER_LEAF_ORDER_H_
#define TENON_BACKENDS_PLANNER_LEAF_ORDER_H_

#include <optional>
#include <vector>

#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

// More are refused: memory is 36 bytes for each pair of leaves, a third of a GiB for so many.
inline constexpr int kMostOrderedLeaves = 3000;

// The tensors of a tree from left to right.
std::vector<int> LeavesOf(const Tree& tree);

// All tensors in reverse Cuthill-McKee order of the graph of tensors that share a leg, so that
// those that do stand close together (Cuthill and McKee, Proc. ACM 24, 157, 1969; George, 1971).
std::vector<int> CuthillMcKeeOrder(const SearchNetwork& network);

// The pairs of a tree of least cost, but for rounding, among those over `order`, a permutation of
// the tensors. Time n^3 / 6. Nothing when there are more tensors than kMostOrderedLeaves, when
// `stop` said so, or when every such tree has an infinite cost.
std::optional<Pairs> BestOverOrder(const SearchNetwork& network, const std::vector<int>& order,
                                   const StepPrice& price, const Stop& stop);

// Replaces the tree by the best over the order of its leaves where that costs less; says whether it
// did.
bool ImproveOverOrder(const StepPrice& price, const Stop& stop, Tree& tree);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_LEAF_ORDER_H_
