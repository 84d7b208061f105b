// The threads on which a client's background calls run.

#ifndef TENON_CLIENT_CPP_CALL_THREADS_H_
#define TENON_CLIENT_CPP_CALL_THREADS_H_

#include <functional>
#include <memory>

namespace tenon::client {

// Runs tasks in the order in which they come, as many at a time as it has threads. Threads are made
// when they are needed and end when they have had nothing to do for a while. Thread-safe. Tasks
// that have been given are run even after this is gone; a task may destroy it.
class CallThreads {
 public:
  // `most`: threads at most, >= 1.
  explicit CallThreads(int most);
  void Run(std::function<void()> task);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_CALL_THREADS_H_
