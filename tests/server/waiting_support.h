// What tests of queues share: a clock that is told the time, and waiting for other threads.

#ifndef TENON_TESTS_SERVER_WAITING_SUPPORT_H_
#define TENON_TESTS_SERVER_WAITING_SUPPORT_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "server/waiting_line.h"

namespace tenon::server {

// Another thread may be at work on what is looked at: so waits until all is told.
inline void Await(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(holds());
}

// A clock that stands still unless it is told.
class FakeClock {
 public:
  std::function<WaitTime()> now() {
    return [this] { return WaitTime(std::chrono::nanoseconds(nanoseconds_.load())); };
  }
  WaitTime In(std::chrono::seconds time) { return now()() + time; }
  void Advance(std::chrono::seconds time) {
    nanoseconds_ += std::chrono::nanoseconds(time).count();
  }

 private:
  // A century from now, so that no timer of the real clock ever gets there.
  std::atomic<int64_t> nanoseconds_{3'000'000'000'000'000'000};
};

}  // namespace tenon::server

#endif  // TENON_TESTS_SERVER_WAITING_SUPPORT_H_
