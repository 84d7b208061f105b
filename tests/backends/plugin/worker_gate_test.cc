#include "backends/plugin/worker_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tenon::plugin {
namespace {

using tenon::testing::Fails;

void AwaitWaiting(const WorkerGate& gate, int count) {
  while (gate.waiting() != count) std::this_thread::yield();
}

TEST(WorkerGate, AJobAloneGetsAllSlots) {
  WorkerGate gate(3);
  const CancelToken cancel;
  const int job = 0;
  const auto first = gate.Enter(&job, cancel), second = gate.Enter(&job, cancel),
             third = gate.Enter(&job, cancel);
  EXPECT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(gate.waiting(), 0);
}

TEST(WorkerGate, ASlotIsGivenBackWhenItGoes) {
  WorkerGate gate(1);
  const CancelToken cancel;
  const int job = 0;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gate.Enter(&job, cancel).ok());
}

// A job with many workers that holds all slots, and one that comes later with a single worker: the
// next free slot is the latter's, although the former asked first.
TEST(WorkerGate, TheJobThatHoldsFewestIsNext) {
  WorkerGate gate(2);
  const CancelToken cancel;
  const int big = 0, small = 0;
  std::vector<absl::StatusOr<WorkerGate::Slot>> held;
  held.push_back(gate.Enter(&big, cancel));
  held.push_back(gate.Enter(&big, cancel));
  std::mutex mutex;
  std::string order;
  const auto wait = [&](const int* job, char name) {
    const auto slot = gate.Enter(job, cancel);
    ASSERT_TRUE(slot.ok());
    std::lock_guard lock(mutex);
    order += name;
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { wait(&big, 'B'); });
  AwaitWaiting(gate, 1);
  threads.emplace_back([&] { wait(&big, 'B'); });
  AwaitWaiting(gate, 2);
  threads.emplace_back([&] { wait(&small, 's'); });
  AwaitWaiting(gate, 3);
  held.pop_back();
  AwaitWaiting(gate, 0);
  held.clear();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order.front(), 's');
  EXPECT_EQ(order.size(), 3u);
}

// Jobs that ask again and again get turns in equal parts.
TEST(WorkerGate, JobsTakeTurns) {
  WorkerGate gate(1);
  const CancelToken cancel;
  constexpr int kJobs = 3, kTurns = 60;
  int jobs[kJobs] = {};
  std::vector<int> turns;  // by the holder of the only slot
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  const int holder = 0;
  std::optional<absl::StatusOr<WorkerGate::Slot>> hold = gate.Enter(&holder, cancel);
  for (int j = 0; j < kJobs; ++j) {
    threads.emplace_back([&, j] {
      for (;;) {
        const auto slot = gate.Enter(&jobs[j], cancel);
        if (turns.size() >= kTurns) return;
        turns.push_back(j);
        // Whoever is on his way back gets the time to queue up: then the order is decided.
        while (gate.waiting() < kJobs - 1) std::this_thread::yield();
      }
    });
  }
  AwaitWaiting(gate, kJobs);
  hold.reset();
  for (std::thread& thread : threads) thread.join();
  for (int j = 0; j < kJobs; ++j) {
    EXPECT_EQ(std::count(turns.begin(), turns.end(), j), kTurns / kJobs) << j;
  }
}

TEST(WorkerGate, CancelEndsTheWaiting) {
  WorkerGate gate(1);
  const CancelToken none;
  CancelToken cancel;
  const int job = 0, other = 0;
  const auto held = gate.Enter(&job, none);
  std::thread waiter([&] { EXPECT_TRUE(Fails(gate.Enter(&other, cancel), Reason::kDraining)); });
  AwaitWaiting(gate, 1);
  cancel.Cancel(Reason::kDraining);
  waiter.join();
  EXPECT_EQ(gate.waiting(), 0);
}

TEST(WorkerGate, WhoIsCancelledOrLateDoesNotEnter) {
  WorkerGate gate(1);
  CancelToken cancelled;
  cancelled.Cancel();
  const int job = 0;
  EXPECT_TRUE(Fails(gate.Enter(&job, cancelled), Reason::kClientCancelled));
  const CancelToken late{std::chrono::steady_clock::now() - std::chrono::seconds(1)};
  EXPECT_TRUE(Fails(gate.Enter(&job, late), Reason::kDeadline));
}

}  // namespace
}  // namespace tenon::plugin
