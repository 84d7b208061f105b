// Steadiness and cohesiveness: clusters of one space, found by random walks, in the other.

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/cluster_distortion.h"
#include "backends/measurement/cluster_walk.h"
#include "backends/measurement/metric.h"

namespace tenon::measurement {
namespace {

NeighborLists ListsOf(const MeasureSpec& spec, const MetricInput& input, int32_t space) {
  const int64_t k = spec.Integer("k");
  return {Neighbors(input, space, k), input.n, k};
}

absl::Status NoWalk(const MeasureSpec& spec, const MetricInput& input, bool embedded) {
  return Undefined(
      spec, embedded ? kEmbedded : kOriginal,
      absl::StrCat("no walk over the ", embedded ? "projection (ld)" : "data set (hd)",
                   " reaches a second row, because neighbours share too few neighbours (k = ",
                   spec.Integer("k"), ", n = ", input.n, ")"));
}

int64_t Visits(const MeasureSpec& spec, int64_t n) {
  const double visits = static_cast<double>(n) * spec.Real("walk_num_ratio");
  constexpr double kMost = 1e15;  // of which a walk never comes to the end
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(visits, kMost)));
}

SplitOptions SplitOf(const MeasureSpec& spec) {
  SplitOptions split;
  split.kmeans = spec.Text("clustering_strategy") == "kmeans";
  // The recorded values of the reference were made with this.
  if (spec.Text("random.generator") == "numpy") split.edges = LinkageEdges::kPath;
  if (spec.Has("cluster_count")) split.cluster_count = spec.Integer("cluster_count");
  return split;
}

// One of the two scores.
struct DirectionScore {
  double score = 1;
  std::vector<double> local;  // distortions, if wanted
};

class Measurement {
 public:
  static constexpr int64_t kRound = 256;  // walks that are held at once

  static absl::StatusOr<Measurement> Prepare(const MeasureSpec& spec, const MetricInput& input) {
    const double alpha = spec.Real("alpha");
    if (!std::isfinite(1 / alpha)) {
      return Undefined(spec, kEmbedded, absl::StrCat("1 / alpha overflows (alpha = ", alpha, ")"));
    }
    Measurement measurement(spec, input);
    TENON_ASSIGN_OR_RETURN(measurement.spaces_[0],
                           ShareNeighbors(ListsOf(spec, input, kOriginal), *input.parallel));
    TENON_ASSIGN_OR_RETURN(measurement.spaces_[1],
                           ShareNeighbors(ListsOf(spec, input, kEmbedded), *input.parallel));
    TENON_ASSIGN_OR_RETURN(
        measurement.range_,
        RangeOfDifferences(measurement.spaces_[0], measurement.spaces_[1], alpha, *input.parallel));
    return measurement;
  }

  absl::StatusOr<DirectionScore> Score(Direction direction) {
    const bool steadiness = direction == Direction::kSteadiness;
    const Comparison comparison = {direction, spec_.Real("alpha"),
                                   steadiness ? range_.largest : -range_.least};
    const int64_t iterations = spec_.Integer("iteration");
    double distortion = 0, weight = 0;
    std::vector<WalkDistortion> kept;
    for (int64_t first = 0; first < iterations; first += kRound) {
      const int64_t count = std::min(kRound, iterations - first);
      TENON_ASSIGN_OR_RETURN(std::vector<WalkDistortion> walks,
                             CompareWalks(comparison, first, count));
      for (WalkDistortion& walk : walks) {
        distortion += walk.distortion;
        weight += walk.weight;
        if (input_.return_local) kept.push_back(std::move(walk));
      }
    }
    DirectionScore result;
    if (weight > 0) result.score = 1 - distortion / weight;
    if (input_.return_local) {
      TENON_ASSIGN_OR_RETURN(result.local,
                             LocalDistortions(spaces_, comparison, kept, *input_.parallel));
    }
    return result;
  }

 private:
  // Memory of one thread.
  struct Scratch {
    std::optional<RowSet> rows;
    WalkComparer comparer;
  };

  Measurement(const MeasureSpec& spec, const MetricInput& input)
      : spec_(spec),
        input_(input),
        visits_(Visits(spec, input.n)),
        split_(SplitOf(spec)),
        seed_(static_cast<uint64_t>(spec.Integer("random.seed"))) {
    if (spec.Text("random.generator") == "numpy") numpy_.emplace(static_cast<uint32_t>(seed_));
  }

  // The next walks, one after the other because NumPy's draws have one order.
  absl::StatusOr<std::vector<ClusterWalk>> DrawInOrder(const Comparison& comparison,
                                                       int64_t count) {
    constexpr int64_t kSeeds = 2147483647;
    std::vector<ClusterWalk> walks(count);
    for (ClusterWalk& walk : walks) {
      TENON_ASSIGN_OR_RETURN(walk.members, WalkCluster(spaces_[comparison.walked()], visits_,
                                                       *input_.parallel, *numpy_));
      if (walk.members.empty()) return NoWalk(spec_, input_, comparison.walked() == 1);
      if (split_.kmeans) walk.seed = static_cast<uint64_t>(numpy_->Below(kSeeds));
    }
    return walks;
  }

  // A walk with a stream of its own.
  absl::StatusOr<ClusterWalk> Draw(const Comparison& comparison, int64_t iteration, RowSet& rows) {
    CounterRandom random(
        seed_, 2 * static_cast<uint64_t>(iteration) + static_cast<uint64_t>(comparison.direction));
    ClusterWalk walk;
    TENON_ASSIGN_OR_RETURN(walk.members, WalkCluster(spaces_[comparison.walked()], visits_,
                                                     *input_.parallel, random, rows));
    if (walk.members.empty()) return NoWalk(spec_, input_, comparison.walked() == 1);
    walk.seed = random.Next();
    return walk;
  }

  absl::StatusOr<WalkDistortion> CompareWalk(const Comparison& comparison, ClusterWalk* drawn,
                                             int64_t iteration, Scratch& scratch) {
    ClusterWalk walk;
    if (drawn != nullptr) {
      walk = std::move(*drawn);
    } else {
      if (!scratch.rows.has_value()) scratch.rows.emplace(input_.n);
      TENON_ASSIGN_OR_RETURN(walk, Draw(comparison, iteration, *scratch.rows));
    }
    if (!(comparison.scale > 0)) return WalkDistortion{};
    const PointsView points(comparison.clustered() == 0 ? input_.original : input_.embedded);
    return scratch.comparer.Compare(spaces_, comparison, split_, points, walk, input_.return_local,
                                    *input_.parallel);
  }

  absl::StatusOr<std::vector<WalkDistortion>> CompareWalks(const Comparison& comparison,
                                                           int64_t first, int64_t count) {
    std::vector<ClusterWalk> drawn;
    if (numpy_.has_value()) {
      TENON_ASSIGN_OR_RETURN(drawn, DrawInOrder(comparison, count));
    }
    const int64_t workers =
        spec_.Has("workers") ? spec_.Integer("workers") : int64_t{input_.parallel->threads()};
    const Parallel parallel = input_.parallel->Limited(workers);
    scratch_.resize(parallel.threads());
    std::vector<WalkDistortion> walks(count);
    std::vector<absl::Status> errors(count);
    TENON_RETURN_IF_ERROR(parallel.ForEach(count, [&](int64_t i, int slot) {
      ClusterWalk* const own = drawn.empty() ? nullptr : &drawn[i];
      auto walk = CompareWalk(comparison, own, first + i, scratch_[slot]);
      errors[i] = walk.status();
      if (walk.ok()) walks[i] = *std::move(walk);
    }));
    for (const absl::Status& error : errors) TENON_RETURN_IF_ERROR(error);
    return walks;
  }

  const MeasureSpec& spec_;
  const MetricInput& input_;
  int64_t visits_;
  SplitOptions split_;
  uint64_t seed_;
  std::optional<NumpyRandomState> numpy_;
  std::vector<Scratch> scratch_;
  std::array<SharedNeighbors, 2> spaces_;
  DifferenceRange range_;
};

void StoreLocal(const MeasureSpec& spec, size_t number, std::vector<double> distortions,
                double weighting_score, MeasureScores& result) {
  const double weight = std::max(2 * (1 - weighting_score), 1.0);
  for (double& value : distortions) value = 1 - value * weight;
  result.local_scores[spec.info->outputs[number].local_key] = std::move(distortions);
}

absl::StatusOr<MeasureScores> SteadinessCohesiveness(const MeasureSpec& spec,
                                                     const MetricInput& input) {
  TENON_ASSIGN_OR_RETURN(Measurement measurement, Measurement::Prepare(spec, input));
  std::array<DirectionScore, 2> directions;
  TENON_ASSIGN_OR_RETURN(directions[0], measurement.Score(Direction::kSteadiness));
  TENON_ASSIGN_OR_RETURN(directions[1], measurement.Score(Direction::kCohesiveness));
  const bool crossed = spec.Text("local_weight") == "crossed";
  MeasureScores result;
  for (const size_t d : {0, 1}) {
    if (!std::isfinite(directions[d].score)) {
      return Undefined(spec, kEmbedded, "dissimilarities overflow");
    }
    result.scores[spec.info->outputs[d].key] = directions[d].score;
    if (!input.return_local) continue;
    StoreLocal(spec, d, std::move(directions[d].local), directions[crossed ? 1 - d : d].score,
               result);
  }
  return result;
}

// Without a pair of similar neighbours there is no walk, whatever the projection is.
absl::Status WalksExist(const MeasureSpec& spec, const MetricInput& input) {
  return AnyNeighborIsSimilar(ListsOf(spec, input, kOriginal)) ? absl::OkStatus()
                                                               : NoWalk(spec, input, false);
}

std::vector<ResourceKey> BothNeighbors(const MeasureSpec& spec) {
  const int64_t k = spec.Integer("k");
  return {{TENON_RESOURCE_KNN, kOriginal, k, 0}, {TENON_RESOURCE_KNN, kEmbedded, k, 0}};
}

// Of the pairs that local scores keep no count is known before; what walks of 0.3 n visits keep is
// a few per member.
int64_t WorkingBytes(const MeasureSpec& spec, const MetricShape& shape) {
  const int64_t n = shape.n, k = spec.Integer("k");
  const int64_t visits = Visits(spec, n), members = std::min(n, visits + k);
  const int64_t iterations = spec.Integer("iteration");
  const int64_t columns = std::max(shape.original_columns, shape.embedded_columns);
  const int64_t comparing = std::max(WalkComparer::Bytes(n, k, members, SplitOf(spec), columns),
                                     5 * SparseSums::Bytes(n));
  const double walking = 4.0 * static_cast<double>(visits + k) + static_cast<double>(n) / 8;
  double bytes = static_cast<double>(2 * SharedNeighbors::Bytes(n, k)) +
                 shape.threads * (static_cast<double>(comparing) + walking);
  if (spec.Text("random.generator") == "numpy") {
    bytes += 4.0 * static_cast<double>(std::min(iterations, Measurement::kRound) * members);
  }
  if (shape.return_local) {
    constexpr double kBytesPerMember = 64;
    bytes += static_cast<double>(iterations) *
             (static_cast<double>(n) / 8 + kBytesPerMember * static_cast<double>(members));
  }
  constexpr double kMost = 1e18;
  return static_cast<int64_t>(std::min(bytes, kMost));
}

constexpr Metric kMetrics[] = {
    {.alias = "snc",
     .requirements = BothNeighbors,
     .original_points = true,
     .embedded_points = true,
     .evaluate = SteadinessCohesiveness,
     .check_original = WalksExist,
     .checks_neighbors = true,
     .working_bytes = WorkingBytes},
};

}  // namespace

std::span<const Metric> ClusterWalkMetrics() { return kMetrics; }

}  // namespace tenon::measurement
