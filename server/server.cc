#include "server/server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>

#include <algorithm>
#include <chrono>
#include <climits>

#include "absl/strings/str_join.h"
#include "backends/core/block_pool.h"
#include "backends/core/cpu_share.h"
#include "backends/core/error.h"
#include "server/admin_service.h"
#include "server/content_store.h"
#include "server/contraction_service.h"
#include "server/dataset_service.h"
#include "server/gauges.h"
#include "server/job_board.h"
#include "server/job_service.h"
#include "server/logging.h"
#include "server/measurement_service.h"
#include "server/process_stats.h"
#include "server/provider_service.h"
#include "server/scratch_space.h"
#include "tenon/v1/admin.grpc.pb.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/dataset.grpc.pb.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"

namespace tenon::server {
namespace {

using Clock = std::chrono::steady_clock;

// How often the way out looks whether work has ended; there is nothing that tells it.
constexpr std::chrono::milliseconds kPollInterval(10);
// Calls that are not work (health watches, reflection) are cancelled once no work has been in
// flight for this long, which leaves the last answers time to get out.
constexpr std::chrono::milliseconds kQuietPeriod(300);

// What streams get to take their status when the grace period is over.
constexpr std::chrono::milliseconds kFarewell(500);

// Of the memory budget, the share that may stay mapped when requests have given it back.
constexpr int64_t kWarmMemoryDivisor = 4;

// What all connections together may hold of bytes that nobody has read or sent yet, beside the
// budget: otherwise strangers could fill the memory before a single call is admitted. gRPC shrinks
// windows as it fills, then ends calls.
int64_t TransportBytes(int64_t memory_budget_bytes) {
  constexpr int64_t kShare = 8, kLeast = int64_t{256} << 20;
  return std::max(memory_budget_bytes / kShare, kLeast);
}

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return absl::ToChronoMilliseconds(duration);
}
int ToMillisecondsArgument(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// The library that offers reflection adds itself to every server of the process when it is linked.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins,
                  [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config, Parts parts) {
  std::unique_ptr<Server> server(new Server(config, std::move(parts)));
  TENON_RETURN_IF_ERROR(DeclareProviders(server->config_.providers, server->parts_.providers,
                                         &server->state_->providers));
  for (const ProviderRegistry::Entry& entry : server->state_->providers.entries()) {
    server->state_->metrics.DeclareProvider(entry.name);
  }
  if (config.scratch_budget_bytes > 0) {
    auto scratch = ScratchSpace::Create(config.scratch_dir, config.default_scratch_dir,
                                        config.scratch_budget_bytes,
                                        static_cast<size_t>(config.max_queued_requests));
    // Nobody asked for the default one: a server whose file system is read-only goes without.
    if (!scratch.ok() && !config.default_scratch_dir) return scratch.status();
    if (!scratch.ok()) {
      Log(LogLevel::kWarning, "no temporary files",
          {{"reason", std::string(scratch.status().message())}});
    } else {
      server->state_->scratch = *std::move(scratch);
    }
  }
  TENON_RETURN_IF_ERROR(server->OpenJobs());
  TENON_RETURN_IF_ERROR(server->Bind());
  server->state_->lifecycle.AddListener(
      [self = server.get()](ServerPhase phase) { self->OnPhase(phase); });
  server->state_->work_watch.Configure({.stuck = Milliseconds(server->config_.stuck_work_limit),
                                        .slow = Milliseconds(server->config_.slow_work_log)},
                                       [self = server.get()] { self->OnStuckWork(); });
  server->state_->work_watch.Start();
  server->warm_up_ = std::thread([self = server.get()] { self->WarmUp(); });
  return server;
}

Server::Server(const Config& config, Parts parts)
    : config_(config),
      parts_(std::move(parts)),
      state_(std::make_unique<ServerState>(config.memory_budget_bytes, config.concurrent_requests,
                                           config.max_queued_requests,
                                           Milliseconds(config.write_stall_timeout))) {
  if (config.tls != nullptr) {
    tls_ = std::make_unique<TlsCertificates>(config.tls_files, *config.tls,
                                             Milliseconds(config.tls_reload_interval));
  }
  if (config.tokens != nullptr) {
    state_->callers.SetSource(CallerSource::kToken);
  } else if (config.tls != nullptr && !config.tls->client_ca.empty()) {
    state_->callers.SetSource(CallerSource::kCertificate);
  }
  state_->settings.tls = tls_ != nullptr;
  state_->drain = [this](std::optional<double> delay, std::optional<double> grace) {
    BeginDrain(delay, grace);
  };
  CpuShare::SetCores(UsableThreads());
  state_->limits.max_threads = config.threads;
  state_->max_concurrent_streams = config.max_concurrent_streams;
  state_->settings.data_root = config.data_root;
  state_->store =
      std::make_shared<ContentStore>(&state_->budget, absl::ToChronoSeconds(config.dataset_ttl));
  state_->budget.SetReclaimer(
      [store = state_->store.get()](int64_t bytes) { store->Evict(bytes); });
  state_->budget.SetShrinker([](int64_t free_bytes) { BlockPool::Shared().Trim(free_bytes); });
  warm_memory_ = std::make_unique<WarmMemory>(&BlockPool::Shared(),
                                              config.memory_budget_bytes / kWarmMemoryDivisor);
  Apply(config);
}

void Server::Apply(const Config& config) {
  const auto queued = static_cast<size_t>(config.max_queued_requests);
  state_->max_queued_requests = config.max_queued_requests;
  for (Executor* executor : state_->executors()) executor->SetMaxQueued(queued);
  state_->budget.SetMaxWaiting(queued);
  if (state_->scratch != nullptr) state_->scratch->budget().SetMaxWaiting(queued);
  state_->budget.SetLimit(config.memory_budget_bytes);
  state_->settings.max_queue_wait = Milliseconds(config.max_queue_wait);
  state_->watchdog.SetLimits({.write = Milliseconds(config.write_stall_timeout),
                              .upload = Milliseconds(config.read_stall_timeout),
                              .idle = Milliseconds(config.idle_stream_timeout)});
  state_->settings.dataset_ttl = absl::ToChronoSeconds(config.dataset_ttl);
  state_->store->SetDefaultTtl(absl::ToChronoSeconds(config.dataset_ttl));
  state_->store->SetOwnerLimit(config.max_stored_bytes_per_principal);
  state_->callers.places().SetLimit(config.max_streams_per_principal);
  state_->callers.SetAdministrators(config.admin_principals);
  if (config_.tokens != nullptr && config.tokens != nullptr) {
    state_->callers.SetTokens(config.tokens);
  }
  if (tls_ != nullptr && config.tls != nullptr) tls_->Set(config.tls_files, *config.tls);
  std::lock_guard lock(mutex_);
  if (drain_.joinable()) return;  // whoever stops does it as it was told
  drain_delay_ = config.drain_delay;
  grace_period_ = config.grace_period;
  kill_limit_ = config.kill_limit;
}

Server::~Server() {
  if (!warm_up_.joinable()) {  // Start failed
    if (grpc_ != nullptr) grpc_->Shutdown();
    return;
  }
  Shutdown();
  Shutdown();
  Wait();
  drain_.join();
  stopper_.join();
  warm_up_.join();
  state_->work_watch.Stop();
}

absl::Status Server::Bind() {
  if (!config_.metrics.empty()) {
    TENON_ASSIGN_OR_RETURN(
        http_,
        HttpServer::Start(config_.metrics, {.ready = [this] { return IsReady(); },
                                            .metrics = [this] { return MetricsText(*state_); }}));
  }
  TENON_RETURN_IF_ERROR(ListenForSharedMemory());
  MakeServices();
  return BuildGrpc();
}

absl::Status Server::OpenJobs() {
  if (config_.state_dir.empty()) return absl::OkStatus();
  // What is planned for jobs stays under the budget; this bounds what the plan does not see.
  constexpr int64_t kSlackBytes = int64_t{64} << 20, kSlackDivisor = 16;
  JobStore::Options options;
  options.max_bytes =
      config_.state_budget_bytes + config_.state_budget_bytes / kSlackDivisor + kSlackBytes;
  TENON_ASSIGN_OR_RETURN(auto store, JobStore::Open(config_.state_dir, options));
  JobBoard::Settings settings;
  settings.default_ttl = absl::ToChronoSeconds(config_.job_ttl);
  settings.max_ttl = absl::ToChronoSeconds(config_.max_job_ttl);
  settings.max_jobs_per_owner = config_.max_jobs;
  settings.budget_bytes = config_.state_budget_bytes;
  TENON_ASSIGN_OR_RETURN(state_->jobs, JobBoard::Open(std::move(store), settings));
  return absl::OkStatus();
}

// Once the providers are warm, unless the server is on its way out already.
void Server::StartJobs() {
  std::lock_guard lock(mutex_);
  if (state_->jobs == nullptr || state_->lifecycle.phase() != ServerPhase::kStarting) return;
  JobRunner::Options options;
  options.threads = config_.concurrent_jobs;
  jobs_ = std::make_unique<JobRunner>(state_.get(), options);
}

// Before there are services, which read what is set here.
absl::Status Server::ListenForSharedMemory() {
  if (config_.shared_memory_socket.empty()) return absl::OkStatus();
  SharedMemory::Options options;
  options.socket = config_.shared_memory_socket;
  options.total_bytes = config_.shared_memory_limit_bytes;
  options.pool_bytes = config_.shared_memory_pool_limit_bytes;
  state_->shared_memory = std::make_shared<SharedMemory>(&state_->budget, std::move(options));
  TENON_ASSIGN_OR_RETURN(shared_memory_,
                         SharedMemoryListener::Start(
                             {config_.shared_memory_uids.begin(), config_.shared_memory_uids.end()},
                             state_->shared_memory.get()));
  return absl::OkStatus();
}

void Server::MakeServices() {
  const auto add = [this](const char* name, std::unique_ptr<grpc::Service> service) {
    services_.emplace_back(name, std::move(service));
  };
  ServerState* state = state_.get();
  add(v1::ProviderService::service_full_name(), MakeProviderService(state));
  add(v1::ContractionService::service_full_name(), MakeContractionService(state));
  add(v1::MeasurementService::service_full_name(), MakeMeasurementService(state));
  add(v1::DatasetService::service_full_name(), MakeDatasetService(state));
  add(v1::JobService::service_full_name(), MakeJobService(state));
  add(v1::AdminService::service_full_name(), MakeAdminService(state));
}

void Server::Configure(grpc::ServerBuilder* builder) {
  const auto max_message = static_cast<int>(state_->limits.max_message_bytes);
  builder->SetMaxReceiveMessageSize(max_message);
  builder->SetMaxSendMessageSize(max_message);
  const auto argument = [builder](const char* name, int value) {
    builder->AddChannelArgument(name, value);
  };
  // Two servers that silently share a port are a trap.
  argument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  argument(GRPC_ARG_MAX_CONCURRENT_STREAMS, config_.max_concurrent_streams);
  argument(GRPC_ARG_KEEPALIVE_TIME_MS, ToMillisecondsArgument(config_.keepalive_time));
  argument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ToMillisecondsArgument(config_.keepalive_timeout));
  argument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  argument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
           ToMillisecondsArgument(config_.keepalive_min_client_interval));
  if (config_.max_connection_age > absl::ZeroDuration()) {
    argument(GRPC_ARG_MAX_CONNECTION_AGE_MS, ToMillisecondsArgument(config_.max_connection_age));
    argument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
             config_.max_connection_age_grace > absl::ZeroDuration()
                 ? ToMillisecondsArgument(config_.max_connection_age_grace)
                 : INT_MAX);
  }
  // Only reflection is served by the synchronous pool; it needs no more than this.
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  grpc::ResourceQuota quota("tenond");
  constexpr int kMaxSyncThreads = 8;
  quota.SetMaxThreads(kMaxSyncThreads);
  quota.Resize(static_cast<size_t>(TransportBytes(config_.memory_budget_bytes)));
  builder->SetResourceQuota(quota);
  builder->SetContextAllocator(MakeCallerContexts(&state_->callers));
}

absl::Status Server::BuildGrpc() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (!config_.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  Configure(&builder);
  std::vector<int> ports(config_.listen.size(), 0);
  for (size_t i = 0; i < config_.listen.size(); ++i) {
    const Address& address = config_.listen[i];
    const bool encrypted = tls_ != nullptr && !address.is_unix;
    builder.AddListeningPort(address.text,
                             encrypted ? tls_->NewCredentials() : grpc::InsecureServerCredentials(),
                             &ports[i]);
    // What --insecure_listen allows should not be forgotten.
    if (!encrypted && !address.local) {
      Log(LogLevel::kWarning, "not encrypted, but reached from other machines",
          {{"address", address.text}, {"tokens", config_.tokens != nullptr}});
    }
  }
  for (const auto& [name, service] : services_) builder.RegisterService(service.get());
  if (parts_.extend) parts_.extend(&builder);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) {
    const auto failed =
        std::find_if(ports.begin(), ports.end(), [](int port) { return port <= 0; });
    const size_t i = failed == ports.end() ? 0 : static_cast<size_t>(failed - ports.begin());
    return Error(Reason::kBadParameter,
                 StrCat("--listen: cannot listen on ", config_.listen[i].text,
                        ": the port is in use or not permitted, or the address is not one of this "
                        "machine's"))
        .Field("listen")
        .Meta("address", config_.listen[i].text);
  }
  UpdateHealth();  // all NOT_SERVING before anything else is done
  for (size_t i = 0; i < ports.size(); ++i) {
    addresses_.push_back(config_.listen[i].WithPort(ports[i]));
    if (port_ == 0 && !config_.listen[i].is_unix) port_ = ports[i];
  }
  return absl::OkStatus();
}

void Server::WarmUp() {
  WarmProviders(parts_.providers, CalibrationStore(config_.calibration_dir), &state_->providers,
                [this] { OnProviderChange(); });
  const std::vector<ProviderRegistry::Entry> entries = state_->providers.entries();
  const bool any =
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.usable(); });
  if (any) {
    StartJobs();
    state_->lifecycle.MoveTo(ServerPhase::kReady);  // refused when it is already told to stop
  } else {
    Log(LogLevel::kError, "no provider is usable");
  }
  {
    std::lock_guard lock(mutex_);
    warm_up_done_ = true;
    warm_up_failed_ = !any;
  }
  changed_.notify_all();
  if (!any) BeginDrain();
}

// A server whose providers have all failed answers, but can do no work.
bool Server::IsReady() const {
  if (state_->lifecycle.phase() != ServerPhase::kReady || state_->work_watch.stuck()) return false;
  const std::vector<ProviderRegistry::Entry> entries = state_->providers.entries();
  return std::any_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return entry.usable(); });
}

void Server::OnProviderChange() {
  UpdateHealth();
  if (!ProvidersEndServer()) return;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(providers_failed_, true)) return;
  }
  Log(LogLevel::kError, "ending because of failed providers", {{"exit_when", config_.exit_when}});
  BeginDrain();
}

bool Server::ProvidersEndServer() const {
  bool failed = false, left = false;
  for (const ProviderRegistry::Entry& entry : state_->providers.entries()) {
    const ProviderCondition condition = ConditionOf(entry);
    failed = failed || condition == ProviderCondition::kFailed;
    left =
        left || condition == ProviderCondition::kReady || condition == ProviderCondition::kStarting;
  }
  if (config_.exit_when == "never") return false;
  return failed && (config_.exit_when == "any" || !left);
}

void Server::OnStuckWork() {
  const bool stuck = state_->work_watch.stuck();
  Log(stuck ? LogLevel::kError : LogLevel::kInfo, stuck ? "not ready" : "ready again",
      {{"reason", std::string("stuck work")}});
  UpdateHealth();
}

void Server::SetHealth(const std::string& name, bool serving) {
  // Watchers are told every time something is set, so only changes are.
  const auto [known, added] = health_.emplace(name, serving);
  if (!added && std::exchange(known->second, serving) == serving) return;
  grpc_->GetHealthCheckService()->SetServingStatus(name, serving);
}

void Server::UpdateHealth() {
  std::lock_guard lock(health_mutex_);
  const ServerPhase phase = state_->lifecycle.phase();
  const bool serving = IsReady();
  // Providers get healthy one by one while the server still starts.
  for (const ProviderRegistry::Entry& entry : state_->providers.entries()) {
    SetHealth(StrCat("provider/", entry.name),
              entry.usable() && (phase == ServerPhase::kReady || phase == ServerPhase::kStarting));
  }
  for (const auto& [name, service] : services_) SetHealth(name, serving);
  SetHealth("", serving);
}

void Server::OnPhase(ServerPhase phase) {
  UpdateHealth();
  if (phase == ServerPhase::kReady) {
    Log(LogLevel::kInfo, "ready",
        {{"address", absl::StrJoin(addresses_, ",")},
         {"metrics_port", static_cast<int64_t>(metrics_port())}});
  } else {
    Log(LogLevel::kInfo, ServerPhaseName(phase), {{"in_flight", state_->metrics.in_flight()}});
  }
  {
    std::lock_guard lock(mutex_);
    told_phase_ = phase;
    if (phase == ServerPhase::kDraining && jobs_ != nullptr) jobs_->Stop();
  }
  changed_.notify_all();
}

bool Server::WaitUntilReady() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || told_phase_ != ServerPhase::kStarting; });
  return told_phase_ == ServerPhase::kReady;
}

void Server::Shutdown() {
  {
    std::lock_guard lock(mutex_);
    ++shutdown_calls_;
  }
  BeginDrain();
}

// Not counted as a call of Shutdown: the first signal does not hurry what a fault began.
void Server::BeginDrain() {
  {
    std::lock_guard lock(mutex_);
    if (!drain_.joinable()) drain_ = std::thread([this] { Drain(); });
  }
  changed_.notify_all();
}

void Server::BeginDrain(std::optional<double> delay_seconds, std::optional<double> grace_seconds) {
  std::unique_lock lock(mutex_);
  if (!drain_.joinable()) {
    ++shutdown_calls_;
    if (delay_seconds.has_value()) drain_delay_ = absl::Seconds(*delay_seconds);
    if (grace_seconds.has_value()) grace_period_ = absl::Seconds(*grace_seconds);
    drain_ = std::thread([this] { Drain(); });
  }
  // Which it does before it waits for anything.
  changed_.wait(lock, [this] {
    return told_phase_ != ServerPhase::kStarting && told_phase_ != ServerPhase::kReady;
  });
}

bool Server::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_; });
  return clean_;
}

void Server::Drain() {
  const auto hurried = [this] { return shutdown_calls_ > 1; };
  if (state_->lifecycle.MoveTo(ServerPhase::kLameDuck)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, Milliseconds(drain_delay_), hurried);
  }
  state_->lifecycle.MoveTo(ServerPhase::kDraining);
  StopGrpc();

  std::unique_lock lock(mutex_);
  const auto finished = [this] { return grpc_stopped_ && warm_up_done_; };
  const auto limit = Clock::now() + Milliseconds(kill_limit_);
  while (!(finished() && Idle()) && Clock::now() < limit) changed_.wait_for(lock, kPollInterval);
  const bool ended = finished() && Idle();
  const bool clean = ended && !warm_up_failed_ && !providers_failed_;
  lock.unlock();
  if (!ended) LogStuck();
  state_->lifecycle.MoveTo(ServerPhase::kStopped);
  lock.lock();
  stopped_ = true;
  clean_ = clean;
  lock.unlock();
  changed_.notify_all();
}

void Server::StopGrpc() {
  std::chrono::milliseconds grace(0);
  {
    std::lock_guard lock(mutex_);
    if (shutdown_calls_ < 2) grace = Milliseconds(grace_period_);
  }
  const auto deadline = Clock::now() + grace;
  // On a thread of its own, because it returns only when all handlers have: a stuck one would hold
  // the way out for ever. It must not cut what is told to end before that has had its time.
  stopper_ = std::thread([this, grace] {
    grpc_->Shutdown(std::chrono::system_clock::now() + grace + kFarewell);
    {
      std::lock_guard lock(mutex_);
      grpc_stopped_ = true;
    }
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  auto last_busy = Clock::now();
  while (!grpc_stopped_ && shutdown_calls_ < 2 && Clock::now() < deadline) {
    if (!Idle()) last_busy = Clock::now();
    if (Clock::now() - last_busy >= kQuietPeriod) break;
    changed_.wait_for(lock, kPollInterval);
  }
  if (grpc_stopped_) return;
  lock.unlock();
  EndStreams();
  grpc_server_cancel_all_calls(grpc_->c_server());
}

// Cutting the connections tells nobody why; so streams end with a status first, and connections
// close by themselves when it is out. Those of clients that do not read stay, and what hangs does.
void Server::EndStreams() {
  if (state_->metrics.in_flight() == 0) return;
  state_->watchdog.EndAll(
      Error(Reason::kDraining, "the server has shut down and could not wait for this call")
          .Meta("retry_delay_seconds", 1));
  const auto limit = Clock::now() + kFarewell;
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, limit, [this] { return grpc_stopped_; });
}

bool Server::Idle() const {
  return state_->metrics.in_flight() == 0 && state_->executor.queued() == 0 &&
         state_->running() == 0 && (jobs_ == nullptr || jobs_->idle());
}

void Server::LogStuck() const {
  for (const WorkWatch::Task& task : state_->work_watch.Running()) {
    LogTask(LogLevel::kError, "stuck work", task);
  }
  for (const MethodStatistics& method : state_->metrics.Statistics()) {
    if (method.in_flight == 0) continue;
    Log(LogLevel::kError, "stuck calls",
        {{"method", method.method}, {"in_flight", method.in_flight}});
  }
  Log(LogLevel::kError, "work did not end within the kill limit",
      {{"running", static_cast<int64_t>(state_->running())},
       {"queued", static_cast<int64_t>(state_->executor.queued())}});
}

}  // namespace tenon::server
