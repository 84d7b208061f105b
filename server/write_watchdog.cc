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
  const auto interval =
      std::clamp(stall_limit_ / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopped_; })) {
    const auto limit = std::chrono::steady_clock::now() - stall_limit_;
    std::vector<WatchedStream*> stalled;
    for (WatchedStream* stream : streams_) {
      if (stream->WriteStalledSince(limit)) stalled.push_back(stream);
    }
    End(stalled, &lock, [](WatchedStream* stream) { stream->CutSlowReader(); });
  }
}

}  // namespace tenon::server
