// How long a request may wait in queues, and how long it did.

#ifndef TENON_SERVER_QUEUE_WAIT_H_
#define TENON_SERVER_QUEUE_WAIT_H_

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/admission.h"
#include "server/executor.h"
#include "server/priority.h"
#include "server/state.h"
#include "server/waiting_line.h"

namespace tenon::server {

// One request's way through the server's queues: for a slot of the executor, for memory, and for a
// slot of the planner. It waits in one of them at a time; the limit is on all waits together.
// Thread-safe.
class QueueWait {
 public:
  // The call's deadline ends a wait, too.
  QueueWait(ServerState* state, std::optional<WaitTime> deadline);
  // The request's own limit, which the field `field` set. Before it waits.
  void SetLimit(std::optional<double> max_seconds, std::string field);
  void SetPriority(Priority priority);

  uint64_t ticket() const { return ticket_; }
  Priority priority() const;
  // To be told once, when it waits for nothing more: counts the wait.
  void Admitted() const;
  // Seconds in all queues so far.
  double seconds() const;
  bool waits() const;
  // Requests before this one in the queue where it waits; 0 where it does not.
  size_t position() const;

  // Runs `task` on `executor` when it is this request's turn, or `refused` with DEADLINE when the
  // wait has taken too long. Errors as Executor::Submit, and then neither is called.
  absl::Status ForSlot(Executor* executor, std::function<void()> task,
                       std::function<void(const absl::Status&)> refused);
  // The bytes at once, or nothing, and `granted` is called later, or `refused` with OVERLOADED or
  // DEADLINE, on a thread that must not be held up. The server's own limit on waits for memory
  // counts, too.
  absl::StatusOr<std::optional<Reservation>> ForMemory(
      MemoryBudget* budget, int64_t bytes, std::function<void(Reservation)> granted,
      std::function<void(const absl::Status&)> refused);

  // Takes the request out of the queue: true means that it waited and will not be called.
  bool Leave();
  // What a call that ended so, and has left the queue, should be counted as: gRPC may see a
  // deadline sooner than the queue does.
  absl::Status OutcomeInQueue(const absl::Status& outcome) const;
  // Both: Leave, and what the call that has ended so should be counted as.
  absl::Status LeaveAfter(const absl::Status& outcome);

 private:
  void Began();
  void Ended();
  WaitTime Until() const;  // with mutex_ held
  // What has ended the wait: the caller's limits, else `otherwise`.
  absl::Status Refusal(const absl::Status& otherwise) const;

  ServerState* const state_;
  const uint64_t ticket_ = NewTicket();
  const std::optional<WaitTime> deadline_;
  mutable std::mutex mutex_;
  std::optional<double> max_seconds_;
  std::string field_;
  Priority priority_ = Priority::kDefault;
  double seconds_ = 0;  // of waits that have ended
  std::optional<WaitTime> began_;
};

// DEADLINE_INFEASIBLE when work that takes about `estimate_seconds` can't end in
// `remaining_seconds` with a little room.
absl::Status CheckFeasible(double estimate_seconds, double remaining_seconds);

// Requests of a class in all queues now, and those that were refused because one was full.
size_t QueuedRequests(const ServerState& state, Priority priority);
int64_t RefusedRequests(const ServerState& state, Priority priority);

}  // namespace tenon::server

#endif  // TENON_SERVER_QUEUE_WAIT_H_
