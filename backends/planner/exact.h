// The optimal contraction tree of a small or sparse network.

#ifndef TENON_BACKENDS_PLANNER_EXACT_H_
#define TENON_BACKENDS_PLANNER_EXACT_H_

#include <cstdint>
#include <optional>

#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

struct ExactLimits {
  int64_t bytes = int64_t{256} << 20;  // of the tables, roughly
};

// Up to so many tensors all trees are considered, those that make outer products too.
inline constexpr int kMostAllTrees = 16;
// A connected part has at most so many tensors: a set of them is a word.
inline constexpr int kMostExactTensors = 64;

// The pairs of an optimal tree under any price that is not negative.
//
// Up to kMostAllTrees tensors no tree costs less, whatever it multiplies. Beyond, the connected
// parts of the network are solved apart and their results joined optimally; a part of up to
// kMostAllTrees tensors as above, and for a larger one the answer costs no more than any tree that
// joins only tensors which share a leg (it may use outer products, but need not use all that pay).
//
// Large parts grow over connected sets of tensors by number, where a set is dropped once it costs
// more than a tree that is known (the cost cap of Pfeifer, Haegeman, Verstraete, Phys. Rev. E 90,
// 033315, 2014). That takes milliseconds for chains and rings of 60 tensors and seconds for 20 that
// are all connected.
//
// Nothing, never a tree that may be improved, when `stop` said so, when the tables exceed the
// limits, when a part has more than kMostExactTensors or the network more than kMostAllTrees parts,
// and when every tree has an infinite cost. Deterministic but for `stop`.
std::optional<Pairs> ExactTree(const SearchNetwork& network, const StepPrice& price,
                               const ExactLimits& limits, const Stop& stop);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_EXACT_H_
