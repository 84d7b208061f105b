// Orders of all pairs and what measures take from them.

#ifndef TENON_BACKENDS_CPU_PAIR_ORDER_H_
#define TENON_BACKENDS_CPU_PAIR_ORDER_H_

#include <cstdint>

#include "backends/core/parallel.h"
#include "backends/cpu/radix_sort.h"
#include "backends/measurement/resource.h"

namespace tenon::cpu {

// The arrays of a PAIR_ORDER resource.
struct PairOrderView {
  int64_t pairs;
  measurement::PairOrderHeader* header;
  uint32_t* order;
  uint32_t* twice_ranks;
  static PairOrderView Of(void* data, int64_t pairs);
};

// Fills a pair order from records whose distances are those of all pairs in pair order; the records
// are used up.
absl::Status BuildPairOrder(RadixRecords& records, const Parallel& parallel,
                            const PairOrderView& order);

// Fills the part kRankCorrelation from records as above, which are used up.
absl::Status CorrelateRanks(RadixRecords& records, const Parallel& parallel,
                            const PairOrderView& original,
                            measurement::OrderedPairStatistics& statistics);

// Scratch of FitIsotonic for this many pairs.
inline int64_t IsotonicBytes(int64_t pairs) { return pairs * (8 + 16); }

// Fills the part kIsotonicFit: `embedded` are the distances of all pairs in pair order.
absl::Status FitIsotonic(const double* embedded, const Parallel& parallel,
                         const PairOrderView& original,
                         measurement::OrderedPairStatistics& statistics);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_PAIR_ORDER_H_
