// Sums over the pairs of one row of both spaces.
//
// Sums have eight partial sums and a fixed order, so their bits depend on the row only, not on the
// instruction set.

#ifndef TENON_BACKENDS_CPU_PAIR_SUMS_H_
#define TENON_BACKENDS_CPU_PAIR_SUMS_H_

#include <cstdint>

#include "backends/measurement/resource.h"

namespace tenon::cpu {

// One row: distances, or their squares, of which the root is taken on the way.
struct PairRow {
  const double* values = nullptr;
  bool squares = false;
};

// Sums over `count` pairs. All but scaled_residual are filled; moments are about the means of this
// row.
measurement::PairStatistics PairSums(PairRow original, PairRow embedded, int64_t count);

// Adds the sums of `row` to `total` (means and moments by the rule of Chan et al., Updating
// formulae and a pairwise algorithm for computing sample variances, 1979). The plain sums of
// `total` are left alone: callers add them with compensation.
void MergeMoments(const measurement::PairStatistics& row, measurement::PairStatistics& total);

// Sum over `count` pairs of (original - scale * embedded)^2.
double ScaledResidual(PairRow original, PairRow embedded, int64_t count, double scale);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_PAIR_SUMS_H_
