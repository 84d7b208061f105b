// One bidirectional stream: the caller reads, a thread of its own writes.
//
// Both directions must run at once: a peer that waits until its answers are read would otherwise
// never read what is written. When the call ends, for whatever reason, writes fail and waits
// return, so the writing thread always comes to its end.

#ifndef TENON_CLIENT_CPP_DUPLEX_H_
#define TENON_CLIENT_CPP_DUPLEX_H_

#include <grpcpp/support/sync_stream.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "client/cpp/call_context.h"
#include "client/cpp/status.h"

namespace tenon::client {

template <typename Request, typename Response>
class Duplex {
 public:
  using Stream = std::unique_ptr<grpc::ClientReaderWriter<Request, Response>>;
  using Open = std::function<Stream(grpc::ClientContext*)>;
  // What the writing thread does; it returns an error of the client, never of the call.
  using Writer = std::function<absl::Status(Duplex*)>;

  Duplex(const CallOptions& options, absl::Duration default_timeout, Endpoint endpoint,
         const Open& open)
      : endpoint_(std::move(endpoint)),
        context_(options, default_timeout, endpoint_),
        stream_(open(context_.get())) {}
  Duplex(const Duplex&) = delete;
  Duplex& operator=(const Duplex&) = delete;
  ~Duplex() {
    if (!finished_) (void)Finish(absl::CancelledError("the call was given up"));
  }

  void StartWriter(Writer writer) {
    thread_ = std::thread([this, writer = std::move(writer)] {
      writer_status_ = CatchExceptions([&] { return writer(this); });
      if (!writer_status_.ok()) context_.get()->TryCancel();
    });
  }

  // For the writing side. False: the call has ended or is ending, and why stands in its status.
  bool Write(const Request& frame) { return stream_->Write(frame); }
  bool WriteLast(const Request& frame) { return stream_->Write(frame, LastOption()); }
  void WritesDone() { stream_->WritesDone(); }

  // Waits until the server has accepted; false when the call has ended or Stop was asked for.
  bool WaitAccepted() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return accepted_ || stopped_ || ended_; });
    return accepted_ && !ended_;
  }
  // Waits until the reading side has let `count` of something pass; false when the call has ended
  // or Stop was asked for.
  bool WaitAllowed(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed_ >= count || stopped_ || ended_; });
    return !stopped_ && !ended_;
  }
  // Waits for Stop or for the end of the call.
  void WaitStopped() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || ended_; });
  }
  bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  // For the reading side.
  bool Read(Response* frame) { return stream_->Read(frame); }
  void SetAccepted() { Set(&accepted_); }
  void Allow(int64_t count) {
    const std::lock_guard lock(mutex_);
    allowed_ = count;
    changed_.notify_all();
  }

  // From any thread.
  void Stop() { Set(&stopped_); }
  void Cancel() { context_.get()->TryCancel(); }

  // Ends the call, once, on the reading side. With an error of the reading side the call is
  // cancelled. The first cause is returned: `local`, else the writer's error, else the call's.
  absl::Status Finish(absl::Status local = absl::OkStatus()) {
    finished_ = true;
    if (!local.ok()) context_.get()->TryCancel();
    Set(&ended_);
    if (thread_.joinable()) thread_.join();
    Response rest;
    while (stream_->Read(&rest)) {
    }
    const absl::Status status =
        StatusFromGrpc(stream_->Finish(), endpoint_.address, endpoint_.connected());
    if (!local.ok()) return local;
    if (!writer_status_.ok()) return writer_status_;
    return status;
  }

 private:
  static grpc::WriteOptions LastOption() { return grpc::WriteOptions().set_last_message(); }

  void Set(bool* flag) {
    const std::lock_guard lock(mutex_);
    *flag = true;
    changed_.notify_all();
  }

  const Endpoint endpoint_;
  CallContext context_;
  Stream stream_;
  std::thread thread_;
  absl::Status writer_status_;
  bool finished_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t allowed_ = 0;
  bool accepted_ = false;
  bool stopped_ = false;
  bool ended_ = false;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_DUPLEX_H_
