// Calls that search while the client waits, and that the server may have to end.

#ifndef TENON_SERVER_STOPPABLE_CALL_H_
#define TENON_SERVER_STOPPABLE_CALL_H_

#include <chrono>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "backends/core/cancel.h"
#include "backends/core/error.h"
#include "server/write_watchdog.h"

namespace tenon::server {

// Lets the call's task, running or waiting, end it for the server's reason: the call belongs to the
// task. What writes more than its one answer must tell when the client does not read.
class StoppableCall : private WatchedStream {
 public:
  StoppableCall(WriteWatchdog* watchdog, std::optional<CancelToken::TimePoint> deadline)
      : watchdog_(watchdog), cancel_(deadline) {
    watchdog_->Add(this);
  }
  StoppableCall(const StoppableCall&) = delete;
  StoppableCall& operator=(const StoppableCall&) = delete;

 protected:
  ~StoppableCall() override = default;

  CancelToken& cancel() { return cancel_; }

  // Before anything is destroyed.
  void Unwatch() { watchdog_->Remove(this); }

  // How the call ends when its task ended so.
  absl::Status Outcome(const absl::Status& status) {
    std::lock_guard lock(stop_mutex_);
    return status.ok() || stopped_.ok() ? status : stopped_;
  }

 private:
  bool WriteStalledSince(std::chrono::steady_clock::time_point) override { return false; }
  void CutSlowReader() override {}
  void EndCall(const absl::Status& why) override {
    {
      std::lock_guard lock(stop_mutex_);
      stopped_ = why;
    }
    cancel_.Cancel(GetErrorDetails(why).reason);
  }

  WriteWatchdog* const watchdog_;
  CancelToken cancel_;
  std::mutex stop_mutex_;
  absl::Status stopped_;  // why the server ends the call
};

}  // namespace tenon::server

#endif  // TENON_SERVER_STOPPABLE_CALL_H_
