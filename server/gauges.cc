#include "server/gauges.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/core/block_pool.h"
#include "server/allocator.h"
#include "server/caches.h"
#include "server/content_store.h"
#include "server/job_board.h"
#include "server/process_stats.h"
#include "server/provider_setup.h"
#include "server/queue_wait.h"
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

std::string IsaOf(const ServerState& state) {
  for (const ProviderRegistry::Entry& entry : state.providers.entries()) {
    if (entry.name == "cpu" && entry.provider != nullptr) return entry.provider->info().isa;
  }
  return "";
}

// Work that hangs is seen by it, though nobody has told it to stop.
void AppendLongestRunning(const ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily longest = Family("tenon_longest_running_seconds",
                                "Seconds that the longest task which computes now has run; jobs "
                                "may run for hours.");
  const std::vector<WorkWatch::Task> tasks = state.work_watch.Running();  // the longest first
  for (int i = 0; i < static_cast<int>(Method::kCount); ++i) {
    const std::string method(MethodName(static_cast<Method>(i)));
    const auto task = std::find_if(tasks.begin(), tasks.end(), [&](const WorkWatch::Task& other) {
      return other.method == method;
    });
    Add(longest, task == tasks.end() ? 0 : task->running_seconds, {{"method", method}});
  }
  families.push_back(std::move(longest));
}

void AppendServer(const ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily build =
      Family("tenon_build_info",
             "1; the build, and the instruction set of the CPU provider once it is up.");
  Add(build, 1,
      {{"version", Build().version},
       {"commit", Build().commit},
       {"cuda", Build().cuda ? "true" : "false"},
       {"isa", IsaOf(state)}});
  families.push_back(std::move(build));

  MetricFamily phases = Family("tenon_server_state", "1 for the state the server is in.");
  for (ServerPhase phase : {ServerPhase::kStarting, ServerPhase::kReady, ServerPhase::kLameDuck,
                            ServerPhase::kDraining, ServerPhase::kStopped}) {
    Add(phases, state.lifecycle.phase() == phase ? 1 : 0,
        {{"state", std::string(ServerPhaseName(phase))}});
  }
  families.push_back(std::move(phases));
  families.push_back(Single("tenon_shutdown_drain_seconds",
                            "Seconds since the server was told to stop, until it had stopped.",
                            state.lifecycle.drain_seconds()));
  families.push_back(Single("tenon_stuck_workers",
                            "1 while work that was told to stop does not; the server is not ready.",
                            state.work_watch.stuck() ? 1 : 0));
  AppendLongestRunning(state, families);
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
  families.push_back(Single("tenon_requests_running", "Requests that compute or search for a plan.",
                            state.running()));
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
  MetricFamily info = Family("tenon_provider_info", "1; the provider, in labels.");
  MetricFamily states = Family("tenon_provider_state", "1 for the state a provider is in.");
  MetricFamily cold =
      Family("tenon_provider_cold_seconds", "Seconds that initialising a provider took.");
  for (const ProviderRegistry::Entry& entry : state.providers.entries()) {
    const bool there = entry.provider != nullptr;
    const std::string kind =
        there ? entry.provider->info().kind : entry.name.substr(0, entry.name.find(':'));
    Add(info, 1,
        {{"provider", entry.name},
         {"kind", kind},
         {"isa", there ? entry.provider->info().isa : ""},
         {"description", there ? entry.provider->info().description : ""}});
    const ProviderCondition now = ConditionOf(entry, state.lifecycle.phase());
    for (const ProviderCondition condition : kProviderConditions) {
      Add(states, now == condition ? 1 : 0,
          {{"provider", entry.name}, {"state", std::string(ConditionName(condition))}});
    }
    Add(cold, there ? entry.provider->info().cold_seconds : 0, {{"provider", entry.name}});
  }
  families.push_back(std::move(info));
  families.push_back(std::move(states));
  families.push_back(std::move(cold));
}

// The host's memory stands with the first provider that works in it: the others share it.
void AppendProviderMemory(const ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily memory = Family(
      "tenon_provider_memory_bytes",
      "Memory of a provider's device. That of the host stands with the first provider that works "
      "in it. 0 where it is not known.");
  bool host_is_told = false;
  for (const ProviderRegistry::Entry& entry : state.providers.entries()) {
    double limit = 0, reserved = 0, in_use = 0, cached = 0;
    if (entry.provider != nullptr && entry.provider->info().memory_bytes > 0) {
      limit = static_cast<double>(entry.provider->info().memory_bytes);
    } else if (entry.provider != nullptr && !std::exchange(host_is_told, true)) {
      limit = static_cast<double>(state.budget.limit_bytes());
      reserved = static_cast<double>(state.budget.reserved_bytes());
      in_use = static_cast<double>(BlockPool::Shared().taken_bytes());
      cached = static_cast<double>(BlockPool::Shared().kept_bytes());
    }
    Add(memory, limit, {{"provider", entry.name}, {"kind", "limit"}});
    Add(memory, reserved, {{"provider", entry.name}, {"kind", "reserved"}});
    Add(memory, in_use, {{"provider", entry.name}, {"kind", "in_use"}});
    Add(memory, cached, {{"provider", entry.name}, {"kind", "cached"}});
  }
  families.push_back(std::move(memory));
}

void AppendCaches(ServerState& state, std::vector<MetricFamily>& families) {
  MetricFamily lookups = Family("tenon_cache_lookups_total",
                                "Look-ups in what is kept for later calls.", MetricType::Counter);
  MetricFamily evictions =
      Family("tenon_cache_evictions_total", "Entries put out for room.", MetricType::Counter);
  MetricFamily entries = Family("tenon_cache_entries", "Entries now.");
  MetricFamily bytes = Family("tenon_cache_bytes", "Memory of all entries.");
  MetricFamily limits = Family("tenon_cache_limit_bytes",
                               "Memory of all entries at most. 0: the memory budget bounds it.");
  for (const CacheFigures& cache : ReadCaches(state)) {
    const ClientMetric::Label name{"cache", cache.name};
    Add(lookups, static_cast<double>(cache.hits), {name, {"result", "hit"}});
    Add(lookups, static_cast<double>(cache.misses), {name, {"result", "miss"}});
    Add(evictions, static_cast<double>(cache.evictions), {name});
    Add(entries, static_cast<double>(cache.entries), {name});
    Add(bytes, static_cast<double>(cache.bytes), {name});
    Add(limits, static_cast<double>(cache.limit_bytes), {name});
  }
  for (MetricFamily* family : {&lookups, &evictions, &entries, &bytes, &limits}) {
    families.push_back(std::move(*family));
  }
}

void AppendProcess(const ServerState& state, std::vector<MetricFamily>& families) {
  const ProcessStats stats = ReadProcessStats();
  families.push_back(Single("tenon_process_resident_bytes", "Resident memory.",
                            static_cast<double>(stats.resident_bytes)));
  families.push_back(Single("tenon_process_cpu_seconds_total", "Processor time, user and system.",
                            stats.cpu_seconds, MetricType::Counter));
  families.push_back(Single("tenon_process_open_files", "Open file descriptors.",
                            static_cast<double>(stats.open_files)));
  families.push_back(
      Single("tenon_process_threads", "Threads.", static_cast<double>(stats.threads)));
  const auto since_epoch = state.start_time.time_since_epoch();
  families.push_back(Single("tenon_process_start_time_seconds", "Start, since the epoch.",
                            std::chrono::duration<double>(since_epoch).count()));
}

void AppendAllocator(std::vector<MetricFamily>& families) {
  const AllocatorStats stats = ReadAllocatorStats();
  MetricFamily bytes = Family("tenon_allocator_bytes",
                              "Memory of the C library's allocator: its heaps, what of them is in "
                              "use, and what is mapped beside them. Tensors are not in it.");
  Add(bytes, static_cast<double>(stats.arena_bytes), {{"kind", "arena"}});
  Add(bytes, static_cast<double>(stats.in_use_bytes), {{"kind", "in_use"}});
  Add(bytes, static_cast<double>(stats.mapped_bytes), {{"kind", "mapped"}});
  families.push_back(std::move(bytes));
}

}  // namespace

std::string MetricsText(ServerState& state) {
  std::vector<MetricFamily> families = state.metrics.registry().Collect();
  AppendServer(state, families);
  AppendQueues(state, families);
  AppendProviders(state, families);
  AppendJobs(state, families);
  AppendSharedMemory(state, families);
  AppendProviderMemory(state, families);
  AppendCaches(state, families);
  AppendProcess(state, families);
  AppendAllocator(families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tenon::server
