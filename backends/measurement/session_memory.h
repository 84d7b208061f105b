// The bytes of a session's plan.

#ifndef TENON_BACKENDS_MEASUREMENT_SESSION_MEMORY_H_
#define TENON_BACKENDS_MEASUREMENT_SESSION_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/measurement/session_plan.h"

namespace tenon::measurement {

// Fills in the sizes of a plan whose keys are there, and how many projections are in flight. Errors
// as PlanSession.
absl::Status PlanMemory(const std::vector<MeasureSpec>& specs, const SessionOptions& options,
                        const SessionProviders& providers, SessionPlan& plan);

// Scratch to grant for a projection of this width. One wider than planned gets what it needs,
// within an equal share of the budget per projection in flight. EXCEEDS_MEMORY_BUDGET with field
// "projection"; its smallest_budget_bytes is enough for as many such projections at once as were
// wanted.
absl::StatusOr<int64_t> ProjectionWorking(int64_t columns, const std::vector<MeasureSpec>& specs,
                                          const SessionOptions& options, const SessionPlan& plan,
                                          const SessionProviders& providers);

// All that such a projection takes at most: its copy, its resources, and the larger of the scratch
// of their building and that of the measures' last steps. Errors as ProjectionWorking.
absl::StatusOr<int64_t> ProjectionPeak(int64_t columns, const std::vector<MeasureSpec>& specs,
                                       const SessionOptions& options, const SessionPlan& plan,
                                       const SessionProviders& providers);

// The matrix of one space without its data.
tenon_matrix MatrixOf(const SessionOptions& options, bool original, int64_t columns);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SESSION_MEMORY_H_
