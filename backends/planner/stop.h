// When a search ends.

#ifndef TENON_BACKENDS_PLANNER_STOP_H_
#define TENON_BACKENDS_PLANNER_STOP_H_

#include <chrono>
#include <optional>

#include "backends/core/cancel.h"

namespace tenon::planner {

// Thread-safe; polled every millisecond or so of work.
class Stop {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  Stop() = default;
  Stop(std::optional<TimePoint> deadline, const CancelToken* cancel)
      : deadline_(deadline), cancel_(cancel) {}

  bool operator()() const {
    if (cancel_ != nullptr && cancel_->cancelled()) return true;
    return deadline_.has_value() && std::chrono::steady_clock::now() >= *deadline_;
  }
  std::optional<TimePoint> deadline() const { return deadline_; }
  const CancelToken* cancel() const { return cancel_; }

 private:
  std::optional<TimePoint> deadline_;
  const CancelToken* cancel_ = nullptr;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_STOP_H_
