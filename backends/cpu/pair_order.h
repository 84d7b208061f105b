// Orders of all pairs and what measures take from them.

#ifndef TENON_BACKENDS_CPU_PAIR_ORDER_H_
#define TENON_BACKENDS_CPU_PAIR_ORDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"
#include "backends/cpu/pair_buckets.h"
#include "backends/measurement/resource.h"

namespace tenon::cpu {

// The arrays of a PAIR_ORDER resource; those that it has not are null.
struct PairOrderView {
  int64_t pairs = 0;
  measurement::PairOrderHeader* header = nullptr;
  uint32_t* twice_ranks = nullptr;   // kRankOrder
  uint32_t* positions = nullptr;     // kPositionOrder
  uint64_t* group_starts = nullptr;  // kPositionOrder
  static PairOrderView Of(const tenon_resource& resource, int64_t pairs);
};

// Fills pair orders from records of distance and pair number.
absl::Status FinishPairOrders(PairBuckets<uint32_t>& records, const Parallel& parallel,
                              std::span<const PairOrderView> orders);

// Sums of ranks from records of embedded distance and twice the original rank, for `pairs` pairs.
// Fills the embedded side of the statistics.
template <typename Payload>
absl::Status CorrelateRanks(PairBuckets<Payload>& records, int64_t pairs, const Parallel& parallel,
                            measurement::OrderedPairStatistics& statistics);

// Embedded distances in the order of the original ones, for the fit of one over the other.
class OrderedValues {
 public:
  static int64_t Bytes(int64_t pairs);
  // `order` is a kPositionOrder and outlives this.
  static absl::StatusOr<OrderedValues> Create(const PairOrderView& order);

  // The value of a pair; different pairs may be set at once.
  void Set(int64_t pair, double value) { values_.as<double>()[order_.positions[pair]] = value; }

  // Fills the part kIsotonicFit of the statistics, once all values are set. Uses the values up.
  absl::Status Fit(const Parallel& parallel, measurement::OrderedPairStatistics& statistics);

 private:
  PairOrderView order_;
  Buffer values_, counts_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_PAIR_ORDER_H_
