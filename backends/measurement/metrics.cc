#include "backends/measurement/metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

constexpr int32_t kOriginal = TENON_RESOURCE_ORIGINAL;
constexpr int32_t kEmbedded = TENON_RESOURCE_EMBEDDED;
constexpr int32_t kPair = TENON_RESOURCE_PAIR;

// "<measure> is not defined: all distances between rows of the projection (ld) <what>".
absl::Status Undefined(const MeasureSpec& spec, int32_t space, const char* what) {
  const bool original = space == kOriginal;
  return Error(Reason::kUndefinedScore,
               StrCat(spec.info->id, " is not defined: all distances between rows of the ",
                      original ? "data set (hd) " : "projection (ld) ", what))
      .Field(original ? "dataset" : "projection");
}

absl::Status ZeroDistances(const MeasureSpec& spec, int32_t space) {
  return Undefined(spec, space, "are zero");
}

absl::Status EqualDistances(const MeasureSpec& spec, int32_t space, double distance) {
  return distance == 0 ? ZeroDistances(spec, space) : Undefined(spec, space, "are equal");
}

// `largest` is the largest distance of the space; if that is finite, a sum of squares is not.
absl::Status Overflow(const MeasureSpec& spec, int32_t space, double largest) {
  const bool original = space == kOriginal;
  const char* sums = std::isfinite(largest) ? "sums of squares of distances" : "distances";
  return Error(Reason::kUndefinedScore,
               absl::StrCat(spec.info->id, " is not defined: ", sums, " between rows of the ",
                            original ? "data set (hd)" : "projection (ld)", " overflow"))
      .Field(original ? "dataset" : "projection");
}

// The resource that serves `key`: the same one, or with a larger k.
const tenon_resource& Find(const MetricInput& input, const ResourceKey& key) {
  return *std::find_if(input.resources.begin(), input.resources.end(),
                       [&](const tenon_resource& resource) {
                         ResourceKey same = resource.key;
                         same.k = key.k;
                         return resource.key.k >= key.k && SameKey(same, key);
                       });
}

template <typename T>
const T& Read(const MetricInput& input, const ResourceKey& key) {
  return *static_cast<const T*>(Find(input, key).data);
}

// Rows of int32 of which the first k of each are read.
struct IndexTable {
  const int32_t* data;
  int64_t stride;
  const int32_t* Row(int64_t i) const { return data + i * stride; }
};

IndexTable Neighbors(const MetricInput& input, int32_t space, int64_t k) {
  const tenon_resource& resource = Find(input, {TENON_RESOURCE_KNN, space, k, 0});
  return {static_cast<const int32_t*>(resource.data), resource.key.k};
}

// half 0: original ranks of embedded neighbours; half 1: the reverse.
IndexTable SelectedRanks(const MetricInput& input, int64_t k, int64_t half) {
  const tenon_resource& resource = Find(input, {TENON_RESOURCE_SELECTED_RANKS, kPair, k, 0});
  return {static_cast<const int32_t*>(resource.data) + half * input.n * resource.key.k,
          resource.key.k};
}

// Stores the mean of local(i) over the rows under output `number`, and the values if wanted.
void StoreMean(const MeasureSpec& spec, const MetricInput& input, size_t number,
               const std::function<double(int64_t i)>& local, MeasureScores& result) {
  const OutputInfo& output = spec.info->outputs[number];
  std::vector<double> values;
  if (input.return_local) values.reserve(input.n);
  CompensatedSum sum;
  for (int64_t i = 0; i < input.n; ++i) {
    const double value = local(i);
    sum.Add(value);
    if (input.return_local) values.push_back(value);
  }
  result.scores[output.key] = sum.Value() / static_cast<double>(input.n);
  if (input.return_local) result.local_scores[output.local_key] = std::move(values);
}

absl::StatusOr<MeasureScores> OneScore(const MeasureSpec& spec, double value) {
  if (!std::isfinite(value)) {
    return Error(Reason::kUndefinedScore,
                 absl::StrCat(spec.info->id,
                              " is not defined: distances of the projection (ld) or "
                              "of the data set (hd) overflow or underflow"))
        .Field("projection");
  }
  MeasureScores result;
  result.scores[spec.info->outputs.front().key] = value;
  return result;
}

// ---- Neighbourhoods --------------------------------------------------------------------------

absl::StatusOr<MeasureScores> TrustworthinessContinuity(const MeasureSpec& spec,
                                                        const MetricInput& input) {
  const int64_t k = spec.Integer("k"), n = input.n;
  const double scale = 2.0 / (static_cast<double>(k) * static_cast<double>(2 * n - 3 * k - 1));
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

// ---- Pairs -----------------------------------------------------------------------------------

const ResourceKey kPairStatisticsKey = {TENON_RESOURCE_PAIR_STATISTICS, kPair, 0, 0};
const ResourceKey kPairOrderKey = {TENON_RESOURCE_PAIR_ORDER, kOriginal, 0, 0};

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
  const auto& original = Read<PairOrderHeader>(input, kPairOrderKey);
  const auto& ordered = Read<OrderedPairStatistics>(input, OrderedKey(kRankCorrelation));
  if (ordered.min_embedded == ordered.max_embedded) {
    return EqualDistances(spec, kEmbedded, ordered.max_embedded);
  }
  const double rho = ToDouble(ordered.rank_comoment) / std::sqrt(ToDouble(original.rank_moment)) /
                     std::sqrt(ToDouble(ordered.rank_moment));
  return OneScore(spec, std::clamp(rho, -1.0, 1.0));
}

absl::StatusOr<MeasureScores> NonMetricStress(const MeasureSpec& spec, const MetricInput& input) {
  const auto& ordered = Read<OrderedPairStatistics>(input, OrderedKey(kIsotonicFit));
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

// ---- The table -------------------------------------------------------------------------------

std::vector<ResourceKey> RanksOf(const MeasureSpec& spec) {
  const int64_t k = spec.Integer("k");
  return {{TENON_RESOURCE_KNN, kOriginal, k, 0}, {TENON_RESOURCE_SELECTED_RANKS, kPair, k, 0}};
}

std::vector<ResourceKey> BothNeighbors(const MeasureSpec& spec) {
  const int64_t k = spec.Integer("k");
  return {{TENON_RESOURCE_KNN, kOriginal, k, 0}, {TENON_RESOURCE_KNN, kEmbedded, k, 0}};
}

std::vector<ResourceKey> EmbeddedNeighbors(const MeasureSpec& spec) {
  return {{TENON_RESOURCE_KNN, kEmbedded, spec.Integer("k"), 0}};
}

std::vector<ResourceKey> PairSums(const MeasureSpec&) { return {kPairStatisticsKey}; }

std::vector<ResourceKey> RankSums(const MeasureSpec&) {
  return {kPairOrderKey, OrderedKey(kRankCorrelation)};
}

std::vector<ResourceKey> FitSums(const MeasureSpec&) {
  return {kPairOrderKey, OrderedKey(kIsotonicFit)};
}

std::vector<ResourceKey> BothDensities(const MeasureSpec& spec) {
  return {DensityKey(spec, kOriginal), DensityKey(spec, kEmbedded)};
}

absl::Status NoCheck(const MeasureSpec&, const MetricInput&) { return absl::OkStatus(); }

absl::Status DistancesDiffer(const MeasureSpec& spec, const MetricInput& input) {
  const auto& original = Read<PairOrderHeader>(input, kPairOrderKey);
  if (original.min_distance != original.max_distance) return absl::OkStatus();
  return EqualDistances(spec, kOriginal, original.max_distance);
}

absl::Status DistancesNotZero(const MeasureSpec& spec, const MetricInput& input) {
  const auto& original = Read<PairOrderHeader>(input, kPairOrderKey);
  return original.max_distance > 0 ? absl::OkStatus() : ZeroDistances(spec, kOriginal);
}

absl::Status DensityExists(const MeasureSpec& spec, const MetricInput& input) {
  const double* density = &Read<double>(input, DensityKey(spec, kOriginal));
  const double largest = density[input.n];
  if (!std::isfinite(largest)) return Overflow(spec, kOriginal, largest);
  return largest > 0 ? absl::OkStatus() : ZeroDistances(spec, kOriginal);
}

struct Metric {
  std::string_view alias;
  std::vector<ResourceKey> (*requirements)(const MeasureSpec&);
  absl::Status (*check_original)(const MeasureSpec&, const MetricInput&);
  absl::StatusOr<MeasureScores> (*evaluate)(const MeasureSpec&, const MetricInput&);
};

constexpr Metric kMetrics[] = {
    {"tnc", RanksOf, NoCheck, TrustworthinessContinuity},
    {"mrre", RanksOf, NoCheck, MeanRelativeRankError},
    {"lcmc", BothNeighbors, NoCheck, LocalContinuity},
    {"nh", EmbeddedNeighbors, NoCheck, NeighborhoodHit},
    {"stress", PairSums, NoCheck, Stress},
    {"sn_stress", PairSums, NoCheck, ScaleNormalizedStress},
    {"pr", PairSums, NoCheck, Pearson},
    {"srho", RankSums, DistancesDiffer, Spearman},
    {"nm_stress", FitSums, DistancesNotZero, NonMetricStress},
    {"kl_div", BothDensities, DensityExists, KlDivergence},
    {"dtm", BothDensities, DensityExists, DistanceToMeasure},
};

// The metric of a measure that the registry calls implemented.
const Metric& MetricOf(const MeasureSpec& spec) {
  return *std::find_if(std::begin(kMetrics), std::end(kMetrics),
                       [&](const Metric& metric) { return metric.alias == spec.info->alias; });
}

}  // namespace

std::vector<ResourceKey> Requirements(const MeasureSpec& spec) {
  return MetricOf(spec).requirements(spec);
}

absl::Status CheckOriginalSide(const MeasureSpec& spec, const MetricInput& input) {
  return MetricOf(spec).check_original(spec, input);
}

absl::StatusOr<MeasureScores> Evaluate(const MeasureSpec& spec, const MetricInput& input) {
  return MetricOf(spec).evaluate(spec, input);
}

}  // namespace tenon::measurement
