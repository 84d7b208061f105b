#include "server/executor.h"

#include <algorithm>
#include <utility>

#include "backends/core/cpu_share.h"
#include "backends/core/error.h"

namespace tenon::server {
namespace {

// Of the mean time of a task, the share of the latest.
constexpr double kLatestShare = 0.1;
constexpr double kShortestDelay = 1, kLongestDelay = 60;  // seconds

double Seconds(WaitTime::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Executor::Executor(int threads, size_t max_queued, Now now)
    : now_(std::move(now)), requests_(max_queued) {
  std::lock_guard lock(mutex_);  // the threads wait until all are there
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Executor::~Executor() {
  timer_.reset();
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status Executor::Submit(Request request) {
  {
    std::lock_guard lock(mutex_);
    // A free thread's next task does not wait, though it passes through the queue.
    const size_t taken = static_cast<size_t>(running_) + continuations_.size();
    const size_t idle = threads_.size() - std::min(threads_.size(), taken);
    const size_t free = idle - std::min(idle, requests_.size());
    if (requests_.full(request.priority, idle)) {
      ++refused_[static_cast<size_t>(request.priority)];
      return Error(Reason::kOverloaded,
                   StrCat("the queue is full: ", requests_.size(request.priority), " ",
                          PriorityName(request.priority), " requests are waiting"))
          .Meta("queued_requests", requests_.size(request.priority))
          .Meta("class", PriorityName(request.priority))
          .Meta("retry_delay_seconds", RetryDelay());
    }
    const bool expires = request.until != WaitTime::max();
    bool wakes = expires && request.until < requests_.next_expiry();
    requests_.Push({{request.ticket == 0 ? NewTicket() : request.ticket, request.priority, now_(),
                     request.until},
                    {std::move(request.task), std::move(request.expired)}});
    if (expires && free == 0 && timer_ == nullptr) {
      timer_ = std::make_unique<ExpiryTimer>([this] {
        Expire();
        std::lock_guard lock(mutex_);
        return requests_.next_expiry();
      });
      wakes = true;
    }
    if (wakes && timer_ != nullptr) timer_->Wake();
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
  requests_.SetMaxPerClass(max_queued);
}

bool Executor::Leave(uint64_t ticket) {
  std::optional<WaitingLine<Work>::Entry> left;  // destroyed without the lock: it may own much
  std::lock_guard lock(mutex_);
  left = requests_.Remove(ticket);
  return left.has_value();
}

std::optional<size_t> Executor::Position(uint64_t ticket) const {
  std::lock_guard lock(mutex_);
  return requests_.Position(ticket);
}

void Executor::Expire() {
  std::vector<WaitingLine<Work>::Entry> expired;
  {
    std::lock_guard lock(mutex_);
    expired = requests_.TakeExpired(now_());
  }
  for (auto& entry : expired) {
    if (entry.item.expired != nullptr) entry.item.expired();
  }
}

double Executor::RetryDelay() const {
  const double ahead = static_cast<double>(requests_.size() + continuations_.size());
  const double slots = static_cast<double>(std::max<size_t>(threads_.size(), 1));
  return std::clamp(task_seconds_ * ahead / slots, kShortestDelay, kLongestDelay);
}

double Executor::RetryDelaySeconds() const {
  std::lock_guard lock(mutex_);
  return RetryDelay();
}

size_t Executor::begun() const {
  std::lock_guard lock(mutex_);
  return begun_;
}

size_t Executor::queued() const {
  std::lock_guard lock(mutex_);
  return requests_.size();
}

size_t Executor::queued(Priority priority) const {
  std::lock_guard lock(mutex_);
  return requests_.size(priority);
}

int Executor::running() const {
  std::lock_guard lock(mutex_);
  return running_;
}

int64_t Executor::refused(Priority priority) const {
  std::lock_guard lock(mutex_);
  return refused_[static_cast<size_t>(priority)];
}

std::function<void()> Executor::Take() {
  const bool request = continuations_.empty() || (request_is_next_ && !requests_.empty());
  request_is_next_ = !request;
  if (!request) {
    std::function<void()> task = std::move(continuations_.front());
    continuations_.pop_front();
    return task;
  }
  ++begun_;
  return std::move(requests_.TakeFront().item.task);
}

void Executor::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_work = [this] { return !requests_.empty() || !continuations_.empty(); };
    available_.wait(lock, [&] { return stopped_ || has_work(); });
    if (!has_work()) return;
    std::function<void()> task = Take();
    ++running_;
    lock.unlock();
    const WaitTime begin = std::chrono::steady_clock::now();
    {
      const CpuShare share;
      task();
    }
    task = nullptr;  // what it holds may be large
    const double seconds = Seconds(std::chrono::steady_clock::now() - begin);
    lock.lock();
    task_seconds_ += kLatestShare * (seconds - task_seconds_);
    --running_;
  }
}

}  // namespace tenon::server
