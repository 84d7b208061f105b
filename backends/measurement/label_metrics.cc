// Measures of how well classes are separated: distance consistency, label trustworthiness and
// continuity.

#include <algorithm>
#include <cmath>

#include "backends/core/error.h"
#include "backends/measurement/chance_separation.h"
#include "backends/measurement/class_separation.h"
#include "backends/measurement/classes.h"
#include "backends/measurement/metric.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

// Classes whose pairs are counted together.
constexpr int64_t kTile = 128;

ClassPoints PointsOf(const MeasureSpec& spec, const MetricInput& input, int32_t space) {
  const bool as_input = spec.Text("arithmetic") == "input";
  return space == kOriginal ? ClassPoints{input.original, as_input && input.original_is_single}
                            : ClassPoints{input.embedded, as_input && input.embedded_is_single};
}

absl::Status ClassOverflow(const MeasureSpec& spec, int32_t space) {
  return Undefined(spec, space, "means of classes or distances to them overflow");
}

absl::StatusOr<MeasureScores> DistanceConsistency(const MeasureSpec& spec,
                                                  const MetricInput& input) {
  TENON_ASSIGN_OR_RETURN(
      const int64_t consistent,
      CountConsistent(PointsOf(spec, input, kEmbedded), ClassMembers(input), *input.parallel));
  if (consistent < 0) return ClassOverflow(spec, kEmbedded);
  return OneScore(spec, static_cast<double>(consistent) / static_cast<double>(input.n));
}

// ---- Label trustworthiness and continuity ----------------------------------------------------

// Sums over pairs of classes of what separation is lost and won in the projection.
struct LabelChanges {
  CompensatedSum lost, won;
  void Add(double original, double embedded) {
    lost.Add(std::max(0.0, original - embedded));
    won.Add(std::max(0.0, embedded - original));
  }
};

absl::StatusOr<LabelChanges> ConsistencyChanges(const MeasureSpec& spec, const MetricInput& input) {
  const ClassMembers members(input);
  const ClassPoints original = PointsOf(spec, input, kOriginal);
  const ClassPoints embedded = PointsOf(spec, input, kEmbedded);
  const int64_t classes = members.classes();
  LabelChanges changes;
  for (int64_t first_a = 0; first_a < classes; first_a += kTile) {
    const ClassRange as = {first_a, std::min(classes, first_a + kTile)};
    for (int64_t first_b = first_a; first_b < classes; first_b += kTile) {
      const ClassRange bs = {first_b, std::min(classes, first_b + kTile)};
      TENON_ASSIGN_OR_RETURN(const auto before,
                             PairConsistency(original, members, as, bs, *input.parallel));
      TENON_ASSIGN_OR_RETURN(const auto after,
                             PairConsistency(embedded, members, as, bs, *input.parallel));
      if (before.front() < 0) return ClassOverflow(spec, kOriginal);
      if (after.front() < 0) return ClassOverflow(spec, kEmbedded);
      for (int64_t p = 0; p < as.size() * bs.size(); ++p) {
        if (as.first + p / bs.size() < bs.first + p % bs.size()) changes.Add(before[p], after[p]);
      }
    }
  }
  return changes;
}

absl::StatusOr<LabelChanges> ChanceChanges(const MeasureSpec& spec, const MetricInput& input) {
  LabelChanges changes;
  const auto add = [&](double original, double embedded) {
    for (const int32_t space : {kOriginal, kEmbedded}) {
      if (!std::isnan(space == kOriginal ? original : embedded)) continue;
      return Undefined(
          spec, space,
          "the exponentials of distances overflow, or a pair of classes has two points "
          "in all or all its points equally far from their mean");
    }
    changes.Add(original, embedded);
    return absl::OkStatus();
  };
  const ShuffleOptions options = {static_cast<uint64_t>(spec.Integer("random.seed")),
                                  spec.Text("random.generator") == "numpy"};
  TENON_RETURN_IF_ERROR(
      ForEachChanceSeparation(PointsOf(spec, input, kOriginal), PointsOf(spec, input, kEmbedded),
                              ClassMembers(input), options, *input.parallel, add));
  return changes;
}

absl::StatusOr<MeasureScores> LabelTrustworthiness(const MeasureSpec& spec,
                                                   const MetricInput& input) {
  const bool consistency = spec.Text("cvm") == "dsc";
  TENON_ASSIGN_OR_RETURN(const LabelChanges changes, consistency ? ConsistencyChanges(spec, input)
                                                                 : ChanceChanges(spec, input));
  // From [0, 1] to [-1, 1]: differences are twice as large.
  const double scale = consistency && spec.Bool("rescale_dsc") ? 2.0 : 1.0;
  const auto pairs = static_cast<double>(PairCount(input.n_classes));
  MeasureScores result;
  result.scores["label_trustworthiness"] = 1.0 - scale * changes.lost.Value() / pairs;
  result.scores["label_continuity"] = 1.0 - scale * changes.won.Value() / pairs;
  return result;
}

// ---- Table -----------------------------------------------------------------------------------

int64_t ConsistencyBytes(const MeasureSpec&, const MetricShape& shape) {
  const int64_t classes = shape.n;  // at most
  return ClassMembers::Bytes(shape.n) * 2 +
         classes * shape.embedded_columns * int64_t{sizeof(double)};
}

int64_t LabelBytes(const MeasureSpec& spec, const MetricShape& shape) {
  const int64_t members = 2 * ClassMembers::Bytes(shape.n);
  const int64_t columns = shape.original_columns + shape.embedded_columns;
  if (spec.Text("cvm") == "ch_btw") return members + ChanceSeparationBytes(shape.n, columns);
  const int64_t tile = std::min(kTile, shape.n);
  return members + 2 * tile * (columns + 2 * tile) * int64_t{sizeof(double)};
}

constexpr Metric kMetrics[] = {
    {.alias = "dsc",
     .embedded_points = true,
     .evaluate = DistanceConsistency,
     .check_original = CheckTwoClasses,
     .working_bytes = ConsistencyBytes},
    {.alias = "l_tnc",
     .original_points = true,
     .embedded_points = true,
     .evaluate = LabelTrustworthiness,
     .check_original = CheckTwoClasses,
     .working_bytes = LabelBytes},
};

}  // namespace

std::span<const Metric> LabelMetrics() { return kMetrics; }

}  // namespace tenon::measurement
