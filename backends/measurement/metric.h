// How a measure becomes a score: what it is computed from, and the last step.

#ifndef TENON_BACKENDS_MEASUREMENT_METRIC_H_
#define TENON_BACKENDS_MEASUREMENT_METRIC_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/measurement/metric_input.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/resource.h"
#include "backends/measurement/scores.h"

namespace tenon::measurement {

// What the memory of a measure's own work depends on.
struct MetricShape {
  int64_t n = 0;
  int64_t original_columns = 0;
  int64_t embedded_columns = 0;
  int threads = 1;
  bool return_local = false;
};

// Functions that are null do nothing or need nothing.
struct Metric {
  std::string_view alias;
  // The resources that the score is computed from; the embedded and pair ones are built per
  // projection.
  std::vector<ResourceKey> (*requirements)(const MeasureSpec&) = nullptr;
  // Which points the last step reads itself.
  bool original_points = false, embedded_points = false;
  // The score. UNDEFINED_SCORE with field "projection" or "dataset".
  absl::StatusOr<MeasureScores> (*evaluate)(const MeasureSpec&, const MetricInput&) = nullptr;
  // UNDEFINED_SCORE with field "dataset" if the original side alone makes the score undefined.
  absl::Status (*check_original)(const MeasureSpec&, const MetricInput&) = nullptr;
  // Whether check_original reads the neighbours of the original space, which are otherwise built
  // with the first projection.
  bool checks_neighbors = false;
  // Bytes that `evaluate` takes for itself, n-sized ones and larger, besides what it returns.
  int64_t (*working_bytes)(const MeasureSpec&, const MetricShape&) = nullptr;
};

// The rooms of the table.
std::span<const Metric> NeighborMetrics();
std::span<const Metric> PairMetrics();
std::span<const Metric> ClusterWalkMetrics();
std::span<const Metric> LabelMetrics();
std::span<const Metric> AngleMetrics();
std::span<const Metric> ValidationMetrics();
std::span<const Metric> GeometryMetrics();

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_METRIC_H_
