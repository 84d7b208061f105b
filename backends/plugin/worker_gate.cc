#include "backends/plugin/worker_gate.h"

#include <algorithm>
#include <chrono>
#include <tuple>

namespace tenon::plugin {
namespace {

// A token wakes nobody: who waits looks at it this often.
constexpr std::chrono::milliseconds kCancelPoll(20);

}  // namespace

WorkerGate::Share& WorkerGate::ShareOf(const void* job) {
  for (Share& share : shares_) {
    if (share.job == job) return share;
  }
  // A job that comes, or comes back, stands behind those that wait already.
  return shares_.emplace_back(Share{job, 0, 0, ++turn_});
}

bool WorkerGate::IsNext(const void* job) const {
  const Share* next = nullptr;
  for (const Share& share : shares_) {
    if (share.waiting == 0) continue;
    if (next == nullptr ||
        std::tie(share.held, share.last_turn) < std::tie(next->held, next->last_turn)) {
      next = &share;
    }
  }
  return next != nullptr && next->job == job;
}

void WorkerGate::Forget(const void* job) {
  const auto unused = [job](const Share& share) {
    return share.job == job && share.held == 0 && share.waiting == 0;
  };
  shares_.erase(std::remove_if(shares_.begin(), shares_.end(), unused), shares_.end());
}

absl::StatusOr<WorkerGate::Slot> WorkerGate::Enter(const void* job, const CancelToken& cancel) {
  TENON_RETURN_IF_ERROR(cancel.Check());
  std::unique_lock lock(mutex_);
  ++ShareOf(job).waiting;
  absl::Status stopped;
  while (free_ == 0 || !IsNext(job)) {
    freed_.wait_for(lock, kCancelPoll);
    stopped = cancel.Check();
    if (!stopped.ok()) break;
  }
  Share& share = ShareOf(job);
  --share.waiting;
  if (!stopped.ok()) {
    Forget(job);
    lock.unlock();
    freed_.notify_all();  // another may be next now
    return stopped;
  }
  --free_;
  ++share.held;
  share.last_turn = ++turn_;
  const bool more = free_ > 0;
  lock.unlock();
  if (more) freed_.notify_all();
  return Slot(this, job);
}

void WorkerGate::Leave(const void* job) {
  {
    std::lock_guard lock(mutex_);
    ++free_;
    --ShareOf(job).held;
    Forget(job);
  }
  freed_.notify_all();
}

int WorkerGate::waiting() const {
  std::lock_guard lock(mutex_);
  int waiting = 0;
  for (const Share& share : shares_) waiting += share.waiting;
  return waiting;
}

}  // namespace tenon::plugin
