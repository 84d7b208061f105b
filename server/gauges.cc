#include "server/gauges.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/core/block_pool.h"
#include "server/content_store.h"
#include "server/process_stats.h"
#include "server/provider_setup.h"
#include "server/queue_wait.h"
#include "server/scratch_space.h"
#include "server/version.h"

namespace tenon::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Family(const char* name, const char* help, MetricType type = MetricType::Gauge) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void Add(MetricFamily& family, double value, std::vector<ClientMetric::Label> labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

MetricFamily Single(const char* name, const char* help, double value,
                    MetricType type = MetricType::Gauge) {
  MetricFamily family = Family(name, help, type);
  Add(family, value);
  return family;
}

void AppendServer(const ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily build = Family("tenon_build_info", "1; the build, in labels.");
  Add(build, 1, {{"version", Build().version}, {"commit", Build().commit}});
  families.push_back(std::move(build));

  MetricFamily phases = Family("tenon_server_state", "1 for the state the server is in.");
  for (ServerPhase phase : {ServerPhase::kStarting, ServerPhase::kReady, ServerPhase::kLameDuck,
                            ServerPhase::kDraining, ServerPhase::kStopped}) {
    Add(phases, state.lifecycle.phase() == phase ? 1 : 0,
        {{"state", std::string(ServerPhaseName(phase))}});
  }
  families.push_back(std::move(phases));
  families.push_back(Single("tenon_memory_budget_bytes", "Memory of all admitted work together.",
                            static_cast<double>(state.budget.limit_bytes())));
  const int64_t stored = state.store == nullptr ? 0 : state.store->bytes();
  const int64_t built = state.store == nullptr ? 0 : state.store->resource_bytes();
  families.push_back(Single(
      "tenon_memory_reserved_bytes", "Planned peaks of admitted work.",
      static_cast<double>(std::max<int64_t>(state.budget.reserved_bytes() - stored - built, 0))));
  families.push_back(
      Single("tenon_memory_stored_bytes",
             "Data sets and tensors that are kept; evicted when work needs the room.",
             static_cast<double>(stored)));
  families.push_back(
      Single("tenon_memory_resource_bytes",
             "What measurements built from stored data sets and is kept; dropped first when work "
             "needs the room.",
             static_cast<double>(built)));
  families.push_back(Single("tenon_scratch_reserved_bytes", "Planned temporary files.",
                            state.scratch == nullptr
                                ? 0.0
                                : static_cast<double>(state.scratch->budget().reserved_bytes())));
  families.push_back(
      Single("tenon_memory_warm_bytes",
             "Memory that requests gave back and the process keeps for the next; given to the "
             "system when work needs the room, or after a while.",
             static_cast<double>(BlockPool::Shared().kept_bytes())));
  families.push_back(Single("tenon_requests_running", "Requests that compute or search for a plan.",
                            state.executor.running() + state.searches.running()));
}

void AppendQueues(const ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily depth =
      Family("tenon_queue_depth", "Requests that wait for a slot or for memory, by class.");
  MetricFamily bytes =
      Family("tenon_queue_bytes", "Planned peaks of requests that wait for memory, by class.");
  for (const Priority priority : kAllPriorities) {
    const std::vector<ClientMetric::Label> label = {{"class", std::string(PriorityName(priority))}};
    Add(depth, static_cast<double>(QueuedRequests(state, priority)), label);
    Add(bytes, static_cast<double>(state.budget.waiting_bytes(priority)), label);
  }
  families.push_back(std::move(depth));
  families.push_back(std::move(bytes));
}

void AppendProviders(const ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily states = Family("tenon_provider_state", "1 for the state a provider is in.");
  MetricFamily cold =
      Family("tenon_provider_cold_seconds", "Seconds that initialising a provider took.");
  for (const ProviderRegistry::Entry& entry : state.providers.entries()) {
    for (ProviderCondition condition : {ProviderCondition::kAbsent, ProviderCondition::kStarting,
                                        ProviderCondition::kReady, ProviderCondition::kFailed}) {
      Add(states, ConditionOf(entry) == condition ? 1 : 0,
          {{"provider", entry.name}, {"state", std::string(ConditionName(condition))}});
    }
    const double seconds = entry.provider == nullptr ? 0 : entry.provider->info().cold_seconds;
    Add(cold, seconds, {{"provider", entry.name}});
  }
  families.push_back(std::move(states));
  families.push_back(std::move(cold));
}

void AppendPlanCache(const ServerState& state, std::vector<MetricFamily>& families) {
  const planner::PlanCache::Counters counters = state.plan_cache.counters();
  MetricFamily lookups = Family("tenon_plan_cache_lookups_total",
                                "Look-ups of plans by their question.", MetricType::Counter);
  Add(lookups, static_cast<double>(counters.hits), {{"result", "hit"}});
  Add(lookups, static_cast<double>(counters.misses), {{"result", "miss"}});
  families.push_back(std::move(lookups));
  families.push_back(Single("tenon_plan_cache_evictions_total", "Plans put out for room.",
                            static_cast<double>(counters.evictions), MetricType::Counter));
  families.push_back(Single("tenon_plan_cache_entries", "Plans in the cache.",
                            static_cast<double>(counters.entries)));
  families.push_back(Single("tenon_plan_cache_bytes", "Memory of the plan cache.",
                            static_cast<double>(counters.bytes)));
}

void AppendProcess(const ServerState& state, std::vector<MetricFamily>& families) {
  const ProcessStats stats = ReadProcessStats();
  families.push_back(Single("tenon_process_resident_bytes", "Resident memory.",
                            static_cast<double>(stats.resident_bytes)));
  families.push_back(Single("tenon_process_cpu_seconds_total", "Processor time, user and system.",
                            stats.cpu_seconds, MetricType::Counter));
  families.push_back(Single("tenon_process_open_files", "Open file descriptors.",
                            static_cast<double>(stats.open_files)));
  const auto since_epoch = state.start_time.time_since_epoch();
  families.push_back(Single("tenon_process_start_time_seconds", "Start, since the epoch.",
                            std::chrono::duration<double>(since_epoch).count()));
}

}  // namespace

std::string MetricsText(ServerState& state) {
  std::vector<MetricFamily> families = state.metrics.registry().Collect();
  AppendServer(state, families);
  AppendQueues(state, families);
  AppendProviders(state, families);
  AppendPlanCache(state, families);
  AppendProcess(state, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tenon::server
