// Scores from resources: the last step of every measure.

#ifndef TENON_BACKENDS_MEASUREMENT_METRICS_H_
#define TENON_BACKENDS_MEASUREMENT_METRICS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/measurement/metric.h"

namespace tenon::measurement {

// The metric of a measure.
const Metric& MetricOf(const MeasureSpec& spec);

// As the functions of Metric, those that are null included.
std::vector<ResourceKey> Requirements(const MeasureSpec& spec);
int64_t MetricWorkingBytes(const MeasureSpec& spec, const MetricShape& shape);
absl::Status CheckOriginalSide(const MeasureSpec& spec, const MetricInput& input);
absl::StatusOr<MeasureScores> Evaluate(const MeasureSpec& spec, const MetricInput& input);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_METRICS_H_
