#include "server/write_watchdog.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNever(0);

double Seconds(milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

// How often to look, so that nobody waits for much longer than the limit.
milliseconds LookInterval(const StallLimits& limits) {
  milliseconds interval(1000);
  for (const milliseconds limit : {limits.write, limits.upload, limits.idle}) {
    if (limit != kNever) interval = std::min(interval, limit / 4);
  }
  return std::max(interval, milliseconds(10));
}

absl::Status SlowWriter(const char* where, const char* setting, milliseconds limit) {
  return Error(Reason::kSlowWriter,
               StrCat("the client sent nothing for ", Seconds(limit), " seconds ", where,
                      "; the server waits no longer (", setting, ")"))
      .Meta("limit_seconds", Seconds(limit));
}

// Why a stream with such waits must end; OK when it may go on.
absl::Status Judge(const ClientWaits& waits, const StallLimits& limits,
                   ClientWaits::TimePoint now) {
  if (limits.upload != kNever && waits.upload.has_value() && *waits.upload < now - limits.upload) {
    return SlowWriter("in the middle of an upload", "--read_stall_timeout", limits.upload);
  }
  if (limits.idle != kNever && waits.next.has_value() && *waits.next < now - limits.idle) {
    return SlowWriter("while the stream had nothing to do", "--idle_stream_timeout", limits.idle);
  }
  return absl::OkStatus();
}

}  // namespace

WriteWatchdog::WriteWatchdog(const StallLimits& limits)
    : limits_(limits), thread_([this] { Run(); }) {}

WriteWatchdog::WriteWatchdog(milliseconds stall_limit)
    : WriteWatchdog(StallLimits{.write = stall_limit}) {}

WriteWatchdog::~WriteWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void WriteWatchdog::SetLimits(const StallLimits& limits) {
  {
    std::lock_guard lock(mutex_);
    limits_ = limits;
  }
  stop_.notify_all();  // the thread looks as often as the limits demand
}

StallLimits WriteWatchdog::limits() const {
  std::lock_guard lock(mutex_);
  return limits_;
}

void WriteWatchdog::Add(WatchedStream* stream) {
  std::lock_guard lock(mutex_);
  streams_.insert(stream);
}

void WriteWatchdog::Remove(WatchedStream* stream) {
  std::unique_lock lock(mutex_);
  streams_.erase(stream);
  end_done_.wait(lock, [&] { return ending_ != stream || ender_ == std::this_thread::get_id(); });
}

void WriteWatchdog::EndAll(const absl::Status& why) {
  std::unique_lock lock(mutex_);
  End({streams_.begin(), streams_.end()}, &lock,
      [&](WatchedStream* stream) { stream->EndCall(why); });
}

void WriteWatchdog::End(const std::vector<WatchedStream*>& streams,
                        std::unique_lock<std::mutex>* lock,
                        const std::function<void(WatchedStream*)>& end) {
  for (WatchedStream* stream : streams) {
    end_done_.wait(*lock, [this] { return ending_ == nullptr; });
    if (streams_.count(stream) == 0) continue;  // ended while another one was
    ending_ = stream;
    ender_ = std::this_thread::get_id();
    lock->unlock();
    end(stream);  // calls gRPC, which may call back
    lock->lock();
    ending_ = nullptr;
    end_done_.notify_all();
  }
}

void WriteWatchdog::EndStalled(std::unique_lock<std::mutex>* lock) {
  const auto now = std::chrono::steady_clock::now();
  std::vector<WatchedStream*> slow_readers;
  std::vector<std::pair<WatchedStream*, absl::Status>> slow_writers;
  for (WatchedStream* stream : streams_) {
    if (limits_.write != kNever && stream->WriteStalledSince(now - limits_.write)) {
      slow_readers.push_back(stream);
      continue;
    }
    absl::Status why = Judge(stream->WaitsForClient(), limits_, now);
    if (!why.ok()) slow_writers.emplace_back(stream, std::move(why));
  }
  End(slow_readers, lock, [](WatchedStream* stream) { stream->CutSlowReader(); });
  for (const auto& [stream, why] : slow_writers) {
    End({stream}, lock, [&why = why](WatchedStream* ended) { ended->EndCall(why); });
  }
}

void WriteWatchdog::Run() {
  std::unique_lock lock(mutex_);
  const auto wait = [&] {
    const StallLimits limits = limits_;
    stop_.wait_for(lock, LookInterval(limits), [&] { return stopped_ || limits_ != limits; });
    return !stopped_;
  };
  while (wait()) EndStalled(&lock);
}

}  // namespace tenon::server
