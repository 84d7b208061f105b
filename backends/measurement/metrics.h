// Scores from resources: the last step of every measure.

#ifndef TENON_BACKENDS_MEASUREMENT_METRICS_H_
#define TENON_BACKENDS_MEASUREMENT_METRICS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/resource.h"
#include "backends/measurement/scores.h"
#include "backends/plugin/abi.h"

namespace tenon::measurement {

// The resources `spec` is scored from; the embedded and pair ones are built per projection.
std::vector<ResourceKey> Requirements(const MeasureSpec& spec);

// What a score is computed from.
struct MetricInput {
  int64_t n = 0;
  bool return_local = false;
  std::vector<tenon_resource> resources;          // at least the requirements, or a larger k
  const std::vector<int32_t>* classes = nullptr;  // class numbers, if any measure needs them
};

// UNDEFINED_SCORE with field "dataset" if the original side alone makes the score undefined, as far
// as its resources tell. `input` needs only the original resources.
absl::Status CheckOriginalSide(const MeasureSpec& spec, const MetricInput& input);

// The score. UNDEFINED_SCORE with field "projection" or "dataset".
absl::StatusOr<MeasureScores> Evaluate(const MeasureSpec& spec, const MetricInput& input);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_METRICS_H_
