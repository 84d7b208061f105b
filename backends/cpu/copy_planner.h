// Cuts a strided copy into parts that the copy kernels run.

#ifndef TENON_BACKENDS_CPU_COPY_PLANNER_H_
#define TENON_BACKENDS_CPU_COPY_PLANNER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backends/cpu/cache_sizes.h"
#include "backends/cpu/copy_kernels.h"

namespace tenon::cpu {

// Copies that write this much ask for their source ahead of time.
inline constexpr int64_t kFarBytes = kNearBytes;
// Copies that write this much do so past the caches. With shorter ones the next reader loses more
// than the copy wins: measured over random permutations, copying and then reading the target, the
// two meet between 4 and 8 MiB.
inline constexpr int64_t kStreamBytes = 8 << 20;

// Loops with strides in elements; extents are at least 1, and no two iterations have the same
// target. The parts are for kernels with vectors of `vector_bytes`.
std::vector<CopyPart> PlanCopy(std::span<const CopyLoop> loops, int64_t element_bytes,
                               int64_t vector_bytes);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_COPY_PLANNER_H_
