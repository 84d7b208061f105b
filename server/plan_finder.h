// Gives a contraction its plan: the one that it names, one from the cache, or a search's.

#ifndef TENON_SERVER_PLAN_FINDER_H_
#define TENON_SERVER_PLAN_FINDER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/planner/search.h"
#include "server/contraction_codec.h"
#include "server/queue_wait.h"
#include "server/state.h"

namespace tenon::server {

// Called for every better plan, in order, from one thread at a time. The call has the plan, as the
// finished one will.
using OnBetterPlan = std::function<void(const planner::FoundPlan&, const ContractCall&)>;

// What a search needs before it begins.
struct SearchNeed {
  int64_t bytes = 0;  // of memory: an estimate, see the .cc
  // It takes no longer than a search that nobody asked for may (limits.default_plan_seconds).
  bool brief = false;
};

// Sets path, slices, provenance and plan_id of a call, unless it brings its own path; a call of at
// most two operands that asks nothing of the planner is left to the engine. A memory budget of
// INT64_MAX is none. Errors, with the header's fields: NOT_FOUND or BAD_PATH (plan_id),
// UNREACHABLE_TARGET, EXCEEDS_MEMORY_BUDGET, CLIENT_CANCELLED, those of MakeExpression.
// One thread at a time.
class PlanFinder {
 public:
  // All outlive it; `on_better` may be null.
  PlanFinder(ContractCall* call, ServerState* state, const CancelToken* cancel,
             OnBetterPlan on_better);
  ~PlanFinder();

  // Once, first. True: the call has its plan. False: it takes a search, which may take as long as
  // the question allows. Small networks are searched at once: that takes a millisecond.
  absl::StatusOr<bool> FindAtOnce();
  // Once, after false.
  absl::Status Search();
  SearchNeed search_need() const;

 private:
  class Finder;
  std::unique_ptr<Finder> finder_;
};

// Whether a PlanFinder has nothing to look up and nothing to search.
bool NeedsNoPlan(const ContractCall& call);
// Takes a call through the queue of searches: for its memory, which is held until `search` has
// returned, and for a slot. Brief ones have a queue of their own. Calls `search` on a thread of
// state->searches or state->brief_searches, or `refused` with DEADLINE, OVERLOADED, or the token's
// error where the call was cancelled while it waited and nobody else takes it out of the queue.
// Both keep `wait`, `cancel` and the call alive.
void QueueSearch(ServerState* state, QueueWait* wait, const CancelToken* cancel, SearchNeed need,
                 std::function<void()> search,
                 const std::function<void(const absl::Status&)>& refused);

}  // namespace tenon::server

#endif  // TENON_SERVER_PLAN_FINDER_H_
