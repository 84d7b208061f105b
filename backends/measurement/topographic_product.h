// Topographic Product: how far the order of neighbours is preserved, from ratios of distances.

#ifndef TENON_BACKENDS_MEASUREMENT_TOPOGRAPHIC_PRODUCT_H_
#define TENON_BACKENDS_MEASUREMENT_TOPOGRAPHIC_PRODUCT_H_

#include "backends/measurement/metric.h"

namespace tenon::measurement {

// The score (Bauer and Pawelzik, 1992). UNDEFINED_SCORE if a neighbour in the data set has distance
// 0 in the projection, or if a product of ratios is not positive and finite. Only the k neighbours
// asked for matter, whatever the k of other specifications is.
absl::StatusOr<MeasureScores> TopographicProduct(const MeasureSpec& spec, const MetricInput& input);

// UNDEFINED_SCORE with field "dataset" if a row has distance 0 from one of its k neighbours.
absl::Status CheckTopographicProduct(const MeasureSpec& spec, const MetricInput& input);

int64_t TopographicProductBytes(const MeasureSpec& spec, const MetricShape& shape);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_TOPOGRAPHIC_PRODUCT_H_
