#include "server/ticker.h"

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <utility>

namespace tenon::server {

struct Ticker::State : std::enable_shared_from_this<Ticker::State> {
  std::chrono::nanoseconds interval{0};
  std::chrono::steady_clock::time_point next;
  std::function<void()> tick;
  std::mutex mutex;
  bool stopped = false;
  std::unique_ptr<grpc::Alarm> alarm;

  // With the lock held. An alarm of its own for every tick: one that is being called must not be
  // set again, because that replaces the function that runs.
  void Arm() {
    const std::chrono::nanoseconds left = next - std::chrono::steady_clock::now();
    alarm = std::make_unique<grpc::Alarm>();
    alarm->Set(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left.count(), GPR_TIMESPAN)),
        [weak = weak_from_this()](bool expired) {
          if (const auto self = weak.lock(); self != nullptr && expired) self->Ring();
        });
  }

  void Ring() {
    std::lock_guard lock(mutex);
    if (stopped) return;
    if (std::chrono::steady_clock::now() >= next) {  // gRPC has a clock of its own
      tick();
      next = std::chrono::steady_clock::now() + interval;
    }
    Arm();
  }
};

Ticker::Ticker(double seconds, std::function<void()> tick) : state_(std::make_shared<State>()) {
  constexpr double kShortest = 0.01, kLongest = 1e6;
  const double nanos = 1e9 * std::clamp(seconds, kShortest, kLongest);
  state_->interval = std::chrono::nanoseconds(static_cast<int64_t>(std::ceil(nanos)));
  state_->next = std::chrono::steady_clock::now() + state_->interval;
  state_->tick = std::move(tick);
  std::lock_guard lock(state_->mutex);
  state_->Arm();
}

Ticker::~Ticker() {
  std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->alarm.reset();
}

}  // namespace tenon::server
