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

void WriteWatchdog::Add(WatchedStream* stream) {
  std::lock_guard lock(mutex_);
  streams_.insert(stream);
}

void WriteWatchdog::Remove(WatchedStream* stream) {
  std::unique_lock lock(mutex_);
  streams_.erase(stream);
  if (std::this_thread::get_id() == thread_.get_id()) return;
  cut_done_.wait(lock, [&] { return cutting_ != stream; });
}

void WriteWatchdog::Run() {
  const auto interval =
      std::clamp(stall_limit_ / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopped_; })) {
    const auto limit = std::chrono::steady_clock::now() - stall_limit_;
    std::vector<WatchedStream*> stalled;
    for (WatchedStream* stream : streams_) {
      if (stream->WriteStalledSince(limit)) stalled.push_back(stream);
    }
    for (WatchedStream* stream : stalled) {
      if (streams_.count(stream) == 0) continue;  // ended while another one was cut
      cutting_ = stream;
      lock.unlock();
      stream->Cut();  // calls gRPC, which may call back
      lock.lock();
      cutting_ = nullptr;
      cut_done_.notify_all();
    }
  }
}

}  // namespace tenon::server
