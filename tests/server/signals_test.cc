#include "server/signals.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

namespace tenon::server {
namespace {

// Collects signals and waits for them.
class Collector {
 public:
  void Take(int signal) {
    std::lock_guard lock(mutex_);
    taken_.push_back(signal);
    changed_.notify_all();
  }
  std::vector<int> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return taken_.size() >= count; });
    return taken_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> taken_;
};

// Gives the test's process its own ways with signals back.
class SignalsTest : public ::testing::Test {
 protected:
  ~SignalsTest() override {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
      std::signal(signal, SIG_DFL);
      sigaddset(&set, signal);
    }
    std::signal(SIGPIPE, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  }
};

TEST_F(SignalsTest, ReachTheThreadFromWhereverTheyArrive) {
  // Stands for a thread that a library started before main could block anything.
  std::mutex running;
  running.lock();
  std::thread library([&] { std::lock_guard wait(running); });

  PrepareSignals();
  kill(getpid(), SIGTERM);  // before anybody listens
  Collector collector;
  {
    SignalThread signals([&](int signal) { collector.Take(signal); });
    EXPECT_EQ(collector.WaitFor(1), (std::vector<int>{SIGTERM}));
    kill(getpid(), SIGHUP);
    EXPECT_EQ(collector.WaitFor(2).back(), SIGHUP);
    pthread_kill(library.native_handle(), SIGINT);  // straight at the thread that blocks nothing
    EXPECT_EQ(collector.WaitFor(3).back(), SIGINT);
  }
  running.unlock();
  library.join();
}

}  // namespace
}  // namespace tenon::server
