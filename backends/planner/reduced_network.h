// What is left of a network to search once it is simplified and its small parts are solved.

#ifndef TENON_BACKENDS_PLANNER_REDUCED_NETWORK_H_
#define TENON_BACKENDS_PLANNER_REDUCED_NETWORK_H_

#include <vector>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/planner/objective.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

// Immutable.
class ReducedNetwork {
 public:
  struct Options {
    bool simplify = true;
    // Parts of a few tensors are replaced by their results, along their best trees, where these
    // keep within `largest_elements`.
    bool solve_small_parts = true;
    Objective objective;
    double largest_elements = 0;
  };
  ReducedNetwork(const contraction::Expression& expression, const Options& options);

  // Whether trees over what is left would take too much memory to be searched; then network() has
  // no tensors.
  bool too_large() const { return ids_.size() != static_cast<size_t>(network_.tensors()); }
  // Sets of distinct indices of the expression, at least one. Their indices without values count
  // with size 1.
  const SearchNetwork& network() const { return network_; }
  // The path over the operands for a tree over the tensors of network().
  contraction::Path PathOf(const Pairs& pairs) const;

 private:
  struct Parts {
    Pairs prefix;
    std::vector<std::vector<int>> tensors;
    std::vector<int> ids;
  };
  static Parts Reduce(const contraction::Expression& expression, const Options& options);
  ReducedNetwork(const contraction::Expression& expression, Parts parts);

  int operands_;
  Pairs prefix_;
  std::vector<int> ids_;  // SSA ids of the tensors
  SearchNetwork network_;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_REDUCED_NETWORK_H_
