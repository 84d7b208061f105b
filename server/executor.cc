#include "server/executor.h"

#include <algorithm>
#include <utility>

#include "backends/core/error.h"

namespace tenon::server {

Executor::Executor(int threads, size_t max_queued) : max_queued_(max_queued) {
  std::lock_guard lock(mutex_);  // the threads wait until all are there
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status Executor::Submit(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    // A free thread's next task does not wait, though it passes through the queue.
    const size_t free = threads_.size() - std::min<size_t>(threads_.size(), running_);
    if (queue_.size() >= max_queued_ + free) {
      return Error(Reason::kOverloaded,
                   StrCat("the queue is full: ", queue_.size(), " requests are waiting"))
          .Meta("queued_requests", queue_.size())
          .Meta("retry_delay_seconds", 1);
    }
    queue_.push_back(std::move(task));
  }
  available_.notify_one();
  return absl::OkStatus();
}

void Executor::Continue(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_front(std::move(task));
  }
  available_.notify_one();
}

size_t Executor::queued() const {
  std::lock_guard lock(mutex_);
  return queue_.size();
}

int Executor::running() const {
  std::lock_guard lock(mutex_);
  return running_;
}

void Executor::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    available_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;  // what it holds may be large
    lock.lock();
    --running_;
  }
}

}  // namespace tenon::server
