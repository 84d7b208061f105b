#include "server/write_watchdog.h"

#include <algorithm>
#include <vector>

namespace tenon::server {

WriteWatchdog::WriteWatchdog(std::chrono::milliseconds stall_limit)
    : stall_limit_(stall_limit), thread_([this] { Run(); }) {}

WriteWatchdog::~WriteWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void WriteWatchdog::SetStallLimit(std::chrono::milliseconds limit) {
  {
    std::lock_guard lock(mutex_);
    stall_limit_ = limit;
  }
  stop_.notify_all();  // the thread looks as often as the limit demands
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

void WriteWatchdog::Run() {
  using std::chrono::milliseconds;
  std::unique_lock lock(mutex_);
  const auto wait = [&] {
    const milliseconds limit = stall_limit_;
    const auto interval = std::clamp(limit / 4, milliseconds(10), milliseconds(1000));
    stop_.wait_for(lock, interval, [&] { return stopped_ || stall_limit_ != limit; });
    return !stopped_;
  };
  while (wait()) {
    const auto limit = std::chrono::steady_clock::now() - stall_limit_;
    std::vector<WatchedStream*> stalled;
    for (WatchedStream* stream : streams_) {
      if (stream->WriteStalledSince(limit)) stalled.push_back(stream);
    }
    End(stalled, &lock, [](WatchedStream* stream) { stream->CutSlowReader(); });
  }
}

}  // namespace tenon::server
