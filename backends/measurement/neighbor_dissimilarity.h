// Neighbour dissimilarity: how far the shared-neighbour graphs of two spaces are apart.

#ifndef TENON_BACKENDS_MEASUREMENT_NEIGHBOR_DISSIMILARITY_H_
#define TENON_BACKENDS_MEASUREMENT_NEIGHBOR_DISSIMILARITY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/metric_input.h"

namespace tenon::measurement {

// In each space rows are adjacent if one is among the k neighbours of the other, and S(i, j) is the
// number of rows adjacent to both i and j. The result is the larger root of the sum of
// ((S_original - S_embedded) / k)^2 over the ordered pairs i != j where that difference is
// positive, and where it is negative (Fu et al., KDD 2019). Exact integers up to the root.
//
// Time is the sum of the squared degrees, which is n (2k)^2 or so, and n^2 for rows that are
// neighbours of all others. Errors: CLIENT_CANCELLED.
absl::StatusOr<double> NeighborDissimilarity(int64_t n, int64_t k, const IndexTable& original,
                                             const IndexTable& embedded, const Parallel& parallel);

// Bytes that it takes at once.
int64_t NeighborDissimilarityBytes(int64_t n, int64_t k, int threads);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_NEIGHBOR_DISSIMILARITY_H_
