// The server as a whole: what main starts, and what tests start in their own process.

#ifndef TENON_SERVER_SERVER_H_
#define TENON_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config.h"
#include "server/http_server.h"
#include "server/job_runner.h"
#include "server/provider_setup.h"
#include "server/shared_memory_listener.h"
#include "server/state.h"
#include "server/tls.h"
#include "server/warm_memory.h"

namespace tenon::server {

// Life: Start binds all ports and returns while the providers warm up (health says NOT_SERVING,
// calls get STARTING); then it serves; Shutdown begins the way out: lame duck for drain_delay,
// then no new work and grace_period for what is in flight, then cancellation, then kill_limit.
// Failed providers can begin it, too (Config::exit_when). Thread-safe.
class Server {
 public:
  // What tests replace or add.
  struct Parts {
    std::vector<ProviderSource> providers = InTreeProviders();
    std::function<void(grpc::ServerBuilder*)> extend;  // called last before the server is built
  };

  // BAD_PARAMETER when an address can't be listened on or a provider is unknown.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config, Parts parts);
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config) {
    return Start(config, Parts());
  }

  // Shuts down without delays first, if nobody has. Work that is stuck holds it up: after Wait has
  // returned false the process should end without destructors.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Of the first TCP address; 0 when there is none. 0 when metrics are off.
  int port() const { return port_; }
  int metrics_port() const { return http_ == nullptr ? 0 : http_->port(); }
  // All addresses with the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }
  ServerState* state() { return state_.get(); }

  // Waits until the server serves and says so; false when it is told to stop before.
  bool WaitUntilReady();

  // Begins to stop and returns at once. The second call skips the delays: what is in flight is
  // cancelled now.
  void Shutdown();

  // Begins to stop, with other delays than the configured ones where they are given (seconds), and
  // returns when the server says so. A server that stops already goes on as before.
  void BeginDrain(std::optional<double> delay_seconds, std::optional<double> grace_seconds);

  // Takes over those settings that may change while the server runs (server/reload.h lists them,
  // but for the log's); ignores the others.
  void Apply(const Config& config);

  // Waits until the server has stopped. False when work did not end within kill_limit of its
  // cancellation, when no provider got warm, or when Config::exit_when ended it.
  bool Wait();

 private:
  Server(const Config& config, Parts parts);
  absl::Status Bind();
  absl::Status OpenJobs();
  void StartJobs();
  absl::Status ListenForSharedMemory();
  void MakeServices();
  void Configure(grpc::ServerBuilder* builder);
  absl::Status BuildGrpc();
  void WarmUp();
  void SetHealth(const std::string& name, bool serving);  // with health_mutex_ held
  void UpdateHealth();
  bool IsReady() const;
  void OnProviderChange();
  bool ProvidersEndServer() const;
  void BeginDrain();
  void OnStuckWork();
  void OnPhase(ServerPhase phase);
  void Drain();
  void StopGrpc();
  void EndStreams();
  bool Idle() const;  // with mutex_ held
  void LogStuck() const;

  const Config config_;
  const Parts parts_;
  std::unique_ptr<TlsCertificates> tls_;  // null: no encryption
  int port_ = 0;
  std::vector<std::string> addresses_;
  std::unique_ptr<WarmMemory> warm_memory_;  // outlives what gives blocks back
  std::unique_ptr<ServerState> state_;
  std::unique_ptr<JobRunner> jobs_;  // guarded by mutex_; null without jobs, and until they run
  std::vector<std::pair<std::string, std::unique_ptr<grpc::Service>>> services_;  // by full name
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<SharedMemoryListener> shared_memory_;

  std::mutex health_mutex_;             // orders changes of health
  std::map<std::string, bool> health_;  // as told last, by name
  std::mutex mutex_;
  std::condition_variable changed_;
  ServerPhase told_phase_ = ServerPhase::kStarting;  // that health already shows
  int shutdown_calls_ = 0;
  absl::Duration drain_delay_, grace_period_, kill_limit_;
  bool warm_up_done_ = false, warm_up_failed_ = false, grpc_stopped_ = false;
  bool providers_failed_ = false;  // as exit_when says
  bool stopped_ = false, clean_ = false;
  std::thread warm_up_, drain_, stopper_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_SERVER_H_
