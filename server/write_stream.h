// The life of a call that answers one request with many frames.

#ifndef TENON_SERVER_WRITE_STREAM_H_
#define TENON_SERVER_WRITE_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "backends/core/error.h"
#include "server/frames.h"
#include "server/status.h"
#include "server/write_watchdog.h"

namespace tenon::server {

// One write at a time, one Finish; a client that does not read is cut by the WriteWatchdog. Owns
// itself from Begin until the call is over, so that tasks may hold shared_from_this(). Write and
// End may be called from any thread; after the end they do nothing.
template <typename Response>
class WriteStream : public grpc::ServerWriteReactor<Response>,
                    public WatchedStream,
                    public std::enable_shared_from_this<WriteStream<Response>> {
 public:
  WriteStream(grpc::CallbackServerContext* context, WriteWatchdog* watchdog)
      : context_(context), watchdog_(watchdog) {}

  // Called once, right after creation by make_shared.
  void Begin() {
    self_ = this->shared_from_this();
    watchdog_->Add(this);
    OnBegin();
  }

 protected:
  virtual void OnBegin() = 0;
  // Everything has been written. Without a lock held, on a thread of gRPC's: must not wait.
  virtual void OnWritten() {}
  // The call is over.
  virtual void OnEnd(const absl::Status& outcome) = 0;

  void Write(Response frame) {
    std::lock_guard lock(mutex_);
    if (ending_.has_value()) return;
    waiting_.push_back(std::move(frame));
    WriteNext();
  }
  // With OK when everything has been written, with an error at once. The first one counts.
  void End(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    if (!ending_.has_value()) ending_ = status;
    if (!ending_->ok()) waiting_.clear();
    WriteNext();
  }
  // Whether the client has taken all that there was.
  bool drained() const {
    std::lock_guard lock(mutex_);
    return !writing_ && waiting_.empty();
  }
  bool ended() const {
    std::lock_guard lock(mutex_);
    return ending_.has_value();
  }

 private:
  // With the lock held.
  void WriteNext() {
    if (writing_ || finished_) return;
    if (!waiting_.empty()) {
      writing_ = true;
      write_started_ = std::chrono::steady_clock::now();
      current_ = std::move(waiting_.front());
      waiting_.pop_front();
      this->StartWrite(&current_);
    } else if (ending_.has_value()) {
      finished_ = true;
      this->Finish(ToGrpcStatus(*ending_));
    }
  }

  void OnWriteDone(bool ok) final {
    bool more = false;
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      write_started_.reset();
      if (!ok) {
        waiting_.clear();
        if (!ending_.has_value()) ending_ = Cancelled();
      }
      WriteNext();
      more = !writing_ && !ending_.has_value();
    }
    if (more) OnWritten();
  }
  void OnCancel() final { End(Cancelled()); }
  void OnDone() final {
    watchdog_->Remove(this);
    absl::Status outcome;
    {
      std::lock_guard lock(mutex_);
      outcome = ending_.value_or(Cancelled());
      ending_ = outcome;
    }
    OnEnd(outcome);
    self_.reset();
  }

  static absl::Status Cancelled() {
    return Error(Reason::kClientCancelled, "the call was cancelled");
  }

  bool WriteStalledSince(std::chrono::steady_clock::time_point limit) final {
    std::lock_guard lock(mutex_);
    return write_started_.has_value() && *write_started_ < limit;
  }
  void CutSlowReader() final {
    const absl::Status slow = Error(Reason::kSlowReader, "the client did not read for too long");
    {
      std::lock_guard lock(mutex_);
      if (!ending_.has_value() || ending_->ok()) ending_ = slow;
      waiting_.clear();
    }
    CancelCall(context_, slow);
  }
  void EndCall(const absl::Status& why) final { End(why); }

  grpc::CallbackServerContext* const context_;
  WriteWatchdog* const watchdog_;
  mutable std::mutex mutex_;
  std::deque<Response> waiting_;
  Response current_;
  bool writing_ = false, finished_ = false;
  std::optional<absl::Status> ending_;
  std::optional<std::chrono::steady_clock::time_point> write_started_;
  std::shared_ptr<WriteStream> self_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_WRITE_STREAM_H_
