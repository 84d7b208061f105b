// Runs requests: a few at a time, the rest waiting in a bounded queue.

#ifndef TENON_SERVER_EXECUTOR_H_
#define TENON_SERVER_EXECUTOR_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/expiry_timer.h"
#include "server/priority.h"
#include "server/waiting_line.h"

namespace tenon::server {

// A pool of request threads. Each runs one request's task at a time; the tasks themselves use the
// providers' threads, so that few run at once and nobody is slowed by oversubscription
// (backends/core/cpu_share.h divides the cores among those that do).
// Requests wait in the order of WaitingLine. They and continuations of those that began, which wait
// in order of arrival, take turns: a long stream neither keeps new requests out nor is kept out by
// them. Where there are several threads, one never has bulk work, neither requests nor
// continuations: however long that takes, the other classes find a thread. Thread-safe.
class Executor {
 public:
  struct Request {
    uint64_t ticket = 0;  // 0: nobody will ask for its place or take it away
    Priority priority = Priority::kDefault;
    WaitTime until = WaitTime::max();  // the latest time to begin
    std::function<void()> task;
    // Called instead of the task when `until` has come and all threads are busy still; on a thread
    // of the executor's that does nothing else, so it must not take long. Null: nothing is.
    std::function<void()> expired = nullptr;
  };
  using Now = std::function<WaitTime()>;

  // `threads` tasks at once, at most `max_queued` of each class waiting.
  Executor(int threads, size_t max_queued, Now now = std::chrono::steady_clock::now);
  // Runs what is queued, then joins.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // OVERLOADED with a retry delay when its class has no place in the queue. Tasks must not throw.
  absl::Status Submit(Request request);
  absl::Status Submit(std::function<void()> task) { return Submit({.task = std::move(task)}); }
  // Never refused: for the continuation of work that was admitted before. It takes no place in the
  // queue of requests. `priority`: the class of that work.
  void Continue(std::function<void()> task, Priority priority = Priority::kDefault);

  // Requests that wait already stay.
  void SetMaxQueued(size_t max_queued);
  // Takes a request out of the queue: true means that it waited and will neither run nor expire.
  bool Leave(uint64_t ticket);
  // How many requests will begin before this one; absent: it does not wait (any more).
  std::optional<size_t> Position(uint64_t ticket) const;
  // Does what the timer does: ends the wait of those whose time has come. For tests with a clock of
  // their own.
  void Expire();

  // What a refused request should wait: until those that wait now have begun, by the mean time of
  // recent tasks; 1 to 60.
  double RetryDelaySeconds() const;

  size_t queued() const;  // requests that have not begun
  size_t queued(Priority priority) const;
  size_t continuing() const;  // continuations that have not begun
  int running() const;
  size_t begun() const;                      // requests that have begun, since the start
  int64_t refused(Priority priority) const;  // because the queue was full, since the start

 private:
  struct Work {
    std::function<void()> task, expired;
  };

  struct Task {
    std::function<void()> run;
    Priority priority = Priority::kDefault;
  };

  void Run();
  // All with mutex_ held.
  // How many more bulk tasks may run.
  size_t BulkPlaces() const;
  // Threads that a request of the class would find free, the continuations having theirs.
  size_t Idle(Priority priority) const;
  // What a free thread may begin now; end() and 0: nothing.
  std::deque<Task>::iterator NextContinuation();
  uint64_t NextRequest() const;  // a ticket
  // The next task; absent: none may begin.
  std::optional<Task> Take();
  double RetryDelay() const;

  const Now now_;
  mutable std::mutex mutex_;
  std::condition_variable available_;
  WaitingLine<Work> requests_;
  std::deque<Task> continuations_;
  bool request_is_next_ = false;  // when there are both
  int running_ = 0, running_bulk_ = 0;
  size_t begun_ = 0;
  double task_seconds_ = 0;  // of a task, the mean of recent ones
  std::array<int64_t, kPriorities> refused_{};
  bool stopped_ = false;
  std::unique_ptr<ExpiryTimer> timer_;  // from the first request on that may expire
  std::vector<std::thread> threads_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_EXECUTOR_H_
