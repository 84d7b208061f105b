// Measures of all pairs: stress, correlations, densities.

#include <algorithm>
#include <cmath>

#include "backends/core/error.h"
#include "backends/measurement/metric.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

const ResourceKey kPairStatisticsKey = {TENON_RESOURCE_PAIR_STATISTICS, kPair, 0, 0};

ResourceKey OrderKey(double parameter) {
  return {TENON_RESOURCE_PAIR_ORDER, kOriginal, 0, parameter};
}

ResourceKey OrderedKey(double part) {
  return {TENON_RESOURCE_ORDERED_PAIR_STATISTICS, kPair, 0, part};
}

absl::StatusOr<MeasureScores> Stress(const MeasureSpec& spec, const MetricInput& input) {
  const auto& sums = Read<PairStatistics>(input, kPairStatisticsKey);
  if (!(sums.max_original > 0)) return ZeroDistances(spec, kOriginal);
  if (!std::isfinite(sums.sum_original_squared)) {
    return Overflow(spec, kOriginal, sums.max_original);
  }
  return OneScore(spec, std::sqrt(sums.sum_difference_squared / sums.sum_original_squared));
}

absl::StatusOr<MeasureScores> ScaleNormalizedStress(const MeasureSpec& spec,
                                                    const MetricInput& input) {
  const auto& sums = Read<PairStatistics>(input, kPairStatisticsKey);
  if (!(sums.max_original > 0)) return ZeroDistances(spec, kOriginal);
  if (!(sums.max_embedded > 0)) return ZeroDistances(spec, kEmbedded);
  if (!std::isfinite(sums.sum_original_squared)) {
    return Overflow(spec, kOriginal, sums.max_original);
  }
  if (!std::isfinite(sums.sum_embedded_squared)) {
    return Overflow(spec, kEmbedded, sums.max_embedded);
  }
  // Rounding can leave a little less than zero; NaN has to stay.
  const double residual = sums.scaled_residual < 0 ? 0.0 : sums.scaled_residual;
  return OneScore(spec, std::sqrt(residual / sums.sum_original_squared));
}

absl::StatusOr<MeasureScores> Pearson(const MeasureSpec& spec, const MetricInput& input) {
  const auto& sums = Read<PairStatistics>(input, kPairStatisticsKey);
  if (!std::isfinite(sums.moment_original)) return Overflow(spec, kOriginal, sums.max_original);
  if (!std::isfinite(sums.moment_embedded)) return Overflow(spec, kEmbedded, sums.max_embedded);
  if (sums.min_original == sums.max_original || !(sums.moment_original > 0)) {
    return EqualDistances(spec, kOriginal, sums.max_original);
  }
  if (sums.min_embedded == sums.max_embedded || !(sums.moment_embedded > 0)) {
    return EqualDistances(spec, kEmbedded, sums.max_embedded);
  }
  const double r =
      sums.comoment / std::sqrt(sums.moment_original) / std::sqrt(sums.moment_embedded);
  return OneScore(spec, std::isfinite(r) ? std::clamp(r, -1.0, 1.0) : r);
}

absl::StatusOr<MeasureScores> Spearman(const MeasureSpec& spec, const MetricInput& input) {
  const auto& ordered = Read<OrderedPairStatistics>(input, OrderedKey(kRankCorrelation));
  if (ordered.min_original == ordered.max_original) {
    return EqualDistances(spec, kOriginal, ordered.max_original);
  }
  if (ordered.min_embedded == ordered.max_embedded) {
    return EqualDistances(spec, kEmbedded, ordered.max_embedded);
  }
  const double rho = ToDouble(ordered.rank_comoment) /
                     std::sqrt(ToDouble(ordered.original_rank_moment)) /
                     std::sqrt(ToDouble(ordered.rank_moment));
  return OneScore(spec, std::clamp(rho, -1.0, 1.0));
}

absl::StatusOr<MeasureScores> NonMetricStress(const MeasureSpec& spec, const MetricInput& input) {
  const auto& ordered = Read<OrderedPairStatistics>(input, OrderedKey(kIsotonicFit));
  if (!(ordered.max_original > 0)) return ZeroDistances(spec, kOriginal);
  if (!(ordered.max_embedded > 0)) return ZeroDistances(spec, kEmbedded);
  if (!std::isfinite(ordered.sum_embedded_squared)) {
    return Overflow(spec, kEmbedded, ordered.max_embedded);
  }
  return OneScore(spec, std::sqrt(ordered.isotonic_residual / ordered.sum_embedded_squared));
}

// ---- Densities -------------------------------------------------------------------------------

struct Densities {
  const double* original;
  const double* embedded;
};

ResourceKey DensityKey(const MeasureSpec& spec, int32_t space) {
  return {TENON_RESOURCE_DENSITY, space, 0, spec.Real("sigma")};
}

absl::StatusOr<Densities> FindDensities(const MeasureSpec& spec, const MetricInput& input) {
  const Densities densities = {&Read<double>(input, DensityKey(spec, kOriginal)),
                               &Read<double>(input, DensityKey(spec, kEmbedded))};
  const double largest = densities.embedded[input.n];
  if (!std::isfinite(largest)) return Overflow(spec, kEmbedded, largest);
  if (!(largest > 0)) return ZeroDistances(spec, kEmbedded);
  return densities;
}

absl::StatusOr<MeasureScores> KlDivergence(const MeasureSpec& spec, const MetricInput& input) {
  TENON_ASSIGN_OR_RETURN(const Densities densities, FindDensities(spec, input));
  CompensatedSum sum;
  for (int64_t i = 0; i < input.n; ++i) {
    sum.Add(densities.original[i] * std::log(densities.original[i] / densities.embedded[i]));
  }
  // Never negative by definition; rounding can leave less than the last digit below zero.
  const double value = sum.Value();
  return OneScore(spec, value < 0 ? 0.0 : value);
}

absl::StatusOr<MeasureScores> DistanceToMeasure(const MeasureSpec& spec, const MetricInput& input) {
  TENON_ASSIGN_OR_RETURN(const Densities densities, FindDensities(spec, input));
  CompensatedSum sum;
  for (int64_t i = 0; i < input.n; ++i) {
    sum.Add(std::abs(densities.original[i] - densities.embedded[i]));
  }
  return OneScore(spec, sum.Value());
}

std::vector<ResourceKey> PairSums(const MeasureSpec&) { return {kPairStatisticsKey}; }

std::vector<ResourceKey> RankSums(const MeasureSpec&) {
  return {OrderKey(kRankOrder), OrderedKey(kRankCorrelation)};
}

std::vector<ResourceKey> FitSums(const MeasureSpec&) {
  return {OrderKey(kPositionOrder), OrderedKey(kIsotonicFit)};
}

std::vector<ResourceKey> BothDensities(const MeasureSpec& spec) {
  return {DensityKey(spec, kOriginal), DensityKey(spec, kEmbedded)};
}

// The header of a pair order, if it is kept in memory.
const PairOrderHeader* FindOrder(const MetricInput& input, double parameter) {
  const ResourceKey key = OrderKey(parameter);
  for (const tenon_resource& resource : input.resources) {
    if (SameKey(resource.key, key)) return static_cast<const PairOrderHeader*>(resource.data);
  }
  return nullptr;
}

absl::Status DistancesDiffer(const MeasureSpec& spec, const MetricInput& input) {
  const PairOrderHeader* original = FindOrder(input, kRankOrder);
  if (original == nullptr || original->min_distance != original->max_distance) {
    return absl::OkStatus();
  }
  return EqualDistances(spec, kOriginal, original->max_distance);
}

absl::Status DistancesNotZero(const MeasureSpec& spec, const MetricInput& input) {
  const PairOrderHeader* original = FindOrder(input, kPositionOrder);
  if (original == nullptr || original->max_distance > 0) return absl::OkStatus();
  return ZeroDistances(spec, kOriginal);
}

absl::Status DensityExists(const MeasureSpec& spec, const MetricInput& input) {
  const double* density = &Read<double>(input, DensityKey(spec, kOriginal));
  const double largest = density[input.n];
  if (!std::isfinite(largest)) return Overflow(spec, kOriginal, largest);
  return largest > 0 ? absl::OkStatus() : ZeroDistances(spec, kOriginal);
}

constexpr Metric kMetrics[] = {
    {.alias = "stress", .requirements = PairSums, .evaluate = Stress},
    {.alias = "sn_stress", .requirements = PairSums, .evaluate = ScaleNormalizedStress},
    {.alias = "pr", .requirements = PairSums, .evaluate = Pearson},
    {.alias = "srho",
     .requirements = RankSums,
     .evaluate = Spearman,
     .check_original = DistancesDiffer},
    {.alias = "nm_stress",
     .requirements = FitSums,
     .evaluate = NonMetricStress,
     .check_original = DistancesNotZero},
    {.alias = "kl_div",
     .requirements = BothDensities,
     .evaluate = KlDivergence,
     .check_original = DensityExists},
    {.alias = "dtm",
     .requirements = BothDensities,
     .evaluate = DistanceToMeasure,
     .check_original = DensityExists},
};

}  // namespace

std::span<const Metric> PairMetrics() { return kMetrics; }

}  // namespace tenon::measurement
