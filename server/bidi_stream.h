// The life of one bidirectional stream: what contraction and measurement streams share.

#ifndef TENON_SERVER_BIDI_STREAM_H_
#define TENON_SERVER_BIDI_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "backends/core/cancel.h"
#include "backends/core/error.h"
#include "server/frame_arena.h"
#include "server/frames.h"
#include "server/principal.h"
#include "server/status.h"
#include "server/write_watchdog.h"

namespace tenon::server {

// The call's deadline by the steady clock; absent when the caller set none.
inline std::optional<CancelToken::TimePoint> CallDeadline(const grpc::ServerContextBase& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             deadline - std::chrono::system_clock::now());
}

// Why gRPC calls a call cancelled: expiry of the deadline is told like that, too, perhaps a little
// before the token sees it.
inline Reason ReasonOfCancel(const CancelToken& token) {
  constexpr std::chrono::milliseconds kClockSlack(50);
  const auto deadline = token.deadline();
  const bool expired =
      deadline.has_value() && std::chrono::steady_clock::now() + kClockSlack >= *deadline;
  return expired ? Reason::kDeadline : Reason::kClientCancelled;
}

// A reactor that keeps to the rules of the callback API so that its children need not think of
// them: one read and one write at a time, exactly one Finish, deletion only after OnDone, no lock
// held while calling gRPC or a child.
//
// Threads. OnFrame, OnHalfClose run one after the other on gRPC's threads and must not block: they
// validate, copy a chunk, hand work to an executor. Send, ReadNext, Finish, Fail may be called from
// any thread and at any time; after the end they do nothing. OnDrained and producers run on
// whatever thread completed the write, one at a time; OnDrained may come without a Send before it.
// A frame is valid until OnFrame returns or ReadNext is called, whichever comes first; a chunk
// given to OnChunk until that returns.
//
// Frames. gRPC carries bytes; they are parsed and serialised here, at the same cost as in gRPC's
// generated code, because that can't tell a frame that does not parse from a half-close. Chunks of
// tensors are not parsed where that can be avoided: their data are copied once, by the child.
//
// Ownership. The stream owns itself until OnDone; work that outlives it holds shared_from_this().
// Producers are dropped before OnDone, so they may hold it too.
//
// Back-pressure. Nothing is read until ReadNext() is called; the next outbound frame is produced
// when the one before has been written. A client that does not read for the write-stall limit is
// cut by the WriteWatchdog, as is one that keeps the stream waiting for too long.
//
// Received is where a frame that came lies: FrameArena, or PlainFrame for who takes it apart.
template <typename Request, typename Response, template <typename> class Received = FrameArena>
class BidiStream : public RawBidiReactor,
                   public WatchedStream,
                   public std::enable_shared_from_this<BidiStream<Request, Response, Received>> {
 public:
  // Fills the next frame and returns true, or returns false when it has no more.
  using Producer = std::function<bool(Response*)>;

  BidiStream(grpc::CallbackServerContext* context, WriteWatchdog* watchdog)
      : context_(context), watchdog_(watchdog), cancel_(CallDeadline(*context)) {}

  // Takes ownership of itself, is watched from now on, and reads the first frame. Called once,
  // right after creation by make_shared.
  void Begin() {
    self_ = this->shared_from_this();
    watchdog_->Add(this);
    const absl::Status allowed = CheckCaller(context_);
    if (!allowed.ok()) return Fail(allowed);
    caller_ = CallerOf(*context_);
    ReadNext(Awaits::kNext);
  }

  const CancelToken* cancel() const { return &cancel_; }
  // The principal that calls. Stays when the call has ended.
  const std::string& caller() const { return caller_; }

 protected:
  // Both are called from gRPC's threads with no lock held and must not throw (running out of memory
  // excepted, which fails the stream).
  virtual void OnFrame(const Request& frame) = 0;
  // In place of OnFrame, when the frame is one chunk in this field, which is one of chunk_fields().
  // OnFrame still gets the chunks that are small or written in an unusual way.
  virtual void OnChunk([[maybe_unused]] int field, [[maybe_unused]] const ChunkView& chunk) {}
  // The fields of Request that are a v1::TensorChunk; numbers below 16. Always the same.
  virtual std::span<const int> chunk_fields() const { return {}; }
  // The client has sent everything. Not called when the stream broke.
  virtual void OnHalfClose() = 0;
  // Everything queued by Send has been written.
  virtual void OnDrained() {}
  // The call is over, whatever the outcome; nothing is called afterwards.
  virtual void OnEnd() {}

  // The frame that OnFrame has just got, to move out of.
  Request& received() { return *request_; }

  // What the client is expected to send: the rest of something, or more if it wants to. Whoever
  // keeps the stream waiting for that is cut in the end.
  enum class Awaits { kNothing, kUpload, kNext };
  // Whether it works for the client, so that it does not stand idle. From any thread.
  virtual bool Busy() { return false; }

  void ReadNext(Awaits awaits) {
    {
      std::lock_guard lock(mutex_);
      if (over_ || reading_) return;
      reading_ = true;
      awaits_ = awaits;
      waits_since_ = std::chrono::steady_clock::now();
      ++starting_reads_;
    }
    StartRead(&received_);
    {
      // Until here nobody may finish the call: it could be gone before StartRead has returned.
      std::lock_guard lock(mutex_);
      if (--starting_reads_ > 0 || !ending_.has_value()) return;
    }
    WriteNext();
  }

  void Send(Producer producer) { Queue({std::move(producer), {}}); }

  // The same with one frame, which is made to bytes here and now.
  void SendFrame(const Response& frame) {
    Outbound ready;
    const absl::Status status = SerializeFrame(frame, &ready.bytes);
    status.ok() ? Queue(std::move(ready)) : Fail(status);
  }

  // Ends the call with OK once everything queued has been written.
  void Finish() {
    {
      std::lock_guard lock(mutex_);
      if (over_ || ending_.has_value()) return;
      ending_ = absl::OkStatus();
    }
    WriteNext();
  }

  // The same with one more frame, produced when everything queued has been written. It travels
  // together with the status, which saves a write.
  void FinishWith(Producer last) {
    {
      std::lock_guard lock(mutex_);
      if (over_ || ending_.has_value()) return;
      ending_ = absl::OkStatus();
      last_.producer = std::move(last);
    }
    WriteNext();
  }
  // Likewise, made to bytes here and now. False, and nothing done, when those are more than
  // `limit`.
  bool FinishWithFrame(const Response& last, size_t limit) {
    Outbound ready;
    const absl::Status status = SerializeFrame(last, &ready.bytes);
    if (!status.ok()) {
      Fail(status);
      return true;
    }
    if (ready.bytes.Length() > limit) return false;
    {
      std::lock_guard lock(mutex_);
      if (over_ || ending_.has_value()) return true;
      ending_ = absl::OkStatus();
      last_ = std::move(ready);
    }
    WriteNext();
    return true;
  }

  // Ends the call with an error, at once: queued frames are dropped.
  void Fail(const absl::Status& status) {
    cancel_.Cancel(GetErrorDetails(status).reason);
    EndWith(status);
  }

  // Runs a child's code; running out of memory in it fails the stream and not the process. What
  // gRPC calls runs in it already; tasks of an executor should.
  template <typename Call>
  void Guarded(const Call& call) {
    try {
      call();
    } catch (const std::bad_alloc&) {
      Fail(
          Error(Reason::kOverloaded, "the server is out of memory").Meta("retry_delay_seconds", 1));
    }
  }

  // The same for a task of a worker. When the call was told to stop meanwhile, from outside and not
  // by Fail: the seconds from then until the task has ended.
  template <typename Call>
  std::optional<double> RunTask(const Call& call) {
    const bool told_before = told_to_stop_.load() != 0;
    Guarded(call);
    const Ticks told = told_to_stop_.load();
    if (told_before || told == 0) return std::nullopt;
    const std::chrono::steady_clock::duration since(NowTicks() - told);
    return std::chrono::duration<double>(since).count();
  }

  bool over() const {
    std::lock_guard lock(mutex_);
    return over_;
  }
  // How the call ended; for OnEnd.
  absl::Status outcome() const {
    std::lock_guard lock(mutex_);
    return ending_.value_or(absl::OkStatus());
  }
  grpc::CallbackServerContext* context() { return context_; }

 private:
  // Frames to come: those of a producer, or without one a single frame's bytes.
  struct Outbound {
    Producer producer;
    grpc::ByteBuffer bytes;

    bool empty() const { return producer == nullptr && !bytes.Valid(); }
  };

  using Ticks = std::chrono::steady_clock::rep;
  static Ticks NowTicks() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  // Stops the work for a reason that lies outside of it.
  void StopWork(Reason reason) {
    Ticks never = 0;
    told_to_stop_.compare_exchange_strong(never, NowTicks());
    cancel_.Cancel(reason);
  }

  void Queue(Outbound frames) {
    {
      std::lock_guard lock(mutex_);
      const bool failed = ending_.has_value() && !ending_->ok();
      if (over_ || failed || !last_.empty() || last_ready_) return;
      outbound_.push_back(std::move(frames));
    }
    WriteNext();
  }

  // Drops what is queued and finishes with `status`, unless an error came before.
  void EndWith(const absl::Status& status) {
    std::deque<Outbound> dropped;  // destroyed without the lock: they may own much
    {
      std::lock_guard lock(mutex_);
      if (over_) return;
      dropped.swap(outbound_);
      dropped.push_back(std::exchange(last_, {}));
      if (!ending_.has_value() || ending_->ok()) ending_ = status;
    }
    WriteNext();
  }

  // Fills sending_ with the next frame of `from`; false when that has none.
  bool Produce(Outbound* from) {
    if (from->producer == nullptr) {
      if (!from->bytes.Valid()) return false;
      sending_.Swap(&from->bytes);
      from->bytes.Clear();
      return true;
    }
    bool produced = false;
    response_.Clear();
    Guarded([&] {
      if (!from->producer(&response_)) return;
      const absl::Status status = SerializeFrame(response_, &sending_);
      if (!status.ok()) return Fail(status);
      produced = true;
    });
    return produced;
  }

  // Writes the next frame, or finishes when there is none and the end is due.
  void WriteNext() {
    std::unique_lock lock(mutex_);
    if (writing_ || over_) return;
    writing_ = true;  // also keeps other threads out while a producer runs unlocked
    while (!outbound_.empty()) {
      Outbound next = std::move(outbound_.front());
      outbound_.pop_front();
      lock.unlock();
      const bool produced = Produce(&next);
      if (!produced) next = {};
      lock.lock();
      if (!produced) continue;
      if (ending_.has_value() && !ending_->ok()) {
        lock.unlock();
        next = {};
        sending_.Clear();
        lock.lock();
        continue;
      }
      if (!next.empty()) outbound_.push_front(std::move(next));
      write_started_ = std::chrono::steady_clock::now();
      lock.unlock();
      StartWrite(&sending_);
      return;
    }
    if (!last_.empty()) {
      Outbound last = std::exchange(last_, {});
      lock.unlock();
      const bool produced = Produce(&last);
      last = {};
      lock.lock();
      last_ready_ = produced;
    }
    writing_ = false;
    if (!ending_.has_value()) {
      lock.unlock();
      Guarded([&] { OnDrained(); });
      return;
    }
    if (starting_reads_ > 0) return;  // ReadNext comes back here
    over_ = true;
    const bool with_last = last_ready_ && ending_->ok();
    if (with_last) write_started_ = std::chrono::steady_clock::now();
    const grpc::Status status = ToGrpcStatus(*ending_);
    lock.unlock();
    if (with_last) {
      StartWriteAndFinish(&sending_, grpc::WriteOptions(), status);
    } else {
      RawBidiReactor::Finish(status);
    }
  }

  void OnReadDone(bool ok) final {
    {
      std::lock_guard lock(mutex_);
      reading_ = false;
      if (over_) return;
    }
    if (ok) {
      Guarded([&] {
        ++frames_;
        if (const auto split = SplitChunk(&received_, chunk_fields())) {
          return OnChunk(split->field, split->chunk);
        }
        const absl::Status parsed = ParseFrame(frames_, &received_, request_.Renew());
        return parsed.ok() ? OnFrame(*request_) : Fail(parsed);
      });
    } else if (!context_->IsCancelled()) {
      Guarded([&] { OnHalfClose(); });
    }
  }

  void OnWriteDone(bool ok) final {
    std::deque<Outbound> dropped;
    sending_.Clear();
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      write_started_.reset();
      waits_since_ = std::chrono::steady_clock::now();
      if (!ok) dropped.swap(outbound_);  // the stream broke; OnCancel ends it
    }
    dropped.clear();
    WriteNext();
  }

  void OnCancel() final {
    // The token is told of the deadline, too: what polls its flag alone knows none.
    StopWork(ReasonOfCancel(cancel_));
    EndWith(cancel_.Check());
  }

  void OnDone() final {
    watchdog_->Remove(this);
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    cancel_.Cancel(Reason::kClientCancelled);  // whatever still works on it may stop
    OnEnd();
    self_.reset();
  }

  bool WriteStalledSince(std::chrono::steady_clock::time_point limit) override {
    std::lock_guard lock(mutex_);
    return write_started_.has_value() && *write_started_ < limit;
  }
  ClientWaits WaitsForClient() override {
    const bool busy = Busy();
    std::lock_guard lock(mutex_);
    if (!reading_ || writing_ || over_) return {};
    if (awaits_ == Awaits::kUpload) return {.upload = waits_since_, .next = {}};
    if (awaits_ == Awaits::kNext && !busy) return {.upload = {}, .next = waits_since_};
    return {};
  }
  void CutSlowReader() override {
    const absl::Status slow = Error(Reason::kSlowReader, "the client did not read for too long");
    StopWork(Reason::kSlowReader);
    {
      std::lock_guard lock(mutex_);
      if (!over_ && (!ending_.has_value() || ending_->ok())) ending_ = slow;
    }
    // A status with details queues up behind the frames that nobody reads; this one overtakes them.
    CancelCall(context_, slow);
  }
  void EndCall(const absl::Status& why) override {
    StopWork(GetErrorDetails(why).reason);
    Fail(why);
  }

  grpc::CallbackServerContext* const context_;
  WriteWatchdog* const watchdog_;
  CancelToken cancel_;
  std::string caller_;
  std::atomic<Ticks> told_to_stop_{0};  // when; 0: not yet
  grpc::ByteBuffer received_, sending_;
  Received<Request> request_;
  Response response_;   // the producers'
  int64_t frames_ = 0;  // that came

  mutable std::mutex mutex_;
  std::deque<Outbound> outbound_;
  Outbound last_;            // the frame that goes with the status, until it is produced
  bool last_ready_ = false;  // it is in sending_
  bool reading_ = false, writing_ = false;
  Awaits awaits_ = Awaits::kNothing;
  ClientWaits::TimePoint waits_since_;  // the latest beginning of a read or end of a write
  int starting_reads_ = 0;              // calls of StartRead that have not returned
  bool over_ = false;                   // Finish has been called
  std::optional<absl::Status> ending_;  // how to finish, once known
  std::optional<std::chrono::steady_clock::time_point> write_started_;
  std::shared_ptr<BidiStream> self_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_BIDI_STREAM_H_
