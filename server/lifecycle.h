// The states of the server process and their legal transitions.

#ifndef TENON_SERVER_LIFECYCLE_H_
#define TENON_SERVER_LIFECYCLE_H_

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tenon::server {

//            kStarting  kReady   kLameDuck  kDraining  kStopped
// from:
// kStarting             yes                 yes        yes       a signal may come while warming up
// kReady                         yes        yes
// kLameDuck                                 yes
// kDraining                                            yes
//
// kStarting  ports are bound, providers warm up; calls get STARTING; live, not ready
// kReady     serving
// kLameDuck  told to stop; still serving, not ready, so that balancers look elsewhere
// kDraining  new calls get DRAINING; what is in flight goes on until the grace period ends
// kStopped   nothing is served
enum class ServerPhase { kStarting, kReady, kLameDuck, kDraining, kStopped };

std::string_view ServerPhaseName(ServerPhase phase);

// Thread-safe. Listeners run on the thread that made the transition, in the order they were added,
// and see the transitions one after the other. They must not make transitions themselves.
class Lifecycle {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Lifecycle(std::function<Clock::time_point()> now = Clock::now) : now_(std::move(now)) {}

  ServerPhase phase() const;
  // Does the transition and tells the listeners before it returns; false (and nothing happens) when
  // it is illegal.
  bool MoveTo(ServerPhase phase);
  void AddListener(std::function<void(ServerPhase)> listener);
  // Seconds since the server was told to stop, until it had stopped; 0 before.
  double drain_seconds() const;
  // OK when new work may be admitted, else STARTING or DRAINING.
  absl::Status CheckAdmitting() const;

 private:
  const std::function<Clock::time_point()> now_;
  std::mutex transition_mutex_;  // held while listeners run; taken before mutex_
  mutable std::mutex mutex_;
  ServerPhase phase_ = ServerPhase::kStarting;
  std::optional<Clock::time_point> told_to_stop_, stopped_;
  std::vector<std::function<void(ServerPhase)>> listeners_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_LIFECYCLE_H_
