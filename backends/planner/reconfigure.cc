#include "backends/planner/reconfigure.h"

#include <algorithm>
#include <cmath>

#include "backends/planner/subset_table.h"

namespace tenon::planner {
namespace {

class Reconfigurer {
 public:
  Reconfigurer(const StepPrice& price, const ReconfigureOptions& options, Random& random,
               Tree& tree)
      : price_(price), options_(options), random_(random), tree_(tree), table_(tree.network()) {}

  // Whether the part under `root` was replaced.
  bool Improve(int root) {
    TakePart(root);
    if (part_leaves_.size() < 3) return false;
    double before = 0;
    for (const int node : part_nodes_) before += price_(tree_.Step(node));
    tensors_.clear();
    levels_.clear();
    for (const int leaf : part_leaves_) {
      tensors_.push_back(tree_.legs(leaf));
      levels_.push_back(tree_.level(leaf));
    }
    constexpr double kGain = 1 - 1e-9;  // less is rounding
    const double found =
        table_.Solve(tensors_, tree_.legs(root), price_, before * kGain, Stop(), levels_);
    if (!(found < before)) return false;
    Replace();
    return true;
  }

 private:
  // The part under `root`: its inner nodes, the root first, and its leaves.
  void TakePart(int root) {
    part_nodes_.assign(1, root);
    part_leaves_ = {tree_.left(root), tree_.right(root)};
    while (static_cast<int>(part_leaves_.size()) < options_.leaves) {
      int chosen = -1;
      double most = -1;
      for (size_t l = 0; l < part_leaves_.size(); ++l) {
        if (tree_.is_leaf(part_leaves_[l])) continue;
        double rank = std::log2(tree_.size(part_leaves_[l])) + 1;
        if (options_.randomness > 0) {
          rank = std::exp(std::log(rank + 1) + options_.randomness * random_.Gumbel());
        }
        if (rank > most) {
          most = rank;
          chosen = static_cast<int>(l);
        }
      }
      if (chosen < 0) return;
      const int node = part_leaves_[chosen];
      part_nodes_.push_back(node);
      part_leaves_[chosen] = tree_.left(node);
      part_leaves_.push_back(tree_.right(node));
    }
  }

  void Replace() {
    const auto n = static_cast<int>(part_leaves_.size());
    const auto pairs = table_.Pairs();
    const std::vector<Word> result(tree_.legs(part_nodes_[0]),
                                   tree_.legs(part_nodes_[0]) + tree_.network().words());
    // The last pair is the root.
    const auto node_of = [&](int id) {
      return id < n ? part_leaves_[id] : part_nodes_[2 * n - 2 - id];
    };
    for (int p = 0; p < n - 1; ++p) {
      tree_.SetChildren(node_of(n + p), node_of(pairs[p].first), node_of(pairs[p].second));
    }
    for (int p = 0; p < n - 1; ++p) SetLegs(node_of(n + p), result);
  }

  // From those of its children: what is needed outside of the node, within the part or beyond.
  void SetLegs(int node, const std::vector<Word>& result) {
    const int words = tree_.network().words();
    std::vector<Word> inside(words), outside = result;
    for (int up = node; up != part_nodes_[0]; up = tree_.parent(up)) {
      const int parent = tree_.parent(up);
      const int other = tree_.left(parent) == up ? tree_.right(parent) : tree_.left(parent);
      AddLegsBelow(other, outside);
    }
    for (int w = 0; w < words; ++w) {
      inside[w] = (tree_.legs(tree_.left(node))[w] | tree_.legs(tree_.right(node))[w]) & outside[w];
    }
    tree_.SetLegs(node, inside.data());
  }

  // Those of the leaves of the part under `node`.
  void AddLegsBelow(int node, std::vector<Word>& set) const {
    if (std::find(part_leaves_.begin(), part_leaves_.end(), node) == part_leaves_.end()) {
      AddLegsBelow(tree_.left(node), set);
      AddLegsBelow(tree_.right(node), set);
      return;
    }
    for (int w = 0; w < tree_.network().words(); ++w) set[w] |= tree_.legs(node)[w];
  }

  const StepPrice& price_;
  const ReconfigureOptions& options_;
  Random& random_;
  Tree& tree_;
  SubsetTable table_;
  std::vector<int> part_nodes_, part_leaves_, levels_;
  std::vector<const Word*> tensors_;
};

}  // namespace

void Reconfigure(const StepPrice& price, const ReconfigureOptions& options, Random& random,
                 const Stop& stop, Tree& tree) {
  Reconfigurer reconfigurer(price, options, random, tree);
  std::vector<std::pair<double, int>> order;
  for (int sweep = 0; sweep < options.sweeps; ++sweep) {
    order.clear();
    for (int node = tree.leaves(); node < tree.nodes(); ++node) {
      order.emplace_back(-price(tree.Step(node)), node);
    }
    std::sort(order.begin(), order.end());
    bool changed = false;
    for (const auto& [cost, node] : order) {
      if (stop()) return;
      changed |= reconfigurer.Improve(node);
    }
    if (!changed && options.randomness == 0) return;
  }
}

}  // namespace tenon::planner
