// The server as a whole: what main starts, and what tests start in their own process.

#ifndef TENON_SERVER_SERVER_H_
#define TENON_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config.h"
#include "server/http_server.h"
#include "server/provider_setup.h"
#include "server/state.h"
#include "server/warm_memory.h"

namespace tenon::server {

// Life: Start binds all ports and returns while the providers warm up (health says NOT_SERVING,
// calls get STARTING); then it serves; Shutdown begins the way out: lame duck for drain_delay,
// then no new work and grace_period for what is in flight, then cancellation, then kill_limit.
// Thread-safe.
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

  // Waits until the server has stopped. False when work did not end within kill_limit of its
  // cancellation, or when no provider got warm.
  bool Wait();

 private:
  Server(const Config& config, Parts parts);
  absl::Status Bind();
  void MakeServices();
  void Configure(grpc::ServerBuilder* builder);
  absl::Status BuildGrpc();
  void WarmUp();
  bool Serving() const;
  void SetHealth(const std::string& name, bool serving);  // with health_mutex_ held
  void UpdateHealth();
  void OnStuckWork();
  void OnPhase(ServerPhase phase);
  void Drain();
  void StopGrpc();
  void EndStreams();
  bool Idle() const;
  void LogStuck() const;

  const Config config_;
  const Parts parts_;
  int port_ = 0;
  std::vector<std::string> addresses_;
  std::unique_ptr<WarmMemory> warm_memory_;  // outlives what gives blocks back
  std::unique_ptr<ServerState> state_;
  std::vector<std::pair<std::string, std::unique_ptr<grpc::Service>>> services_;  // by full name
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<HttpServer> http_;

  std::mutex health_mutex_;             // orders changes of health
  std::map<std::string, bool> health_;  // as told last, by name
  std::mutex mutex_;
  std::condition_variable changed_;
  ServerPhase told_phase_ = ServerPhase::kStarting;  // that health already shows
  int shutdown_calls_ = 0;
  bool warm_up_done_ = false, warm_up_failed_ = false, grpc_stopped_ = false;
  bool stopped_ = false, clean_ = false;
  std::thread warm_up_, drain_, stopper_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_SERVER_H_
