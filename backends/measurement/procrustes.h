// Local Procrustes measure: how well the neighbourhoods of both spaces match after a rotation.

#ifndef TENON_BACKENDS_MEASUREMENT_PROCRUSTES_H_
#define TENON_BACKENDS_MEASUREMENT_PROCRUSTES_H_

#include <vector>

#include "backends/measurement/metric.h"

namespace tenon::measurement {

std::vector<ResourceKey> ProcrustesRequirements(const MeasureSpec& spec);

// The mean over the rows of the relative residual of a RotationFit of their neighbourhoods
// (Goldberg and Ritov, 2009).
absl::StatusOr<MeasureScores> Procrustes(const MeasureSpec& spec, const MetricInput& input);

// UNDEFINED_SCORE with field "dataset" if all k neighbours of a row coincide, as one always does.
absl::Status CheckProcrustes(const MeasureSpec& spec, const MetricInput& input);

int64_t ProcrustesBytes(const MeasureSpec& spec, const MetricShape& shape);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_PROCRUSTES_H_
