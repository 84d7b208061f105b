#include "server/provider_service.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_format.h"
#include "backends/core/strings.h"
#include "backends/cpu/host_provider.h"
#include "google/protobuf/util/time_util.h"
#include "server/caches.h"
#include "server/content_store.h"
#include "server/job_board.h"
#include "server/process_stats.h"
#include "server/provider_setup.h"
#include "server/queue_wait.h"
#include "server/scratch_space.h"
#include "server/shared_memory.h"
#include "server/unary.h"
#include "server/version.h"
#include "server/wire_state.h"
#include "tenon/v1/provider.grpc.pb.h"

namespace tenon::server {
namespace {

using google::protobuf::util::TimeUtil;

// Clients that ping this often stay clear of the server's own limit on pings.
constexpr double kRecommendedKeepaliveSeconds = 30;

std::string NewInstanceId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) id += absl::StrFormat("%08x", random());
  return id;
}

google::protobuf::Timestamp ToTimestamp(std::chrono::system_clock::time_point time) {
  return TimeUtil::MillisecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count());
}

v1::ProviderState ToProto(ProviderCondition condition) {
  switch (condition) {
    case ProviderCondition::kAbsent:
      return v1::PROVIDER_STATE_ABSENT;
    case ProviderCondition::kStarting:
      return v1::PROVIDER_STATE_STARTING;
    case ProviderCondition::kReady:
      return v1::PROVIDER_STATE_READY;
    case ProviderCondition::kFailed:
      return v1::PROVIDER_STATE_FAILED;
    case ProviderCondition::kDraining:
      return v1::PROVIDER_STATE_DRAINING;
  }
  return v1::PROVIDER_STATE_UNSPECIFIED;
}

void FillLimits(const ServerState& state, v1::ServerLimits* out) {
  const Limits& limits = state.limits;
  out->set_max_message_bytes(limits.max_message_bytes);
  out->set_default_chunk_bytes(static_cast<int32_t>(limits.default_chunk_bytes));
  out->set_max_chunk_bytes(static_cast<int32_t>(limits.max_chunk_bytes));
  out->set_inline_limit_bytes(static_cast<int32_t>(limits.max_inline_bytes));
  out->set_memory_budget_bytes(state.budget.limit_bytes());
  out->set_request_memory_bytes(state.budget.limit_bytes());
  out->set_max_tensor_bytes(state.budget.limit_bytes());
  out->set_max_operands(limits.max_operands);
  out->set_max_plan_seconds(limits.max_plan_seconds);
  out->set_default_plan_seconds(limits.default_plan_seconds);
  out->set_max_rank(static_cast<int32_t>(limits.max_rank));
  out->set_max_index_name_bytes(static_cast<int32_t>(limits.max_name_bytes));
  out->set_max_specs(static_cast<int32_t>(limits.max_specs));
  out->set_max_in_flight(static_cast<int32_t>(limits.max_in_flight));
  out->set_max_queue_length(static_cast<int32_t>(state.max_queued_requests));
  out->set_max_streams_per_connection(state.max_concurrent_streams);
  out->set_store_budget_bytes(state.budget.limit_bytes());
  if (state.scratch != nullptr) {
    out->set_scratch_budget_bytes(state.scratch->budget().limit_bytes());
  }
  if (state.jobs != nullptr) {
    const int64_t most = std::min<int64_t>(state.jobs->settings().max_jobs_per_owner, INT32_MAX);
    out->set_max_jobs(static_cast<int32_t>(most));
  }
  out->set_default_ttl_seconds(static_cast<double>(state.settings.dataset_ttl.load().count()));
  const StallLimits stalls = state.watchdog.limits();
  out->set_slow_reader_seconds(std::chrono::duration<double>(stalls.write).count());
  out->set_slow_writer_seconds(std::chrono::duration<double>(stalls.upload).count());
  out->set_idle_stream_seconds(std::chrono::duration<double>(stalls.idle).count());
}

void FillQuotas(const ServerState& state, const std::string& caller, v1::CallerQuotas* out) {
  const Quota calls = state.callers.places().QuotaOf(caller);
  out->set_max_calls(calls.limit);
  out->set_calls(calls.used);
  if (state.store != nullptr) {
    const Quota stored = state.store->QuotaOf(caller);
    out->set_max_stored_bytes(stored.limit);
    out->set_stored_bytes(stored.used);
  }
  if (state.jobs == nullptr) return;
  const Quota jobs = state.jobs->QuotaOf(caller);
  out->set_max_jobs(jobs.limit);
  out->set_jobs(jobs.used);
}

void FillFeatures(const ServerState& state, v1::GetServerInfoResponse* out) {
  const auto add = [&](const char* name, bool available, const char* detail) {
    v1::Feature* feature = out->add_features();
    feature->set_name(name);
    feature->set_available(available);
    feature->set_detail(detail);
  };
  const bool files = !state.settings.data_root.empty();
  add("contraction", true, "");
  add("slicing", true, "");
  add("normalize", true, "");
  add("measurement", true, "");
  add("datasets", true, "");
  add("server_files", files, files ? "" : "no --data_root is configured");
  const bool jobs = state.jobs != nullptr;
  add("jobs", jobs, jobs ? "" : "no --state_dir is configured");
  add("administration", true, "for administrators");
  const bool shares = state.shared_memory != nullptr;
  add("shared_memory", shares,
      shares ? state.shared_memory->options().socket.c_str()
             : "no --shared_memory_socket is configured");
  const bool scratch = state.scratch != nullptr;
  add("temporary_files", scratch, scratch ? "" : "--scratch_budget is 0");
  add("planner", true, "");
  add("plan_cache", true, "");
  add("tls", state.settings.tls, state.settings.tls ? "" : "no --tls_cert is configured");
  const bool callers = state.callers.source() != CallerSource::kNothing;
  add("authentication", callers,
      callers ? "" : "neither --token_file nor --tls_client_ca is configured");
}

void FillBuild(v1::BuildInfo* out) {
  const BuildDescription& build = Build();
  out->set_type(build.type);
  out->set_compiler(build.compiler);
  out->mutable_flags()->Add(build.flags.begin(), build.flags.end());
  out->mutable_sanitizers()->Add(build.sanitizers.begin(), build.sanitizers.end());
  out->set_grpc_version(build.grpc_version);
  out->set_protobuf_version(build.protobuf_version);
}

void FillHost(const ServerState& state, v1::HostInfo* out) {
  for (const ProviderRegistry::Entry& entry : state.providers.entries()) {
    if (entry.name == "cpu" && entry.provider != nullptr) {
      out->set_isa(entry.provider->info().isa);
      out->add_available_isas(entry.provider->info().isa);
    }
  }
  static const std::string* const model = new std::string(cpu::ProcessorModel());
  static const std::string* const system = new std::string(OperatingSystem());
  static const int64_t memory = UsableMemoryBytes();
  out->set_cpu_model(*model);
  out->set_os(*system);
  out->set_memory_bytes(memory);
  out->set_threads(static_cast<int32_t>(state.limits.max_threads));
}

template <typename Repeated>
void FillDtypes(uint32_t bits, Repeated* out) {
  for (int dtype = TENON_DTYPE_BOOL; dtype <= TENON_DTYPE_COMPLEX128; ++dtype) {
    if ((bits >> dtype & 1U) != 0) out->Add(dtype);
  }
}

void FillSteps(const tenon_provider_info& info, v1::Provider* out) {
  constexpr struct {
    int bit;
    const char* kind;
  } kKinds[] = {{TENON_STEP_CONTRACT, "contract"}, {TENON_STEP_UNARY, "unary"}};
  for (const auto& [bit, kind] : kKinds) {
    v1::StepCapability* step = out->add_steps();
    step->set_kind(kind);
    if ((info.step_kinds >> bit & 1U) != 0) {
      FillDtypes(info.contraction_dtypes, step->mutable_dtypes());
    } else {
      step->set_missing_reason("the provider does not offer it");
    }
  }
}

void FillResources(const tenon_provider_info& info, v1::Provider* out) {
  constexpr struct {
    int bit;
    v1::ResourceKind kind;
  } kKinds[] = {
      {TENON_RESOURCE_KNN, v1::RESOURCE_KIND_NEIGHBORS},
      {TENON_RESOURCE_DENSITY, v1::RESOURCE_KIND_DENSITY},
      {TENON_RESOURCE_PAIR_ORDER, v1::RESOURCE_KIND_PAIR_ORDER},
      {TENON_RESOURCE_CONDENSED, v1::RESOURCE_KIND_CONDENSED_DISTANCES},
      {TENON_RESOURCE_PAIR_STATISTICS, v1::RESOURCE_KIND_PAIR_STATISTICS},
      {TENON_RESOURCE_ORDERED_PAIR_STATISTICS, v1::RESOURCE_KIND_ORDERED_PAIR_STATISTICS},
      {TENON_RESOURCE_SELECTED_RANKS, v1::RESOURCE_KIND_RANK_COMPARISONS},
      {TENON_RESOURCE_NEIGHBOR_STATISTICS, v1::RESOURCE_KIND_NEIGHBOR_STATISTICS},
      {TENON_RESOURCE_TOPOGRAPHIC, v1::RESOURCE_KIND_TOPOGRAPHIC_STATISTICS},
      {TENON_RESOURCE_RANK_TABLE, v1::RESOURCE_KIND_RANK_TABLE},
  };
  for (const auto& [bit, kind] : kKinds) {
    v1::ResourceCapability* resource = out->add_resources();
    resource->set_kind(kind);
    if ((info.resource_kinds >> bit & 1U) != 0) {
      FillDtypes(info.resource_dtypes, resource->mutable_dtypes());
    } else {
      resource->set_missing_reason("the provider does not build it");
    }
  }
}

void FillProvider(const ServerState& state, const ProviderRegistry::Entry& entry,
                  v1::Provider* out) {
  out->set_name(entry.name);
  const ProviderCondition condition = ConditionOf(entry, state.lifecycle.phase());
  out->set_state(ToProto(condition));
  if (!entry.usable() && condition != ProviderCondition::kStarting) {
    *out->mutable_error() = ToErrorDetail(entry.absence);
  }
  if (entry.provider == nullptr) {
    out->set_kind(entry.name.substr(0, entry.name.find(':')));
    return;
  }
  const tenon_provider_info& info = entry.provider->info();
  out->set_kind(info.kind);
  out->set_description(info.description);
  out->set_isa(info.isa);
  out->set_workers(
      static_cast<int32_t>(std::min<int64_t>(info.max_workers, state.limits.max_threads)));
  out->set_cold_init_seconds(info.cold_seconds);
  const bool on_host = info.memory_bytes == 0;
  out->set_memory_total_bytes(on_host ? state.budget.limit_bytes() : info.memory_bytes);
  if (on_host) {
    out->set_memory_free_bytes(state.budget.free_bytes());
    out->set_timing_scope(v1::TIMING_SCOPE_SYNCHRONOUS_HOST);
  }
  FillSteps(info, out);
  FillResources(info, out);
}

void FillMethod(const MethodStatistics& from, v1::MethodStatistics* out) {
  out->set_method(from.method);
  out->set_started(from.succeeded + from.failed + from.in_flight);
  out->set_succeeded(from.succeeded);
  out->set_active(from.in_flight);
  out->set_received_bytes(from.received_bytes);
  out->set_sent_bytes(from.sent_bytes);
  out->set_items(from.items);
  for (const auto& [reason, count] : from.failures) {
    v1::ReasonCount* failure = out->add_failures();
    failure->set_reason(reason);
    failure->set_count(count);
  }
  for (const MethodStatistics::PhaseSeconds& phase : from.phases) {
    v1::PhaseStatistics* seconds = out->add_phases();
    seconds->set_phase(phase.phase);
    seconds->set_count(phase.count);
    seconds->set_total_seconds(phase.seconds);
    seconds->set_max_seconds(phase.max_seconds);
  }
}

void FillProviderStatistics(const ProviderStatistics& from, v1::ProviderStatistics* out) {
  out->set_provider(from.provider);
  out->set_groups(from.groups);
  out->set_resources(from.resources_built);
  out->set_flops(from.multiply_adds);
  out->set_execution_seconds(from.busy_seconds);
  out->set_to_device_bytes(from.to_device_bytes);
  out->set_from_device_bytes(from.from_device_bytes);
  out->set_failures(from.faults);
}

void FillCache(const CacheFigures& from, v1::CacheStatistics* out) {
  out->set_cache(from.name);
  out->set_hits(from.hits);
  out->set_misses(from.misses);
  out->set_evictions(from.evictions);
  out->set_entries(from.entries);
  out->set_size_bytes(from.bytes);
  out->set_limit_bytes(from.limit_bytes);
}

class ProviderService final : public v1::ProviderService::CallbackService {
 public:
  explicit ProviderService(ServerState* state) : state_(state) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) override {
    return Answer(context, "tenon.v1.ProviderService/GetServerInfo", [&] {
      response->set_version(Build().version);
      response->set_commit(Build().commit);
      response->set_state(ToWireState(state_->lifecycle.phase()));
      FillLimits(*state_, response->mutable_limits());
      FillFeatures(*state_, response);
      FillBuild(response->mutable_build());
      FillHost(*state_, response->mutable_host());
      *response->mutable_start_time() = ToTimestamp(state_->start_time);
      const auto up = std::chrono::system_clock::now() - state_->start_time;
      response->set_uptime_seconds(std::chrono::duration<double>(up).count());
      response->set_instance_id(instance_id_);
      response->set_recommended_keepalive_seconds(kRecommendedKeepaliveSeconds);
      FillQuotas(*state_, CallerOf(*context), response->mutable_quotas());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListProviders(grpc::CallbackServerContext* context,
                                          const v1::ListProvidersRequest* request,
                                          v1::ListProvidersResponse* response) override {
    return Answer(context, "tenon.v1.ProviderService/ListProviders",
                  [&] { return List(request->name(), response); });
  }

  grpc::ServerUnaryReactor* GetStatistics(grpc::CallbackServerContext* context,
                                          const v1::GetStatisticsRequest* request,
                                          v1::GetStatisticsResponse* response) override {
    return Answer(context, "tenon.v1.ProviderService/GetStatistics", [&] {
      FillStatistics(request->method_prefix(), response);
      return absl::OkStatus();
    });
  }

 private:
  template <typename Function>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, std::string_view name,
                                   Function&& function) {
    return AnswerNow(context, &state_->metrics, Method::kProvider, name,
                     std::forward<Function>(function));
  }

  absl::Status List(const std::string& name, v1::ListProvidersResponse* response) const {
    std::vector<ProviderRegistry::Entry> entries = state_->providers.entries();
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return std::make_pair(a.name != "cpu", a.name) < std::make_pair(b.name != "cpu", b.name);
    });
    for (const ProviderRegistry::Entry& entry : entries) {
      if (name.empty() || name == entry.name) {
        FillProvider(*state_, entry, response->add_providers());
      }
    }
    if (response->providers().empty()) {
      // Find says it with the list of names; an entry it knows has been found above.
      return PrefixFields(state_->providers.Find(name).status(), "name");
    }
    return absl::OkStatus();
  }

  void FillStatistics(const std::string& prefix, v1::GetStatisticsResponse* response) {
    *response->mutable_since_time() = ToTimestamp(state_->start_time);
    for (const MethodStatistics& method : state_->metrics.Statistics()) {
      if (method.method.compare(0, prefix.size(), prefix) == 0) {
        FillMethod(method, response->add_methods());
      }
    }
    for (const Priority priority : kAllPriorities) {
      const QueueWaits waits = state_->metrics.Waits(priority);
      v1::QueueStatistics* queue = response->add_queues();
      queue->set_priority(ToWire(priority));
      queue->set_waiting(static_cast<int32_t>(QueuedRequests(*state_, priority)));
      queue->set_admitted(waits.admitted);
      queue->set_refused(RefusedRequests(*state_, priority));
      queue->set_wait_seconds(waits.seconds);
    }
    if (state_->jobs != nullptr) WriteJobs(state_->jobs->counts(), response->mutable_jobs());
    for (const ProviderStatistics& provider : state_->metrics.Providers()) {
      FillProviderStatistics(provider, response->add_providers());
    }
    for (const CacheFigures& cache : ReadCaches(*state_)) {
      FillCache(cache, response->add_caches());
    }
    const ProcessStats process = ReadProcessStats();
    v1::MemoryStatistics* memory = response->mutable_memory();
    memory->set_budget_bytes(state_->budget.limit_bytes());
    memory->set_admitted_bytes(state_->budget.reserved_bytes());
    if (state_->store != nullptr) {
      memory->set_cached_bytes(state_->store->bytes() + state_->store->resource_bytes());
    }
    if (state_->scratch != nullptr) {
      memory->set_scratch_bytes(state_->scratch->budget().reserved_bytes());
    }
    memory->set_resident_bytes(process.resident_bytes);
    memory->set_peak_resident_bytes(process.peak_resident_bytes);
  }

  static void WriteJobs(const JobBoard::Counts& counts, v1::JobStatistics* out) {
    for (size_t i = 0; i < counts.by_state.size(); ++i) {
      const int64_t count = counts.by_state[i];
      const v1::JobState state = kJobStates[i];
      if (HasEnded(state)) {
        out->set_ended(out->ended() + count);
      } else if (MayMove(state, v1::JOB_STATE_RUNNING)) {
        out->set_waiting(out->waiting() + count);
      } else {
        out->set_running(out->running() + count);
      }
    }
    out->set_resumed(counts.resumed);
    out->set_store_bytes(counts.store_bytes);
  }

  ServerState* const state_;
  const std::string instance_id_ = NewInstanceId();
};

}  // namespace

std::unique_ptr<grpc::Service> MakeProviderService(ServerState* state) {
  return std::make_unique<ProviderService>(state);
}

}  // namespace tenon::server
