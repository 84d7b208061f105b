// Distortion of the relations between clusters, from one space to the other.

#ifndef TENON_BACKENDS_MEASUREMENT_CLUSTER_DISTORTION_H_
#define TENON_BACKENDS_MEASUREMENT_CLUSTER_DISTORTION_H_

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/cluster_pairs.h"
#include "backends/measurement/hdbscan.h"
#include "backends/measurement/metric_input.h"
#include "backends/measurement/reachability.h"
#include "backends/measurement/shared_neighbors.h"

namespace tenon::measurement {

// Steadiness walks in the embedded space and clusters the walks in the original one; pairs count
// that are farther apart there. Cohesiveness is the same the other way round. The value is the
// number of the space that clusters: spaces are numbered 0 original, 1 embedded.
enum class Direction { kSteadiness = 0, kCohesiveness = 1 };

// How pairs of clusters are compared in one direction.
struct Comparison {
  Direction direction = Direction::kSteadiness;
  double alpha = 0;
  double scale = 0;  // largest difference of a pair of rows

  int clustered() const { return static_cast<int>(direction); }
  int walked() const { return 1 - clustered(); }

  // How much larger the dissimilarity is in the clustering space than in the walked one, of `pairs`
  // pairs of rows with these sums of products. Only positive differences count.
  double Difference(const std::array<SharedNeighbors, 2>& spaces, const std::array<double, 2>& sums,
                    double pairs) const {
    return spaces[clustered()].Dissimilarity(sums[clustered()], pairs, alpha) -
           spaces[walked()].Dissimilarity(sums[walked()], pairs, alpha);
  }
};

struct SplitOptions {
  bool kmeans = false;                               // otherwise HDBSCAN
  LinkageEdges edges = LinkageEdges::kSpanningTree;  // of HDBSCAN
  int64_t cluster_count = 0;  // of k-means; 0: the root of the number of members, at least 2
  int64_t ClusterCount(int64_t members) const;  // can be more than there are members
};

// The rows of one walk and the seed of their k-means.
struct ClusterWalk {
  std::vector<int32_t> members;
  uint64_t seed = 0;
};

// What one iteration adds to the score, and, if wanted, to the local scores.
struct WalkDistortion {
  double distortion = 0, weight = 0;  // sums over the pairs of clusters that count
  Clusters clusters = {};
  // The pairs that count and are not of two single rows: {cluster, cluster}, distortion by weight.
  struct Pair {
    int32_t first, second;
    double value;
  };
  std::vector<Pair> pairs = {};
};

// Splits walks into clusters and compares these. Keeps its memory between calls; not thread-safe.
class WalkComparer {
 public:
  // `points` are those of the space that clusters, read by k-means only. Errors: CLIENT_CANCELLED
  // and those of k-means.
  absl::StatusOr<WalkDistortion> Compare(const std::array<SharedNeighbors, 2>& spaces,
                                         const Comparison& comparison, const SplitOptions& split,
                                         const PointsView& points, const ClusterWalk& walk,
                                         bool keep_pairs, const Parallel& parallel);

  // For spaces of n rows with k neighbours and `columns` columns and walks of up to `members` rows.
  static int64_t Bytes(int64_t n, int64_t k, int64_t members, const SplitOptions& split,
                       int64_t columns);

 private:
  absl::StatusOr<std::vector<int32_t>> Labels(const SharedNeighbors& space, double alpha,
                                              const SplitOptions& split, const PointsView& points,
                                              const ClusterWalk& walk, const Parallel& parallel);

  ReachabilityOrder reachability_;
  ClusterPairs pairs_;
};

// Local distortions: entry i is the sum over the other rows j of the mean distortion by weight of
// all pairs of clusters that count and have i in one and j in the other, over all `walks`; divided
// by the largest entry if that is positive. CLIENT_CANCELLED, EXCEEDS_MEMORY_BUDGET. Bit-identical
// for any number of threads.
absl::StatusOr<std::vector<double>> LocalDistortions(const std::array<SharedNeighbors, 2>& spaces,
                                                     const Comparison& comparison,
                                                     std::span<const WalkDistortion> walks,
                                                     const Parallel& parallel);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_CLUSTER_DISTORTION_H_
