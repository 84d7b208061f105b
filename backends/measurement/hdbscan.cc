#include "backends/measurement/hdbscan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "backends/measurement/numpy_argsort.h"

namespace tenon::measurement {
namespace {

// A node of the single-linkage tree. Nodes below the number of points are points, merge t is node
// points + t.
struct Merge {
  int32_t left, right;
  double weight;
  int32_t size;  // points below
};

class MergeTree {
 public:
  MergeTree(const PrimOrder& prim, LinkageEdges edges)
      : points_(static_cast<int32_t>(prim.order.size())) {
    std::vector<int32_t> root_of(2 * prim.order.size() - 1);
    std::iota(root_of.begin(), root_of.end(), 0);
    const auto find = [&](int32_t node) {
      while (root_of[node] != node) node = root_of[node] = root_of[root_of[node]];
      return node;
    };
    const auto& starts = edges == LinkageEdges::kPath ? prim.order : prim.sources;
    merges_.reserve(prim.weights.size());
    for (const int32_t edge : NumpyArgsort(prim.weights)) {
      const int32_t left = find(starts[edge]), right = find(prim.order[edge + 1]);
      root_of[left] = root_of[right] = points_ + static_cast<int32_t>(merges_.size());
      merges_.push_back({left, right, prim.weights[edge], Size(left) + Size(right)});
    }
  }

  int32_t points() const { return points_; }
  int32_t root() const { return 2 * points_ - 2; }
  bool IsPoint(int32_t node) const { return node < points_; }
  const Merge& At(int32_t node) const { return merges_[node - points_]; }
  int32_t Size(int32_t node) const { return IsPoint(node) ? 1 : At(node).size; }

 private:
  int32_t points_;
  std::vector<Merge> merges_;
};

// The tree of clusters that are large enough. Cluster 0 is the root, parents come before children.
class CondensedTree {
 public:
  explicit CondensedTree(const MergeTree& merges)
      : merges_(merges), cluster_of_(merges.points()), lambda_of_(merges.points()) {
    clusters_.push_back({});
    // Level by level, because sums of stability depend on the order of their terms.
    std::vector<std::pair<int32_t, int32_t>> queue = {{merges.root(), 0}};  // node, cluster
    for (size_t next = 0; next < queue.size(); ++next) {
      const auto [node, cluster] = queue[next];
      Split(node, cluster, queue);
    }
  }

  std::vector<int32_t> Labels() {
    const std::vector<int32_t> label_of_cluster = Select();
    std::vector<int32_t> labels(cluster_of_.size());
    const bool only_root = label_of_cluster[0] >= 0;
    for (size_t point = 0; point < labels.size(); ++point) {
      labels[point] = label_of_cluster[cluster_of_[point]];
      if (only_root && lambda_of_[point] < largest_root_lambda_) labels[point] = -1;
    }
    return labels;
  }

 private:
  struct Cluster {
    int32_t parent = -1;
    int32_t first_child = -1;  // the other one has the next number
    double birth = 0;          // lambda = 1 / weight
    double stability = 0;
  };

  // Follows `cluster` to the children of `node`.
  void Split(int32_t node, int32_t cluster, std::vector<std::pair<int32_t, int32_t>>& queue) {
    const Merge& merge = merges_.At(node);
    const double lambda =
        merge.weight > 0 ? 1 / merge.weight : std::numeric_limits<double>::infinity();
    if (cluster == 0) largest_root_lambda_ = std::max(largest_root_lambda_, lambda);
    const int32_t children[] = {merge.left, merge.right};
    const bool splits = IsLarge(merge.left) && IsLarge(merge.right);
    if (splits) clusters_[cluster].first_child = static_cast<int32_t>(clusters_.size());
    for (const int32_t child : children) {
      if (splits) {
        clusters_[cluster].stability += (lambda - clusters_[cluster].birth) * merges_.Size(child);
        queue.emplace_back(child, static_cast<int32_t>(clusters_.size()));
        clusters_.push_back({.parent = cluster, .birth = lambda});
      } else if (IsLarge(child)) {
        queue.emplace_back(child, cluster);
      } else {
        FallOut(child, cluster, lambda);
      }
    }
  }

  bool IsLarge(int32_t node) const { return merges_.Size(node) >= kMinClusterSize; }

  // The points below `node` leave `cluster`.
  void FallOut(int32_t node, int32_t cluster, double lambda) {
    std::vector<int32_t> nodes = {node};
    while (!nodes.empty()) {
      const int32_t last = nodes.back();
      nodes.pop_back();
      if (merges_.IsPoint(last)) {
        cluster_of_[last] = cluster;
        lambda_of_[last] = lambda;
        clusters_[cluster].stability += lambda - clusters_[cluster].birth;
      } else {
        nodes.push_back(merges_.At(last).left);
        nodes.push_back(merges_.At(last).right);
      }
    }
  }

  // The label of the chosen cluster at or above each cluster, -1 without one.
  std::vector<int32_t> Select() {
    std::vector<bool> prefers_itself(clusters_.size(), true);
    for (size_t c = clusters_.size(); c-- > 0;) {
      Cluster& cluster = clusters_[c];
      const int32_t child = cluster.first_child;
      const double below =
          child < 0 ? 0 : clusters_[child].stability + clusters_[child + 1].stability;
      const double rounded = static_cast<float>(below);
      if (!(rounded > cluster.stability)) continue;
      prefers_itself[c] = false;
      cluster.stability = rounded;
    }
    std::vector<int32_t> labels(clusters_.size(), -1);
    int32_t next = 0;
    for (size_t c = 0; c < clusters_.size(); ++c) {
      const int32_t parent = clusters_[c].parent;
      if (parent >= 0) labels[c] = labels[parent];
      if (labels[c] < 0 && prefers_itself[c]) labels[c] = next++;
    }
    return labels;
  }

  const MergeTree& merges_;
  std::vector<Cluster> clusters_;
  std::vector<int32_t> cluster_of_;  // in which a point fell out
  std::vector<double> lambda_of_;    // where
  double largest_root_lambda_ = 0;
};

}  // namespace

std::vector<int32_t> HdbscanLabels(const PrimOrder& prim, LinkageEdges edges) {
  const MergeTree merges(prim, edges);
  return CondensedTree(merges).Labels();
}

}  // namespace tenon::measurement
