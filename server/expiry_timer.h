// Does what is due at its time, whatever other threads are busy with.

#ifndef TENON_SERVER_EXPIRY_TIMER_H_
#define TENON_SERVER_EXPIRY_TIMER_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "server/waiting_line.h"

namespace tenon::server {

// One thread. Thread-safe; Wake may be called while locks are held that `work` takes.
class ExpiryTimer {
 public:
  // `work` does what is due and returns when it wants to be called next; WaitTime::max(): not
  // before it is woken. The first call is at the first Wake.
  explicit ExpiryTimer(std::function<WaitTime()> work);
  // Waits for a call that is under way; there are none afterwards.
  ~ExpiryTimer();
  ExpiryTimer(const ExpiryTimer&) = delete;
  ExpiryTimer& operator=(const ExpiryTimer&) = delete;

  // Calls `work` soon.
  void Wake();

 private:
  void Run();

  const std::function<WaitTime()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_EXPIRY_TIMER_H_
