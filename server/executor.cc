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
    const size_t taken = static_cast<size_t>(running_) + continuations_.size();
    const size_t free = threads_.size() - std::min(threads_.size(), taken);
    if (requests_.size() >= max_queued_ + free) {
      return Error(Reason::kOverloaded,
                   StrCat("the queue is full: ", requests_.size(), " requests are waiting"))
          .Meta("queued_requests", requests_.size())
          .Meta("retry_delay_seconds", 1);
    }
    requests_.push_back(std::move(task));
  }
  available_.notify_one();
  return absl::OkStatus();
}

void Executor::Continue(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    continuations_.push_back(std::move(task));
  }
  available_.notify_one();
}

void Executor::SetMaxQueued(size_t max_queued) {
  std::lock_guard lock(mutex_);
  max_queued_ = max_queued;
}

size_t Executor::queued() const {
  std::lock_guard lock(mutex_);
  return requests_.size();
}

int Executor::running() const {
  std::lock_guard lock(mutex_);
  return running_;
}

size_t Executor::begun() const {
  std::lock_guard lock(mutex_);
  return begun_;
}

std::function<void()> Executor::Take() {
  const bool request = continuations_.empty() || (request_is_next_ && !requests_.empty());
  request_is_next_ = !request;
  if (request) ++begun_;
  auto& queue = request ? requests_ : continuations_;
  std::function<void()> task = std::move(queue.front());
  queue.pop_front();
  return task;
}

void Executor::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_work = [this] { return !requests_.empty() || !continuations_.empty(); };
    available_.wait(lock, [&] { return stopped_ || has_work(); });
    if (!has_work()) return;
    std::function<void()> task = Take();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;  // what it holds may be large
    lock.lock();
    --running_;
  }
}

}  // namespace tenon::server
