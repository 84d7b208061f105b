// What measures take from one row of keys of distances while it is in the cache.

#ifndef TENON_BACKENDS_CPU_ROW_KERNELS_H_
#define TENON_BACKENDS_CPU_ROW_KERNELS_H_

#include <cstdint>
#include <utility>

#include "backends/cpu/distance_key.h"
#include "backends/cpu/pair_buckets.h"

namespace tenon::cpu {

using Neighbor = std::pair<double, int32_t>;  // distance, row index; ordered by both

// Scratch of NearestOfRow.
struct CandidateScratch {
  Neighbor* candidates;  // CandidateCapacity(k)
  int32_t* found;        // CandidateCapacity(k)
};
inline int64_t CandidateCapacity(int64_t k) { return 2 * k + 128; }

// The k nearest of row[0 .. n) by (distance, index) without `self`, in order. row[self] is
// overwritten while this runs and put back.
void NearestOfRow(KeyKind kind, double* row, int64_t n, int64_t self, int64_t k,
                  const CandidateScratch& scratch, int32_t* nearest);

// Scratch of RanksInRow for `count` targets.
struct RankScratch {
  double* bounds;   // 3 * count
  int64_t* counts;  // 2 * count
  int32_t* order;   // count
};

// ranks[t] = rank of target t in the row ordered by (distance, index) with `self` at rank 0, for
// `count` targets other than `self`. row[self] is overwritten while this runs and put back.
void RanksInRow(KeyKind kind, double* row, int64_t n, int64_t self, const int32_t* targets,
                int64_t count, const RankScratch& scratch, int32_t* ranks);

// ranks[j] = rank of j in the row ordered by (distance, index) with `self` at rank 0, for all n <=
// 65536 columns. `records` has room for 2 n.
void RankAll(KeyKind kind, const double* row, int64_t n, int64_t self,
             PairRecord<uint32_t>* records, uint16_t* ranks);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_ROW_KERNELS_H_
