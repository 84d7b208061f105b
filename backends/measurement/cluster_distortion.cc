#include "backends/measurement/cluster_distortion.h"

#include <algorithm>

#include "backends/core/error.h"
#include "backends/measurement/hdbscan.h"

namespace tenon::measurement {

absl::StatusOr<std::vector<int32_t>> WalkComparer::Labels(const SharedNeighbors& space,
                                                          double alpha, const SplitOptions& split,
                                                          const PointsView& points,
                                                          const ClusterWalk& walk,
                                                          const Parallel& parallel) {
  if (split.kmeans) return Error(Reason::kNotImplemented, "k-means");
  (void)points;
  TENON_ASSIGN_OR_RETURN(const PrimOrder prim,
                         reachability_.Find(space, alpha, walk.members, parallel));
  return HdbscanLabels(prim);
}

absl::StatusOr<WalkDistortion> WalkComparer::Compare(const std::array<SharedNeighbors, 2>& spaces,
                                                     const Comparison& comparison,
                                                     const SplitOptions& split,
                                                     const PointsView& points,
                                                     const ClusterWalk& walk, bool keep_pairs,
                                                     const Parallel& parallel) {
  TENON_ASSIGN_OR_RETURN(
      const std::vector<int32_t> labels,
      Labels(spaces[comparison.clustered()], comparison.alpha, split, points, walk, parallel));
  WalkDistortion result;
  Clusters clusters(walk.members, labels);
  const auto add = [&](int32_t first, int32_t second, const std::array<double, 2>& sums) {
    const auto weight = static_cast<double>(clusters.Size(first) * clusters.Size(second));
    const double difference = comparison.Difference(spaces, sums, weight);
    if (!(difference > 0)) return;
    const double value = difference / comparison.scale * weight;
    result.distortion += value;
    result.weight += weight;
    if (keep_pairs && weight > 1) result.pairs.push_back({first, second, value});
  };
  TENON_RETURN_IF_ERROR(pairs_.ForEach(spaces, clusters, parallel, add));
  if (keep_pairs) result.clusters = std::move(clusters);
  return result;
}

int64_t WalkComparer::Bytes(int64_t n, int64_t k, int64_t members, int64_t columns) {
  return ReachabilityOrder::Bytes(n, k, members) + ClusterPairs::Bytes(n, k, members) +
         members * (columns + 8) * int64_t{sizeof(double)};
}

}  // namespace tenon::measurement
