// The refusal of a contraction whose planned peak exceeds its memory budget.

#ifndef TENON_BACKENDS_SCHEDULE_PEAK_REFUSAL_H_
#define TENON_BACKENDS_SCHEDULE_PEAK_REFUSAL_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace tenon::schedule {

// EXCEEDS_MEMORY_BUDGET at "execution.memory_budget_bytes" with metadata planned_peak_bytes,
// memory_budget_bytes and, where some of the peak is the caller's, staging_bytes. A peak that is
// counted is enough as a budget: smallest_budget_bytes. One from kMostPlannedBytes on is only a
// lower bound: planned_peak_is_lower_bound is "true" then. All in bytes.
absl::Status PeakRefusal(int64_t peak, int64_t budget,
                         std::optional<int64_t> staging = std::nullopt);

// The peak that such a refusal tells, whatever became of its reason; nothing of other errors.
std::optional<int64_t> RefusedPeak(const absl::Status& status);

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_PEAK_REFUSAL_H_
