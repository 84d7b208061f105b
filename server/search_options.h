// The options of a search for a plan, from the wire to the planner.

#ifndef TENON_SERVER_SEARCH_OPTIONS_H_
#define TENON_SERVER_SEARCH_OPTIONS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "backends/planner/search.h"
#include "server/state.h"
#include "tenon/v1/plan.pb.h"

namespace tenon::server {

// What a request asks of the planner.
struct PlanQuestion {
  // Without memory limit, initial plan and time model: those are the contraction's.
  planner::SearchOptions options;
  v1::SearchObjective objective = v1::SEARCH_OBJECTIVE_WEIGHTED;
  v1::PlanCachePolicy cache = v1::PLAN_CACHE_POLICY_USE;
  bool default_budget = true;  // the request limits neither trials nor time
  bool has_methods = false;
  // Whose time model counts and whose memory is planned; null: the contraction's first one.
  std::shared_ptr<plugin::Provider> provider;
};

// A search that nobody asked anything of: the server's budget, slices where they are needed.
PlanQuestion DefaultQuestion(const ServerState& state);

// Checks and reads `search`, whose fields are named `prefix` + name in errors: BAD_PARAMETER,
// MISSING_FIELD (an unknown value of an enumeration), EXCEEDS_SERVER_LIMIT (seconds), and those of
// ProviderRegistry::Find.
absl::Status ReadSearchOptions(const v1::SearchOptions& search, const std::string& prefix,
                               const ServerState& state, PlanQuestion* question);

v1::SearchMethod ToWire(planner::Method method);
v1::SlicingMode ToWire(planner::SlicingMode mode);

}  // namespace tenon::server

#endif  // TENON_SERVER_SEARCH_OPTIONS_H_
