// A binary contraction tree over a search network, with the legs and sizes of its nodes.

#ifndef TENON_BACKENDS_PLANNER_TREE_H_
#define TENON_BACKENDS_PLANNER_TREE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "backends/planner/objective.h"
#include "backends/planner/search_network.h"

namespace tenon::planner {

// Pairs in SSA form: inputs are 0 .. n-1, pair s makes n + s.
using Pairs = std::vector<std::pair<int, int>>;

// Nodes 0 .. n-1 are the tensors, n .. 2n-2 pairs in no particular order. The network must outlive
// it. Copies are independent.
class Tree {
 public:
  Tree(const SearchNetwork& network, const Pairs& pairs);

  // The same tree over the same tensors with other legs (a slice).
  Tree On(const SearchNetwork& network) const;

  const SearchNetwork& network() const { return *network_; }
  int leaves() const { return network_->tensors(); }
  int nodes() const { return static_cast<int>(left_.size()); }
  bool is_leaf(int node) const { return node < leaves(); }
  int root() const { return root_; }
  int left(int node) const { return left_[node]; }
  int right(int node) const { return right_[node]; }
  int parent(int node) const { return parent_[node]; }  // -1: the root
  const Word* legs(int node) const { return legs_.data() + int64_t{node} * network_->words(); }
  double size(int node) const { return sizes_[node]; }
  double joint(int node) const { return joints_[node]; }

  // Of the loops of the network.
  int level(int node) const { return levels_[node]; }

  StepSizes Step(int node) const {
    return {sizes_[left_[node]], sizes_[right_[node]], sizes_[node], joints_[node],
            network_->runs(levels_[node])};
  }
  // Sum over all steps.
  double Cost(const StepPrice& price) const;
  // Elements of the largest result; of the only tensor if there is one.
  double Largest() const;

  // Makes `left` and `right`, which must be free or below `node`, the children of `node`.
  void SetChildren(int node, int left, int right);
  // Gives a node its legs, sizes and level, from children that have theirs.
  void SetLegs(int node, const Word* legs);
  // After the loops of the network have changed.
  void SetLevels();

  // Node p with children c = (x y) and z becomes c = (x z) and y, where c then has these legs.
  void Rotate(int p, int c, int x, int y, int z, const Word* legs, double size, double joint_c,
              double joint_p);

  // Children before parents, the child of the larger subtree first.
  Pairs ToPairs() const;
  // Internal nodes, children before parents.
  std::vector<int> PostOrder() const;

 private:
  void ComputeAll();

  const SearchNetwork* network_;
  int root_ = 0;
  std::vector<int> left_, right_, parent_;
  std::vector<Word> legs_;
  std::vector<double> sizes_, joints_;
  std::vector<int> levels_;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_TREE_H_
