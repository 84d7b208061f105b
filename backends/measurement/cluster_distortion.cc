#include "backends/measurement/cluster_distortion.h"

#include <algorithm>
#include <cmath>

#include "backends/core/error.h"
#include "backends/measurement/kmeans.h"

namespace tenon::measurement {
namespace {

absl::StatusOr<std::vector<int32_t>> KMeansLabels(const SplitOptions& split,
                                                  const PointsView& points, const ClusterWalk& walk,
                                                  const Parallel& parallel) {
  const auto count = static_cast<int64_t>(walk.members.size());
  const int64_t columns = points.columns();
  std::vector<double> rows;
  rows.reserve(count * columns);
  for (const int32_t row : walk.members) {
    for (int64_t c = 0; c < columns; ++c) rows.push_back(points.At(row, c));
  }
  KMeansOptions options;
  options.clusters = std::min(count, split.ClusterCount(count));
  options.seed = walk.seed;
  TENON_ASSIGN_OR_RETURN(KMeansResult result,
                         KMeans(rows.data(), count, columns, options, parallel));
  return std::move(result.labels);
}

}  // namespace

int64_t SplitOptions::ClusterCount(int64_t members) const {
  if (cluster_count > 0) return cluster_count;
  return std::max<int64_t>(2, static_cast<int64_t>(std::sqrt(static_cast<double>(members))));
}

absl::StatusOr<std::vector<int32_t>> WalkComparer::Labels(const SharedNeighbors& space,
                                                          double alpha, const SplitOptions& split,
                                                          const PointsView& points,
                                                          const ClusterWalk& walk,
                                                          const Parallel& parallel) {
  if (split.kmeans) return KMeansLabels(split, points, walk, parallel);
  TENON_ASSIGN_OR_RETURN(const PrimOrder prim,
                         reachability_.Find(space, alpha, walk.members, parallel));
  return HdbscanLabels(prim, split.edges);
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

int64_t WalkComparer::Bytes(int64_t n, int64_t k, int64_t members, const SplitOptions& split,
                            int64_t columns) {
  const int64_t labels = members * 8 * int64_t{sizeof(int32_t)};
  const int64_t splitting =
      split.kmeans
          ? members * columns * int64_t{sizeof(double)} +
                KMeansWorkingBytes(members, columns, std::min(members, split.ClusterCount(members)))
          : ReachabilityOrder::Bytes(n, k, members);
  return splitting + labels + ClusterPairs::Bytes(n, k, members);
}

}  // namespace tenon::measurement
