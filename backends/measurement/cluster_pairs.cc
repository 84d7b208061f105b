#include "backends/measurement/cluster_pairs.h"

#include <algorithm>

namespace tenon::measurement {

Clusters::Clusters(std::span<const int32_t> members, std::span<const int32_t> labels) {
  const int32_t numbered = *std::max_element(labels.begin(), labels.end()) + 1;
  std::vector<std::vector<int32_t>> clusters(std::max(0, numbered));
  for (size_t i = 0; i < members.size(); ++i) {
    if (labels[i] >= 0) clusters[labels[i]].push_back(members[i]);
  }
  for (const std::vector<int32_t>& cluster : clusters) {
    if (cluster.empty()) continue;
    rows_.insert(rows_.end(), cluster.begin(), cluster.end());
    offsets_.push_back(static_cast<int32_t>(rows_.size()));
  }
  for (size_t i = 0; i < members.size(); ++i) {
    if (labels[i] >= 0) continue;
    rows_.push_back(members[i]);
    offsets_.push_back(static_cast<int32_t>(rows_.size()));
  }
}

void ClusterPairs::Add(const NeighborLists& lists, std::span<const int32_t> rows, int32_t cluster,
                       int space) {
  for (const int32_t row : rows) {
    const int32_t* neighbors = lists.table.Row(row);
    for (int64_t r = 0; r < lists.k; ++r) weights_.Add(neighbors[r], lists.Weight(r));
  }
  for (const int32_t x : weights_.touched()) {
    const double weight = weights_.At(x);
    sums_[space].Add(before_[space].Groups(x), before_[space].Weights(x), weight);
    before_[space].Append(x, cluster, weight);
  }
  weights_.Clear();
}

void ClusterPairs::Reset(const std::array<SharedNeighbors, 2>& spaces, const Clusters& clusters) {
  const int64_t n = spaces[0].lists.n;
  weights_.Resize(n);
  for (const int space : {0, 1}) {
    before_[space].Reset(spaces[space].lists, clusters.AllRows());
    sums_[space].Resize(n);
  }
}

}  // namespace tenon::measurement
