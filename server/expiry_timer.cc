#include "server/expiry_timer.h"

#include <utility>

namespace tenon::server {

ExpiryTimer::ExpiryTimer(std::function<WaitTime()> work)
    : work_(std::move(work)), thread_([this] { Run(); }) {}

ExpiryTimer::~ExpiryTimer() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ExpiryTimer::Wake() {
  {
    std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void ExpiryTimer::Run() {
  WaitTime next = WaitTime::max();
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto due = [this] { return woken_ || stopped_; };
    if (next == WaitTime::max()) {  // as a time limit it would overflow
      changed_.wait(lock, due);
    } else {
      changed_.wait_until(lock, next, due);
    }
    if (stopped_) return;
    woken_ = false;
    lock.unlock();
    next = work_();
    lock.lock();
  }
}

}  // namespace tenon::server
