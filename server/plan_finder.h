// Gives a contraction its plan: the one that it names, one from the cache, or a search's.

#ifndef TENON_SERVER_PLAN_FINDER_H_
#define TENON_SERVER_PLAN_FINDER_H_

#include <functional>

#include "absl/status/status.h"
#include "backends/core/cancel.h"
#include "backends/planner/search.h"
#include "server/contraction_codec.h"
#include "server/state.h"

namespace tenon::server {

// Called for every better plan, in order, from one thread at a time. The call has the plan, as the
// finished one will.
using OnBetterPlan = std::function<void(const planner::FoundPlan&, const ContractCall&)>;

// Sets path, slices, provenance and plan_id of `call`, unless it brings its own path; a call of at
// most two operands that asks nothing of the planner is left to the engine. It may take as long as
// the question allows. A memory budget of INT64_MAX is none. Errors, with the header's fields:
// NOT_FOUND or BAD_PATH (plan_id), UNREACHABLE_TARGET, EXCEEDS_MEMORY_BUDGET, CLIENT_CANCELLED,
// those of MakeExpression.
absl::Status FindPlan(ContractCall* call, ServerState* state, const CancelToken* cancel,
                      const OnBetterPlan& on_better);

}  // namespace tenon::server

#endif  // TENON_SERVER_PLAN_FINDER_H_
