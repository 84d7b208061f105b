#include "server/queue_wait.h"

#include <algorithm>
#include <utility>

#include "backends/core/error.h"
#include "server/scratch_space.h"

namespace tenon::server {
namespace {

using Clock = std::chrono::steady_clock;

WaitTime After(WaitTime time, double seconds) {
  constexpr double kLongest = 1e9;  // what the clock can count
  return time + std::chrono::duration_cast<WaitTime::duration>(
                    std::chrono::duration<double>(std::clamp(seconds, 0.0, kLongest)));
}

double SecondsBetween(WaitTime from, WaitTime to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

absl::Status CheckFeasible(double estimate_seconds, double remaining_seconds) {
  constexpr double kRoom = 1.2;
  if (estimate_seconds * kRoom <= remaining_seconds) return absl::OkStatus();
  return Error(Reason::kDeadlineInfeasible,
               StrCat("the work takes about ", estimate_seconds, " seconds; the deadline leaves ",
                      remaining_seconds))
      .Meta("estimate_seconds", estimate_seconds)
      .Meta("remaining_seconds", remaining_seconds);
}

size_t QueuedRequests(const ServerState& state, Priority priority) {
  size_t queued = state.budget.waiting(priority);
  for (const Executor* executor : state.executors()) queued += executor->queued(priority);
  if (state.scratch != nullptr) queued += state.scratch->budget().waiting(priority);
  return queued;
}

int64_t RefusedRequests(const ServerState& state, Priority priority) {
  int64_t refused = state.budget.refused(priority);
  for (const Executor* executor : state.executors()) refused += executor->refused(priority);
  if (state.scratch != nullptr) refused += state.scratch->budget().refused(priority);
  return refused;
}

QueueWait::QueueWait(ServerState* state, std::optional<WaitTime> deadline)
    : state_(state), deadline_(deadline) {}

void QueueWait::SetLimit(std::optional<double> max_seconds, std::string field) {
  std::lock_guard lock(mutex_);
  max_seconds_ = max_seconds;
  field_ = std::move(field);
}

void QueueWait::SetPriority(Priority priority) {
  std::lock_guard lock(mutex_);
  priority_ = priority;
}

Priority QueueWait::priority() const {
  std::lock_guard lock(mutex_);
  return priority_;
}

bool QueueWait::waits() const {
  std::lock_guard lock(mutex_);
  return began_.has_value();
}

double QueueWait::seconds() const {
  std::lock_guard lock(mutex_);
  return seconds_ + (began_.has_value() ? SecondsBetween(*began_, Clock::now()) : 0);
}

void QueueWait::Admitted() const { state_->metrics.ObserveQueueWait(priority(), seconds()); }

size_t QueueWait::position() const {
  for (const Executor* executor : std::as_const(*state_).executors()) {
    if (const auto position = executor->Position(ticket_)) return *position;
  }
  if (const auto position = state_->budget.Position(ticket_)) return *position;
  if (state_->scratch == nullptr) return 0;
  return state_->scratch->budget().Position(ticket_).value_or(0);
}

void QueueWait::Began() {
  std::lock_guard lock(mutex_);
  began_ = Clock::now();
}

void QueueWait::Ended() {
  std::lock_guard lock(mutex_);
  if (!began_.has_value()) return;
  seconds_ += SecondsBetween(*began_, Clock::now());
  began_.reset();
}

WaitTime QueueWait::Until() const {
  WaitTime until = deadline_.value_or(WaitTime::max());
  if (max_seconds_.has_value()) {
    until = std::min(until, After(Clock::now(), *max_seconds_ - seconds_));
  }
  return until;
}

absl::Status QueueWait::Refusal(const absl::Status& otherwise) const {
  const double waited = seconds();
  std::lock_guard lock(mutex_);
  if (deadline_.has_value() && Clock::now() >= *deadline_) {
    return Error(Reason::kDeadline, "the deadline passed while the request waited in the queue")
        .Meta("queue_seconds", waited);
  }
  if (max_seconds_.has_value() && waited >= *max_seconds_) {
    return Error(Reason::kDeadline,
                 StrCat("the request waited ", waited, " seconds in the queue; at most ",
                        *max_seconds_, " were allowed"))
        .Field(field_)
        .Meta("limit_seconds", *max_seconds_)
        .Meta("queue_seconds", waited);
  }
  return otherwise;
}

absl::Status QueueWait::ForSlot(Executor* executor, std::function<void()> task,
                                std::function<void(const absl::Status&)> refused) {
  Executor::Request request;
  request.ticket = ticket_;
  Began();
  {
    std::lock_guard lock(mutex_);
    request.priority = priority_;
    request.until = Until();
  }
  request.expired = [this, refused] {
    const absl::Status why = Refusal(
        Error(Reason::kDeadline, "the request waited too long").Meta("queue_seconds", seconds()));
    Ended();
    refused(why);
  };
  // The slot may come free a little late.
  request.task = [this, task = std::move(task), refused = std::move(refused)] {
    const absl::Status late = Refusal(absl::OkStatus());
    Ended();
    if (!late.ok()) return refused(late);
    task();
  };
  const absl::Status submitted = executor->Submit(std::move(request));
  if (!submitted.ok()) Ended();
  return submitted;
}

absl::StatusOr<std::optional<Reservation>> QueueWait::ForMemory(
    MemoryBudget* budget, int64_t bytes, std::function<void(Reservation)> granted,
    std::function<void(const absl::Status&)> refused) {
  MemoryBudget::Request request{.ticket = ticket_, .bytes = bytes};
  Began();
  {
    std::lock_guard lock(mutex_);
    request.priority = priority_;
    request.until = std::min(Until(), Clock::now() + state_->settings.max_queue_wait.load());
  }
  request.granted = [this, granted = std::move(granted)](Reservation reservation) {
    Ended();
    granted(std::move(reservation));
  };
  request.refused = [this, refused = std::move(refused)](const absl::Status& overloaded) {
    const absl::Status why = Refusal(overloaded);
    Ended();
    refused(why);
  };
  auto reserved = budget->ReserveInTurn(std::move(request));
  if (!reserved.ok() || reserved->has_value()) Ended();
  return reserved;
}

absl::Status QueueWait::OutcomeInQueue(const absl::Status& outcome) const {
  if (outcome.ok() || GetErrorDetails(outcome).reason != Reason::kDeadline) return outcome;
  return Error(Reason::kDeadline, "the deadline passed while the request waited in the queue")
      .Meta("queue_seconds", seconds());
}

absl::Status QueueWait::LeaveAfter(const absl::Status& outcome) {
  return Leave() ? OutcomeInQueue(outcome) : outcome;
}

bool QueueWait::Leave() {
  {
    std::lock_guard lock(mutex_);
    if (!began_.has_value()) return false;  // as a rule, and looking would cost
  }
  bool left = false;
  for (Executor* executor : state_->executors()) {
    left = executor->Leave(ticket_) || left;
  }
  left = state_->budget.Leave(ticket_) || left;
  if (state_->scratch != nullptr) left = state_->scratch->budget().Leave(ticket_) || left;
  return left;
}

}  // namespace tenon::server
