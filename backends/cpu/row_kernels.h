// What measures take from one row of distances while it is in the cache.
//
// Sums have a fixed number of partial sums and a fixed order, so their bits depend on the row only.

#ifndef TENON_BACKENDS_CPU_ROW_KERNELS_H_
#define TENON_BACKENDS_CPU_ROW_KERNELS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "backends/measurement/resource.h"

namespace tenon::cpu {

using Neighbor = std::pair<double, int32_t>;  // distance, row index; ordered by both

// Entries of the candidate buffer of NearestOfRow for this k.
inline int64_t CandidateCapacity(int64_t k) { return 2 * k + 64; }

// The k nearest of row[0 .. n) by (distance, index) without `self`, in order. `candidates` has room
// for CandidateCapacity(k) entries.
void NearestOfRow(const double* row, int64_t n, int64_t self, int64_t k, Neighbor* candidates,
                  int32_t* nearest);

// ranks[t] = rank of target t in the row ordered by (distance, index) with `self` at rank 0, for
// `count` targets other than `self`. row[self] is overwritten while this runs and put back.
void RanksInRow(double* row, int64_t n, int64_t self, const int32_t* targets, int64_t count,
                int32_t* ranks);

// Sums over columns [first, n) of a row of both spaces. All but scaled_residual are filled; moments
// are about the means of this row.
measurement::PairStatistics PairSumsOfRow(const double* original, const double* embedded,
                                          int64_t first, int64_t n);

// Adds the sums of `row` to `total` (means and moments by the rule of Chan et al.). The plain sums
// of `total` are left alone: callers add them with compensation.
void MergeMoments(const measurement::PairStatistics& row, measurement::PairStatistics& total);

// Sum over columns [first, n) of (original - scale * embedded)^2.
double ScaledResidualOfRow(const double* original, const double* embedded, int64_t first, int64_t n,
                           double scale);

double MaximumOfRow(const double* row, int64_t first, int64_t n);

// Sum over j of exp(-(row[j] / maximum)^2 / sigma), within a few units of the last place.
double GaussianSumOfRow(const double* row, int64_t n, double maximum, double sigma);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_ROW_KERNELS_H_
