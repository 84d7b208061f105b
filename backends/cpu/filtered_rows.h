// What measures take from a row of approximate squares (distance_filter.h): the same as from the
// row of exact keys (row_kernels.h), or nothing where too many columns lie within the margin.

#ifndef TENON_BACKENDS_CPU_FILTERED_ROWS_H_
#define TENON_BACKENDS_CPU_FILTERED_ROWS_H_

#include <cstdint>

#include "backends/cpu/distance_filter.h"
#include "backends/cpu/row_kernels.h"

namespace tenon::cpu {

struct FilteredRow {
  const DistanceFilter& filter;
  int64_t i;      // which row
  float* values;  // written by filter.Rows; values[i] is overwritten at times and put back
  int64_t n;
};

// As NearestOfRow. False: undecided, `nearest` is not written.
bool NearestOfFilteredRow(const FilteredRow& row, int64_t k, const CandidateScratch& scratch,
                          int32_t* nearest);

// Scratch of RanksInFilteredRow for `count` targets.
struct FilteredRankScratch {
  double* keys;          // count
  float* bounds;         // 2 * count
  int64_t* tile_counts;  // 2 * count
  int64_t* counts;       // count
};

// As RanksInRow. False: undecided, `ranks` is not written.
bool RanksInFilteredRow(const FilteredRow& row, const int32_t* targets, int64_t count,
                        const FilteredRankScratch& scratch, int32_t* ranks);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_FILTERED_ROWS_H_
