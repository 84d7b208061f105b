// Measures of neighbourhoods: from neighbour lists and ranks.

#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/measurement/classes.h"
#include "backends/measurement/metric.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

// What one rank beyond k takes from a local score.
double RankScale(int64_t n, int64_t k) {
  return 2.0 / (static_cast<double>(k) * static_cast<double>(2 * n - 3 * k - 1));
}

absl::StatusOr<MeasureScores> TrustworthinessContinuity(const MeasureSpec& spec,
                                                        const MetricInput& input) {
  const int64_t k = spec.Integer("k");
  const double scale = RankScale(input.n, k);
  MeasureScores result;
  for (int64_t half = 0; half < 2; ++half) {
    const IndexTable ranks = SelectedRanks(input, k, half);
    const auto local = [&](int64_t i) {
      int64_t excess = 0;  // a rank up to k belongs to a neighbour in both spaces
      for (int64_t r = 0; r < k; ++r) excess += std::max<int64_t>(0, ranks.Row(i)[r] - k);
      return 1.0 - scale * static_cast<double>(excess);
    };
    StoreMean(spec, input, half, local, result);
  }
  return result;
}

// Trustworthiness looks at neighbours of other classes, continuity at those of the same class.
absl::StatusOr<MeasureScores> ClassAwareTrustworthinessContinuity(const MeasureSpec& spec,
                                                                  const MetricInput& input) {
  const int64_t k = spec.Integer("k");
  const double scale = RankScale(input.n, k);
  const std::vector<int32_t>& classes = *input.classes;
  MeasureScores result;
  for (int64_t half = 0; half < 2; ++half) {
    const IndexTable ranks = SelectedRanks(input, k, half);
    const IndexTable neighbors = Neighbors(input, half == 0 ? kEmbedded : kOriginal, k);
    const bool same_class = half == 1;
    const auto local = [&](int64_t i) {
      int64_t excess = 0;
      for (int64_t r = 0; r < k; ++r) {
        const bool counts = (classes[neighbors.Row(i)[r]] == classes[i]) == same_class;
        excess += counts ? std::max<int64_t>(0, ranks.Row(i)[r] - k) : 0;
      }
      return 1.0 - scale * static_cast<double>(excess);
    };
    StoreMean(spec, input, half, local, result);
  }
  return result;
}

absl::StatusOr<MeasureScores> MeanRelativeRankError(const MeasureSpec& spec,
                                                    const MetricInput& input) {
  const int64_t k = spec.Integer("k"), n = input.n;
  CompensatedSum norm;
  for (int64_t r = 1; r <= k; ++r) {
    norm.Add(static_cast<double>(std::abs(n - 2 * r + 1)) / static_cast<double>(r));
  }
  MeasureScores result;
  for (int64_t half = 0; half < 2; ++half) {
    const IndexTable ranks = SelectedRanks(input, k, half);
    const auto local = [&](int64_t i) {
      CompensatedSum sum;
      for (int64_t r = 1; r <= k; ++r) {
        sum.Add(static_cast<double>(std::abs(ranks.Row(i)[r - 1] - r)) / static_cast<double>(r));
      }
      return 1.0 - sum.Value() / norm.Value();
    };
    StoreMean(spec, input, half, local, result);
  }
  return result;
}

absl::StatusOr<MeasureScores> LocalContinuity(const MeasureSpec& spec, const MetricInput& input) {
  const int64_t k = spec.Integer("k");
  const double size = static_cast<double>(k);
  const double chance = size * size / static_cast<double>(input.n - 1);
  const IndexTable original = Neighbors(input, kOriginal, k);
  const IndexTable embedded = Neighbors(input, kEmbedded, k);
  std::vector<int64_t> seen(input.n, -1);  // the last row whose original neighbour this was
  const auto local = [&](int64_t i) {
    for (int64_t r = 0; r < k; ++r) seen[original.Row(i)[r]] = i;
    int64_t common = 0;
    for (int64_t r = 0; r < k; ++r) common += seen[embedded.Row(i)[r]] == i;
    return (static_cast<double>(common) - chance) / size;
  };
  MeasureScores result;
  StoreMean(spec, input, 0, local, result);
  return result;
}

absl::StatusOr<MeasureScores> NeighborhoodHit(const MeasureSpec& spec, const MetricInput& input) {
  const int64_t k = spec.Integer("k");
  const IndexTable embedded = Neighbors(input, kEmbedded, k);
  const std::vector<int32_t>& classes = *input.classes;
  const auto local = [&](int64_t i) {
    int64_t hits = 0;
    for (int64_t r = 0; r < k; ++r) hits += classes[embedded.Row(i)[r]] == classes[i];
    return static_cast<double>(hits) / static_cast<double>(k);
  };
  MeasureScores result;
  StoreMean(spec, input, 0, local, result);
  return result;
}

std::vector<ResourceKey> RanksOf(const MeasureSpec& spec) {
  const int64_t k = spec.Integer("k");
  return {{TENON_RESOURCE_KNN, kOriginal, k, 0}, {TENON_RESOURCE_SELECTED_RANKS, kPair, k, 0}};
}

std::vector<ResourceKey> RanksAndNeighbors(const MeasureSpec& spec) {
  std::vector<ResourceKey> keys = RanksOf(spec);
  keys.push_back({TENON_RESOURCE_KNN, kEmbedded, spec.Integer("k"), 0});
  return keys;
}

std::vector<ResourceKey> BothNeighbors(const MeasureSpec& spec) {
  const int64_t k = spec.Integer("k");
  return {{TENON_RESOURCE_KNN, kOriginal, k, 0}, {TENON_RESOURCE_KNN, kEmbedded, k, 0}};
}

std::vector<ResourceKey> EmbeddedNeighbors(const MeasureSpec& spec) {
  return {{TENON_RESOURCE_KNN, kEmbedded, spec.Integer("k"), 0}};
}

constexpr Metric kMetrics[] = {
    {.alias = "tnc", .requirements = RanksOf, .evaluate = TrustworthinessContinuity},
    {.alias = "ca_tnc",
     .requirements = RanksAndNeighbors,
     .evaluate = ClassAwareTrustworthinessContinuity,
     .check_original = CheckTwoClasses},
    {.alias = "mrre", .requirements = RanksOf, .evaluate = MeanRelativeRankError},
    {.alias = "lcmc", .requirements = BothNeighbors, .evaluate = LocalContinuity},
    {.alias = "nh", .requirements = EmbeddedNeighbors, .evaluate = NeighborhoodHit},
};

}  // namespace

std::span<const Metric> NeighborMetrics() { return kMetrics; }

}  // namespace tenon::measurement
