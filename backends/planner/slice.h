// A tree within one slice, where steps run as often as the engine runs them over all slices.

#ifndef TENON_BACKENDS_PLANNER_SLICE_H_
#define TENON_BACKENDS_PLANNER_SLICE_H_

#include <cstdint>
#include <vector>

#include "backends/planner/search_network.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

// The network without the sliced legs, and the tree over it. The legs are nested loops: those of
// the output, then the summed ones in an order that redoes little work (the engine's own may redo
// less).
class Slice {
 public:
  // `whole` is a tree over the network with all legs, which must outlive this.
  Slice(const Tree& whole, std::vector<int> sliced);
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  const SearchNetwork& network() const { return network_; }
  const Tree& tree() const { return tree_; }
  // To be improved in place; the loops stay nested as they are until NestAgain.
  Tree& tree() { return tree_; }
  void NestAgain();
  // All steps run in every slice: rougher, and easier to move about in.
  void Flatten();
  // The tree over the network with all legs.
  Tree Whole() const { return tree_.On(whole_); }

 private:
  const SearchNetwork& whole_;
  const std::vector<int> sliced_;
  SearchNetwork network_;
  Tree tree_;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_SLICE_H_
