// What a session builds, and the memory it needs, known before anything is allocated.

#ifndef TENON_BACKENDS_MEASUREMENT_SESSION_PLAN_H_
#define TENON_BACKENDS_MEASUREMENT_SESSION_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/resource.h"
#include "backends/measurement/session.h"
#include "backends/plugin/provider.h"

namespace tenon::measurement {

// All sizes in bytes.
struct SessionPlan {
  std::vector<ResourceKey> original_keys;    // built once, from the data set alone
  std::vector<ResourceKey> late_keys;        // of the original space too, with the first projection
  std::vector<ResourceKey> projection_keys;  // built per projection
  bool needs_points = false;                 // whether projections need the original points
  int64_t points = 0;       // the widened copy of the data set, if kept or needed once
  int64_t precomputed = 0;  // widened copies of given distances
  int64_t original_resources = 0;
  int64_t original_working = 0;    // scratch while the original side is built
  int64_t projection_fixed = 0;    // one projection: its copy, its resources, its local scores
  int64_t projection_working = 0;  // scratch while its resources are built
  int64_t metric_working = 0;      // scratch of the measures' last steps, after that
  int64_t labels = 0;
  int threads = 1;
  int in_flight = 1;
  std::string in_flight_limit;

  int64_t Original() const { return points + precomputed + original_resources + labels; }
  int64_t Projection() const {
    return projection_fixed + std::max(projection_working, metric_working);
  }
  int64_t Peak() const { return Original() + std::max(original_working, in_flight * Projection()); }
};

// Errors: UNSUPPORTED_BY_PROVIDER, EXCEEDS_MEMORY_BUDGET (metadata budget_bytes and
// smallest_budget_bytes), those of ResourceBytes and of the provider's planning.
absl::StatusOr<SessionPlan> PlanSession(const std::vector<MeasureSpec>& specs,
                                        const SessionOptions& options, plugin::Provider& provider);

// Scratch to grant for a projection of this width. One wider than planned gets what it needs,
// within an equal share of the budget per projection in flight. EXCEEDS_MEMORY_BUDGET with field
// "projection"; its smallest_budget_bytes is enough for as many such projections at once as were
// wanted.
absl::StatusOr<int64_t> ProjectionWorking(int64_t columns, const SessionOptions& options,
                                          const SessionPlan& plan, plugin::Provider& provider);

// The matrix of one space without its data.
tenon_matrix MatrixOf(const SessionOptions& options, bool original, int64_t columns);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SESSION_PLAN_H_
