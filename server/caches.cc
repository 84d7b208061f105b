#include "server/caches.h"

#include <utility>

#include "server/content_store.h"

namespace tenon::server {
namespace {

CacheFigures OfPlans(const ServerState& state) {
  const planner::PlanCache::Counters plans = state.plan_cache.counters();
  return {.name = "plan_cache",
          .hits = plans.hits,
          .misses = plans.misses,
          .evictions = plans.evictions,
          .entries = plans.entries,
          .bytes = plans.bytes,
          .limit_bytes = state.plan_cache.limit_bytes()};
}

CacheFigures OfPrograms(const ServerState& state) {
  const schedule::ProgramCache::Counters programs = state.programs.counters();
  return {.name = "program_cache",
          .hits = programs.hits,
          .misses = programs.misses,
          .evictions = programs.evictions,
          .entries = static_cast<int64_t>(state.programs.entries()),
          .bytes = state.programs.bytes(),
          .limit_bytes = state.programs.limit_bytes()};
}

CacheFigures OfStored(std::string name, const ContentStore::Counters& counters) {
  return {.name = std::move(name),
          .hits = counters.hits,
          .misses = counters.misses,
          .evictions = counters.evictions,
          .entries = counters.entries,
          .bytes = counters.bytes};
}

}  // namespace

std::vector<CacheFigures> ReadCaches(ServerState& state) {
  ContentStore::AllCounters stored;
  if (state.store != nullptr) stored = state.store->counters();
  CacheFigures resources = OfStored("resources", stored.resources);
  for (const ProviderStatistics& provider : state.metrics.Providers()) {
    resources.hits += provider.resources_reused;
    resources.misses += provider.resources_built;
  }
  return {OfPlans(state), OfPrograms(state), OfStored("datasets", stored.datasets),
          OfStored("tensors", stored.tensors), std::move(resources)};
}

}  // namespace tenon::server
