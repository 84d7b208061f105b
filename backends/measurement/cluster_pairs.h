// Clusters of some rows, and what pairs of them share.

#ifndef TENON_BACKENDS_MEASUREMENT_CLUSTER_PAIRS_H_
#define TENON_BACKENDS_MEASUREMENT_CLUSTER_PAIRS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/error.h"
#include "backends/core/parallel.h"
#include "backends/measurement/shared_neighbors.h"

namespace tenon::measurement {

// Disjoint, not empty clusters of rows.
class Clusters {
 public:
  Clusters() = default;
  // Member i has labels[i]; every member with a negative one becomes a cluster of its own, after
  // the others. Labels without members are left out.
  Clusters(std::span<const int32_t> members, std::span<const int32_t> labels);

  int64_t count() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t Size(int64_t cluster) const { return offsets_[cluster + 1] - offsets_[cluster]; }
  std::span<const int32_t> Rows(int64_t cluster) const {
    return {rows_.data() + offsets_[cluster], rows_.data() + offsets_[cluster + 1]};
  }
  std::span<const int32_t> AllRows() const { return rows_; }

 private:
  std::vector<int32_t> rows_;  // by cluster
  std::vector<int32_t> offsets_ = {0};
};

// Finds the pairs of clusters that share neighbours in one of two spaces. Keeps its memory between
// calls; not thread-safe.
class ClusterPairs {
 public:
  // Calls visit(first, second, sums) for every such pair, second < first, in ascending order of
  // first; `sums` are the sums of the similarity products of the pair in both spaces, which have
  // the same number of rows. CLIENT_CANCELLED.
  template <typename Visit>
  absl::Status ForEach(const std::array<SharedNeighbors, 2>& spaces, const Clusters& clusters,
                       const Parallel& parallel, const Visit& visit);

  // For n rows with k neighbours, up to `members` of them in clusters.
  static int64_t Bytes(int64_t n, int64_t k, int64_t members) {
    return 2 * GroupsOfNeighbors::Bytes(n, k, members) + 3 * SparseSums::Bytes(n);
  }

 private:
  void Reset(const std::array<SharedNeighbors, 2>& spaces, const Clusters& clusters);
  // Products of one cluster with those before it; then the cluster counts as one of those.
  void Add(const NeighborLists& lists, std::span<const int32_t> rows, int32_t cluster, int space);

  std::array<GroupsOfNeighbors, 2> before_;
  std::array<SparseSums, 2> sums_;  // by cluster
  SparseSums weights_;              // of one cluster, by row
};

template <typename Visit>
absl::Status ClusterPairs::ForEach(const std::array<SharedNeighbors, 2>& spaces,
                                   const Clusters& clusters, const Parallel& parallel,
                                   const Visit& visit) {
  Reset(spaces, clusters);
  for (int32_t first = 0; first < clusters.count(); ++first) {
    TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    for (const int space : {0, 1}) {
      Add(spaces[space].lists, clusters.Rows(first), first, space);
    }
    const auto take = [&](int32_t second) {
      visit(first, second, std::array{sums_[0].At(second), sums_[1].At(second)});
    };
    for (const int32_t second : sums_[0].touched()) take(second);
    for (const int32_t second : sums_[1].touched()) {
      if (sums_[0].At(second) == 0) take(second);
    }
    for (SparseSums& sums : sums_) sums.Clear();
  }
  return absl::OkStatus();
}

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_CLUSTER_PAIRS_H_
