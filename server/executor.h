// Runs requests: a few at a time, the rest waiting in a bounded queue.

#ifndef TENON_SERVER_EXECUTOR_H_
#define TENON_SERVER_EXECUTOR_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace tenon::server {

// A pool of request threads. Each runs one request's task at a time; the tasks themselves use the
// providers' threads, so that few run at once and nobody is slowed by oversubscription.
// Requests that wait and continuations of those that began take turns, each in order of arrival: a
// long stream neither keeps new requests out nor is kept out by them. Thread-safe.
class Executor {
 public:
  // `threads` tasks at once, at most `max_queued` waiting.
  Executor(int threads, size_t max_queued);
  // Runs what is queued, then joins.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // OVERLOADED with a retry delay when the queue is full. Tasks must not throw.
  absl::Status Submit(std::function<void()> task);
  // Never refused: for the continuation of work that was admitted before. It takes no place in the
  // queue of requests.
  void Continue(std::function<void()> task);

  // Requests that wait already stay.
  void SetMaxQueued(size_t max_queued);

  size_t queued() const;  // requests that have not begun
  int running() const;
  size_t begun() const;  // requests that have begun, since the start

 private:
  void Work();
  // The next task; with mutex_ held and one there.
  std::function<void()> Take();

  mutable std::mutex mutex_;
  size_t max_queued_;
  std::condition_variable available_;
  std::deque<std::function<void()>> requests_, continuations_;
  bool request_is_next_ = false;  // when there are both
  int running_ = 0;
  size_t begun_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_EXECUTOR_H_
