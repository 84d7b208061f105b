// Gap Index: how much the empty regions of a projection change their share of the area.

#ifndef TENON_BACKENDS_MEASUREMENT_GAP_INDEX_H_
#define TENON_BACKENDS_MEASUREMENT_GAP_INDEX_H_

#include "backends/measurement/metric.h"

namespace tenon::measurement {

// The score. Errors: SHAPE_MISMATCH with field "projection" if it has not two columns;
// UNDEFINED_SCORE.
absl::StatusOr<MeasureScores> GapIndex(const MeasureSpec& spec, const MetricInput& input);

// What does not depend on the projection. TOO_FEW_ROWS below three rows. With given distances:
// SHAPE_MISMATCH unless they are n x n, UNDEFINED_SCORE for negative distances, and where the
// matrix is not symmetric or its diagonal not zero within 1e-8 + 1e-5 |distance|; the field is
// "dataset" or "precomputed_handle".
absl::Status CheckGapIndex(const MeasureSpec& spec, const MetricInput& input);

int64_t GapIndexBytes(const MeasureSpec& spec, const MetricShape& shape);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_GAP_INDEX_H_
