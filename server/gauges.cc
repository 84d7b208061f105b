#include "server/gauges.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/core/block_pool.h"
#include "server/content_store.h"
#include "server/job_board.h"
#include "server/process_stats.h"
#include "server/provider_setup.h"
#include "server/scratch_space.h"
#include "server/shared_memory.h"
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

SharedMemory::Figures SharedFigures(const ServerState& state) {
  return state.shared_memory == nullptr ? SharedMemory::Figures() : state.shared_memory->figures();
}

void AppendSharedMemory(const ServerState& state, std::vector<MetricFamily>& families) {
  const SharedMemory::Figures figures = SharedFigures(state);
  families.push_back(Single("tenon_shared_memory_bytes",
                            "Memory of clients that is mapped; a part of the memory budget.",
                            static_cast<double>(figures.bytes)));
  families.push_back(Single("tenon_shared_memory_pools", "Pools of shared memory that are mapped.",
                            static_cast<double>(figures.pools)));
  MetricFamily requests = Family("tenon_shared_memory_requests_total",
                                 "Calls that named a pool of shared memory.", MetricType::Counter);
  Add(requests, static_cast<double>(figures.found), {{"result", "found"}});
  Add(requests, static_cast<double>(figures.not_found), {{"result", "not_found"}});
  families.push_back(std::move(requests));
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
  families.push_back(
      Single("tenon_memory_reserved_bytes", "Planned peaks of admitted work.",
             static_cast<double>(std::max<int64_t>(
                 state.budget.reserved_bytes() - stored - built - SharedFigures(state).bytes, 0))));
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
  families.push_back(Single("tenon_queue_length", "Requests that wait for their turn.",
                            static_cast<double>(state.executor.queued())));
  families.push_back(
      Single("tenon_requests_running", "Requests that compute.", state.executor.running()));
}

void AppendJobs(const ServerState& state, std::vector<MetricFamily>& families) {
  const JobBoard::Counts counts = state.jobs == nullptr ? JobBoard::Counts() : state.jobs->counts();
  MetricFamily jobs = Family("tenon_jobs", "Jobs that are kept, by where they stand.");
  for (size_t i = 0; i < counts.by_state.size(); ++i) {
    Add(jobs, static_cast<double>(counts.by_state[i]), {{"state", JobStateLabel(kJobStates[i])}});
  }
  families.push_back(std::move(jobs));
  families.push_back(Single("tenon_job_store_bytes", "Data of jobs in the job store.",
                            static_cast<double>(counts.store_bytes)));
  families.push_back(Single("tenon_jobs_resumed_total", "Times that an interrupted job went on.",
                            static_cast<double>(counts.resumed), MetricType::Counter));
}

void AppendProviders(const ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily states = Family("tenon_provider_state", "1 for the state a provider is in.");
  MetricFamily cold =
      Family("tenon_provider_cold_seconds", "Seconds that initialising a provider took.");
  MetricFamily faults = Family("tenon_provider_faults_total",
                               "Calls that a provider failed by its own fault, by what the fault "
                               "says of its device.",
                               MetricType::Counter);
  for (const ProviderRegistry::Entry& entry : state.providers.entries()) {
    for (ProviderCondition condition : {ProviderCondition::kAbsent, ProviderCondition::kStarting,
                                        ProviderCondition::kReady, ProviderCondition::kFailed}) {
      Add(states, ConditionOf(entry) == condition ? 1 : 0,
          {{"provider", entry.name}, {"state", std::string(ConditionName(condition))}});
    }
    for (const plugin::Fault fault : plugin::kFaults) {
      const int64_t count = entry.provider == nullptr ? 0 : entry.provider->health().faults(fault);
      Add(faults, static_cast<double>(count),
          {{"provider", entry.name}, {"kind", std::string(plugin::FaultName(fault))}});
    }
    const double seconds = entry.provider == nullptr ? 0 : entry.provider->info().cold_seconds;
    Add(cold, seconds, {{"provider", entry.name}});
  }
  families.push_back(std::move(states));
  families.push_back(std::move(cold));
  families.push_back(std::move(faults));
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
  AppendProviders(state, families);
  AppendJobs(state, families);
  AppendPlanCache(state, families);
  AppendSharedMemory(state, families);
  AppendProcess(state, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tenon::server
