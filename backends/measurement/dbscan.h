// Density-based clustering.
//
// Ester, Kriegel, Sander and Xu: A density-based algorithm for discovering clusters in large
// spatial databases with noise, KDD 1996.

#ifndef TENON_BACKENDS_MEASUREMENT_DBSCAN_H_
#define TENON_BACKENDS_MEASUREMENT_DBSCAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/row_metric.h"
#include "backends/plugin/abi.h"

namespace tenon::measurement {

// The cluster of every row, or -1 for noise. A row is a core point if at least `min_samples` rows,
// itself included, lie within `eps` (inclusive). Clusters are connected sets of core points,
// numbered by their first row; any other row within `eps` of a core point joins the first such
// cluster. These are the labels of scikit-learn's DBSCAN, which depend on the order of rows only.
//
// As there, Minkowski distances are compared as sums of powers with a power of `eps`; metrics that
// compare sets see whether a value is zero; the cosine distance from a zero row is 1 (0 from
// itself). A distance that is NaN is beyond any radius. braycurtis is SciPy's.
//
// `eps` > 0; `min_samples` >= 1; `minkowski_p` >= 1 is for RowMetric::kMinkowski. Points are
// float32 or float64, computed in float64. The result does not depend on the number of threads.
// Errors: CLIENT_CANCELLED. Takes DbscanBytes; time is near n for up to a few columns of the
// Minkowski family, n^2 distances at worst for others.
absl::StatusOr<std::vector<int32_t>> Dbscan(const tenon_matrix& points, double eps,
                                            int64_t min_samples, RowMetric metric,
                                            double minkowski_p, const Parallel& parallel);

// Bytes that Dbscan takes at once, its result included.
int64_t DbscanBytes(int64_t rows, int64_t columns);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_DBSCAN_H_
