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
    const size_t idle = Idle(request.priority);
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

void Executor::Continue(std::function<void()> task, Priority priority) {
  {
    std::lock_guard lock(mutex_);
    continuations_.push_back({std::move(task), priority});
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

size_t Executor::continuing() const {
  std::lock_guard lock(mutex_);
  return continuations_.size();
}

int Executor::running() const {
  std::lock_guard lock(mutex_);
  return running_;
}

int64_t Executor::refused(Priority priority) const {
  std::lock_guard lock(mutex_);
  return refused_[static_cast<size_t>(priority)];
}

size_t Executor::BulkPlaces() const {
  const size_t most = threads_.size() > 1 ? threads_.size() - 1 : threads_.size();
  return most - std::min(most, static_cast<size_t>(running_bulk_));
}

size_t Executor::Idle(Priority priority) const {
  const auto bulk = static_cast<size_t>(
      std::count_if(continuations_.begin(), continuations_.end(),
                    [](const Task& task) { return task.priority == Priority::kBulk; }));
  const size_t begin = continuations_.size() - bulk + std::min(bulk, BulkPlaces());
  const size_t taken = std::min(threads_.size(), static_cast<size_t>(running_) + begin);
  const size_t idle = threads_.size() - taken;
  return priority == Priority::kBulk ? std::min(idle, BulkPlaces()) : idle;
}

std::deque<Executor::Task>::iterator Executor::NextContinuation() {
  if (BulkPlaces() > 0) return continuations_.begin();
  return std::find_if(continuations_.begin(), continuations_.end(),
                      [](const Task& task) { return task.priority != Priority::kBulk; });
}

uint64_t Executor::NextRequest() const {
  if (requests_.empty()) return 0;
  if (BulkPlaces() > 0) return requests_.front().ticket;
  const auto* other = requests_.FirstNot(Priority::kBulk);
  return other == nullptr ? 0 : other->ticket;
}

std::optional<Executor::Task> Executor::Take() {
  const auto continuation = NextContinuation();
  const uint64_t request = NextRequest();
  const bool continues = continuation != continuations_.end();
  if (!continues && request == 0) return std::nullopt;
  if (continues && (!request_is_next_ || request == 0)) {
    request_is_next_ = true;
    Task task = std::move(*continuation);
    continuations_.erase(continuation);
    return task;
  }
  request_is_next_ = false;
  ++begun_;
  auto entry = requests_.Remove(request);
  return Task{std::move(entry->item.task), entry->priority};
}

void Executor::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::optional<Task> task;
    available_.wait(lock, [&] {
      task = Take();
      return task.has_value() || stopped_;
    });
    if (!task.has_value()) return;  // what may not begin now is left to those that run
    const bool bulk = task->priority == Priority::kBulk;
    ++running_;
    running_bulk_ += bulk ? 1 : 0;
    lock.unlock();
    const WaitTime begin = std::chrono::steady_clock::now();
    {
      const CpuShare share;
      task->run();
    }
    task.reset();  // what it holds may be large
    const double seconds = Seconds(std::chrono::steady_clock::now() - begin);
    lock.lock();
    task_seconds_ += kLatestShare * (seconds - task_seconds_);
    --running_;
    running_bulk_ -= bulk ? 1 : 0;
  }
}

}  // namespace tenon::server
