#include "client/cpp/call_threads.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace tenon::client {
namespace {

constexpr std::chrono::seconds kIdle(5);

}  // namespace

struct CallThreads::State {
  const int most;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  int threads = 0;
  int idle = 0;

  explicit State(int most_threads) : most(most_threads) {}

  void Work() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait_for(lock, kIdle, [this] { return !tasks.empty(); });
      --idle;
      if (tasks.empty()) break;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it holds goes before it waits
      lock.lock();
    }
    --threads;
  }
};

CallThreads::CallThreads(int most) : state_(std::make_shared<State>(most)) {}

void CallThreads::Run(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  // Those that are idle may have been told of earlier tasks and not have woken yet.
  if (static_cast<size_t>(state_->idle) < state_->tasks.size() && state_->threads < state_->most) {
    std::thread([state = state_] { state->Work(); }).detach();
    ++state_->threads;
  }
  state_->changed.notify_one();
}

}  // namespace tenon::client
