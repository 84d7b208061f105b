// Sorts (distance, payload) records by distance: a stable least-significant-digit radix sort.

#ifndef TENON_BACKENDS_CPU_RADIX_SORT_H_
#define TENON_BACKENDS_CPU_RADIX_SORT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"

namespace tenon::cpu {

// Records as two arrays. Distances are not negative and not NaN, so their bits order as they do.
class RadixRecords {
 public:
  // Bytes for `count` records, the second copy that sorting needs included.
  static int64_t Bytes(int64_t count) { return 2 * count * int64_t{8 + 4}; }
  static absl::StatusOr<RadixRecords> Allocate(int64_t count);

  int64_t count() const { return count_; }
  double* distances() { return distances_[current_].as<double>(); }
  uint32_t* payloads() { return payloads_[current_].as<uint32_t>(); }

  // Sorts; equal distances keep their order. The result does not depend on the threads.
  absl::Status Sort(const Parallel& parallel);

 private:
  int64_t count_ = 0;
  int current_ = 0;
  Buffer distances_[2], payloads_[2];
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_RADIX_SORT_H_
