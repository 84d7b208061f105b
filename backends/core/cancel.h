// Cooperative cancellation: a flag that a request's owner sets and that all its work polls.

#ifndef TENON_BACKENDS_CORE_CANCEL_H_
#define TENON_BACKENDS_CORE_CANCEL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "backends/core/error.h"

namespace tenon {

// Non-zero once the work should stop: the flag of a token as the plug-in interface sees it; may be
// null.
inline bool IsCancelled(const int32_t* cancel) {
  return cancel != nullptr && __atomic_load_n(cancel, __ATOMIC_RELAXED) != 0;
}

// Thread-safe. Polled between steps and inside long ones, so that a worker is idle within 100 ms
// of Cancel() or of the deadline. The first reason given stays.
class CancelToken {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  CancelToken() = default;
  explicit CancelToken(std::optional<TimePoint> deadline) : deadline_(deadline) {}
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;

  // Asks the work to stop; `reason` becomes the reason of Check()'s error.
  void Cancel(Reason reason = Reason::kClientCancelled) {
    int32_t expected = 0;
    flag_.compare_exchange_strong(expected, static_cast<int32_t>(reason) + 1);
  }

  bool cancelled() const { return flag_.load(std::memory_order_relaxed) != 0 || deadline_passed(); }

  // OK, or the error that says why the work must stop.
  absl::Status Check() const {
    const int32_t flag = flag_.load(std::memory_order_relaxed);
    if (flag != 0) {
      return Error(static_cast<Reason>(flag - 1), "the request was cancelled while it was running");
    }
    if (deadline_passed()) {
      return Error(Reason::kDeadline, "the deadline passed while the work was running");
    }
    return absl::OkStatus();
  }

  std::optional<TimePoint> deadline() const { return deadline_; }

  // The flag as the plug-in interface sees it: non-zero once cancelled. Deadlines are not in it;
  // the host sets it when one passes.
  const std::atomic<int32_t>* flag() const { return &flag_; }

 private:
  bool deadline_passed() const {
    return deadline_.has_value() && std::chrono::steady_clock::now() >= *deadline_;
  }

  std::atomic<int32_t> flag_{0};
  const std::optional<TimePoint> deadline_;
};

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_CANCEL_H_
