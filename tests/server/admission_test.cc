#include "server/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "server/executor.h"
#include "server/queue_wait.h"
#include "server/warm_memory.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;

TEST(MemoryBudget, ReservesUpToTheLimitAndNoFurther) {
  MemoryBudget budget(100);
  auto first = budget.Reserve(60);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(budget.reserved_bytes(), 60);
  const auto refused = budget.Reserve(41);
  EXPECT_TRUE(Fails(refused, Reason::kOverloaded));
  const auto metadata = GetErrorDetails(refused.status()).metadata;
  EXPECT_EQ(metadata.at("planned_peak_bytes"), "41");
  EXPECT_EQ(metadata.at("free_bytes"), "40");
  EXPECT_EQ(metadata.at("limit_bytes"), "100");
  EXPECT_EQ(metadata.count("retry_delay_seconds"), 1u);
  EXPECT_TRUE(budget.Reserve(40).ok());  // given back at once
  EXPECT_EQ(budget.reserved_bytes(), 60);
}

TEST(MemoryBudget, TakesNoNegativeBytes) {
  MemoryBudget budget(100);
  EXPECT_FALSE(budget.Reserve(-1).ok());
  EXPECT_FALSE(budget.ReserveFree(-1).has_value());
  EXPECT_EQ(budget.reserved_bytes(), 0);
}

TEST(MemoryBudget, WhatNeverFitsIsNoOverload) {
  MemoryBudget budget(100);
  const auto refused = budget.Reserve(101);
  EXPECT_TRUE(Fails(refused, Reason::kExceedsServerLimit));
  EXPECT_EQ(GetErrorDetails(refused.status()).metadata.count("retry_delay_seconds"), 0u);
  EXPECT_TRUE(Fails(budget.Reserve(INT64_MAX), Reason::kExceedsServerLimit));
  EXPECT_TRUE(budget.Reserve(100).ok());
  EXPECT_TRUE(budget.Reserve(0).ok());
}

// What is kept warm has to fit beside what is reserved, the new reservation included.
TEST(MemoryBudget, WarmMemoryMakesRoom) {
  MemoryBudget budget(100);
  std::vector<int64_t> free;
  budget.SetShrinker([&](int64_t bytes) { free.push_back(bytes); });
  const auto first = budget.Reserve(60);
  EXPECT_FALSE(budget.Reserve(50).ok());
  const auto second = budget.Reserve(40);
  EXPECT_EQ(free, (std::vector<int64_t>{40, 0}));
}

TEST(WarmMemory, KeepsBlocksWhileItLives) {
  BlockPool pool;
  constexpr int64_t kBytes = int64_t{4} << 20;
  {
    const WarmMemory warm(&pool, 2 * kBytes);
    pool.Give(pool.Take(kBytes), kBytes);
    EXPECT_EQ(pool.kept_bytes(), kBytes);
  }
  EXPECT_EQ(pool.kept_bytes(), 0);
  pool.Give(pool.Take(kBytes), kBytes);
  EXPECT_EQ(pool.kept_bytes(), 0);
}

TEST(MemoryBudget, ReservationsMoveAndGiveBackOnce) {
  MemoryBudget budget(100);
  Reservation kept;
  {
    auto reservation = budget.Reserve(30);
    ASSERT_TRUE(reservation.ok());
    kept = *std::move(reservation);
  }
  EXPECT_EQ(budget.reserved_bytes(), 30);
  EXPECT_EQ(kept.bytes(), 30);
  Reservation other = std::move(kept);
  kept.Release();
  EXPECT_EQ(budget.reserved_bytes(), 30);
  other = *budget.Reserve(10);  // gives the 30 back
  EXPECT_EQ(budget.reserved_bytes(), 10);
  other.Release();
  other.Release();
  EXPECT_EQ(budget.reserved_bytes(), 0);
}

// Another thread may be at work on what is looked at: so waits until all is told.
void Await(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(holds());
}

// Holds tasks until the test lets them go.
class Gate {
 public:
  void Open() { promise_.set_value(); }
  std::function<void()> Task() {
    return [this, opened = opened_] {
      started_.set_value();
      opened.wait();
    };
  }
  void WaitUntilStarted() { started_.get_future().wait(); }

 private:
  std::promise<void> promise_, started_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

TEST(Executor, QueuesAsManyAsItMayAndRefusesTheRest) {
  Gate gate;
  std::vector<int> order;
  {
    Executor executor(1, 2);
    ASSERT_TRUE(executor.Submit(gate.Task()).ok());
    gate.WaitUntilStarted();
    EXPECT_EQ(executor.running(), 1);
    ASSERT_TRUE(executor.Submit([&] { order.push_back(1); }).ok());
    ASSERT_TRUE(executor.Submit([&] { order.push_back(2); }).ok());
    EXPECT_EQ(executor.queued(), 2u);
    const absl::Status refused = executor.Submit([&] { order.push_back(3); });
    EXPECT_TRUE(Fails(refused, Reason::kOverloaded));
    EXPECT_EQ(GetErrorDetails(refused).metadata.at("queued_requests"), "2");
    EXPECT_EQ(GetErrorDetails(refused).metadata.count("retry_delay_seconds"), 1u);
    executor.Continue([&] { order.push_back(0); });  // never refused
    gate.Open();
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(Executor, ContinuationsTakeTurnsWithWaitingRequestsAndNoPlaceInTheQueue) {
  Gate gate;
  std::string order;
  std::function<void()> stream;
  {
    Executor executor(1, 2);
    ASSERT_TRUE(executor.Submit(gate.Task()).ok());
    gate.WaitUntilStarted();
    stream = [&, left = 4]() mutable {  // long: each of its tasks brings the next
      order += 'c';
      if (--left > 0) executor.Continue([&] { stream(); });
    };
    executor.Continue([&] { stream(); });
    executor.Continue([&] { order += 'd'; });
    ASSERT_TRUE(executor.Submit([&] { order += '1'; }).ok());
    ASSERT_TRUE(executor.Submit([&] { order += '2'; }).ok());
    EXPECT_EQ(executor.queued(), 2u);
    EXPECT_TRUE(Fails(executor.Submit([] {}), Reason::kOverloaded));
    gate.Open();
  }
  EXPECT_EQ(order, "c1d2ccc");
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

TEST(Executor, ServesClassesInTheirOrderAndBoundsEachByItself) {
  Gate gate;
  std::string order;
  {
    Executor executor(1, 1);
    ASSERT_TRUE(executor.Submit(gate.Task()).ok());
    gate.WaitUntilStarted();
    const auto submit = [&](Priority priority, char name) {
      return executor.Submit({.priority = priority, .task = [&order, name] { order += name; }});
    };
    EXPECT_TRUE(submit(Priority::kBulk, 'b').ok());
    const absl::Status full = submit(Priority::kBulk, 'x');
    EXPECT_TRUE(Fails(full, Reason::kOverloaded));
    EXPECT_EQ(GetErrorDetails(full).metadata.at("class"), "bulk");
    EXPECT_TRUE(submit(Priority::kDefault, 'd').ok());
    EXPECT_TRUE(submit(Priority::kInteractive, 'i').ok());
    EXPECT_EQ(executor.queued(Priority::kBulk), 1u);
    EXPECT_EQ(executor.refused(Priority::kBulk), 1);
    EXPECT_EQ(executor.refused(Priority::kInteractive), 0);
    gate.Open();
  }
  EXPECT_EQ(order, "idb");
}

// Two long ones that nobody waits for would take both threads.
TEST(Executor, BulkLeavesOneThreadToTheOthers) {
  Gate bulk, other;
  std::mutex mutex;
  std::string order;
  std::promise<void> interactive_ran;
  const auto note = [&](char name) {
    std::lock_guard lock(mutex);
    order += name;
  };
  const auto submit = [&](Executor* executor, Priority priority, std::function<void()> task) {
    return executor->Submit({.priority = priority, .task = std::move(task)});
  };
  {
    Executor executor(2, 1);
    ASSERT_TRUE(submit(&executor, Priority::kBulk, bulk.Task()).ok());
    bulk.WaitUntilStarted();
    ASSERT_TRUE(submit(&executor, Priority::kBulk, [&] { note('b'); }).ok());
    // The free thread is none for bulk.
    EXPECT_TRUE(Fails(submit(&executor, Priority::kBulk, [&] { note('x'); }), Reason::kOverloaded));
    executor.Continue([&] { note('c'); }, Priority::kBulk);
    ASSERT_TRUE(submit(&executor, Priority::kInteractive, [&] {
                  note('i');
                  interactive_ran.set_value();
                }).ok());
    interactive_ran.get_future().wait();
    ASSERT_TRUE(submit(&executor, Priority::kDefault, other.Task()).ok());
    other.WaitUntilStarted();  // the others may take all
    EXPECT_EQ(executor.running(), 2);
    EXPECT_EQ(executor.queued(Priority::kBulk), 1u);
    bulk.Open();
    Await([&] {
      std::lock_guard lock(mutex);
      return order.size() == 3;
    });
    other.Open();
  }
  EXPECT_TRUE(order == "icb" || order == "ibc") << order;
}

// Two threads wait for one that is busy with bulk; when it takes something else, they must hear
// that there is a place for bulk.
TEST(Executor, BulkBeginsAsSoonAsItsPlaceIsFree) {
  Gate first, second;
  std::promise<void> ran;
  Executor executor(3, 8);
  ASSERT_TRUE(executor.Submit({.priority = Priority::kBulk, .task = first.Task()}).ok());
  first.WaitUntilStarted();
  ASSERT_TRUE(executor.Submit({.priority = Priority::kBulk, .task = second.Task()}).ok());
  second.WaitUntilStarted();
  executor.Continue([&] { ran.set_value(); }, Priority::kBulk);
  EXPECT_EQ(executor.running(), 2);
  first.Open();
  ran.get_future().wait();
  second.Open();
}

TEST(Executor, RequestsLeaveAndTellTheirPlace) {
  Gate gate;
  std::string order;
  {
    Executor executor(1, 4);
    ASSERT_TRUE(executor.Submit(gate.Task()).ok());
    gate.WaitUntilStarted();
    auto held = std::make_shared<int>(0);
    const std::weak_ptr<int> watch = held;
    const uint64_t first = NewTicket(), second = NewTicket();
    ASSERT_TRUE(executor.Submit({.ticket = first, .task = [held, &order] { order += '1'; }}).ok());
    ASSERT_TRUE(executor.Submit({.ticket = second, .task = [&order] { order += '2'; }}).ok());
    held.reset();
    EXPECT_EQ(executor.Position(first), 0u);
    EXPECT_EQ(executor.Position(second), 1u);
    EXPECT_TRUE(executor.Leave(first));
    EXPECT_TRUE(watch.expired());  // what its task holds is let go at once
    EXPECT_FALSE(executor.Leave(first));
    EXPECT_FALSE(executor.Position(first).has_value());
    EXPECT_EQ(executor.Position(second), 0u);
    gate.Open();
  }
  EXPECT_EQ(order, "2");
}

// The only thread is busy all the time.
TEST(Executor, WaitsEndAtTheirTimeWhateverTheThreadsDo) {
  FakeClock clock;
  Gate gate;
  std::atomic<int> expired{0}, ran{0};
  {
    Executor executor(1, 4, clock.now());
    ASSERT_TRUE(executor.Submit(gate.Task()).ok());
    gate.WaitUntilStarted();
    const auto submit = [&](std::chrono::seconds until) {
      return executor.Submit(
          {.until = clock.In(until), .task = [&] { ++ran; }, .expired = [&] { ++expired; }});
    };
    ASSERT_TRUE(submit(std::chrono::seconds(5)).ok());
    ASSERT_TRUE(submit(std::chrono::seconds(9)).ok());
    executor.Expire();
    EXPECT_EQ(expired, 0);
    clock.Advance(std::chrono::seconds(5));
    executor.Expire();
    EXPECT_EQ(executor.queued(), 1u);
    gate.Open();
  }
  EXPECT_EQ(expired, 1);
  EXPECT_EQ(ran, 1);
}

// The same on the executor's own timer.
TEST(Executor, TheTimerEndsWaits) {
  Gate gate;
  std::promise<void> expired;
  Executor executor(1, 4);
  ASSERT_TRUE(executor.Submit(gate.Task()).ok());
  gate.WaitUntilStarted();
  ASSERT_TRUE(executor
                  .Submit({.until = std::chrono::steady_clock::now() + std::chrono::hours(1),
                           .task = [] {}})
                  .ok());
  ASSERT_TRUE(executor
                  .Submit({.until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5),
                           .task = [] { FAIL(); },
                           .expired = [&] { expired.set_value(); }})
                  .ok());
  expired.get_future().wait();
  EXPECT_EQ(executor.queued(), 1u);
  gate.Open();
}

TEST(Executor, TheRetryDelayIsWithinItsBounds) {
  Gate gate;
  Executor executor(1, 8);
  EXPECT_EQ(executor.RetryDelaySeconds(), 1);  // nothing is known, nothing waits
  ASSERT_TRUE(executor.Submit(gate.Task()).ok());
  gate.WaitUntilStarted();
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(executor.Submit([] {}).ok());
  EXPECT_GE(executor.RetryDelaySeconds(), 1);
  EXPECT_LE(executor.RetryDelaySeconds(), 60);
  gate.Open();
}

// What came of requests that wait for memory.
struct Line {
  explicit Line(MemoryBudget* budget) : budget(budget) {}
  // Nothing is told any more once it is gone.
  ~Line() {
    for (char name = 'A'; name <= 'z'; ++name) pending -= budget->Leave(name) ? 1 : 0;
    while (pending > 0) std::this_thread::yield();
  }
  // True: it has its bytes now.
  bool Ask(char name, int64_t bytes, Priority priority = Priority::kDefault,
           WaitTime until = WaitTime::max()) {
    MemoryBudget::Request request{.ticket = static_cast<uint64_t>(name),
                                  .priority = priority,
                                  .until = until,
                                  .bytes = bytes};
    request.granted = [this, name](Reservation reservation) {
      {
        std::lock_guard lock(mutex);
        granted += name;
        held[name] = std::move(reservation);
      }
      --pending;
    };
    request.refused = [this, name](const absl::Status& why) {
      {
        std::lock_guard lock(mutex);
        refused += name;
        status = why;
      }
      --pending;
    };
    ++pending;
    auto reserved = budget->ReserveInTurn(std::move(request));
    EXPECT_TRUE(reserved.ok()) << reserved.status();
    if (!reserved.ok() || !reserved->has_value()) return false;
    --pending;
    std::lock_guard lock(mutex);
    held[name] = *std::move(*reserved);
    return true;
  }
  // Those that were granted since the last call, once what fits has been.
  std::string Granted() {
    budget->Serve();
    std::lock_guard lock(mutex);
    return std::exchange(granted, "");
  }
  void Release(char name) {
    Reservation released;
    std::lock_guard lock(mutex);
    released = std::move(held[name]);
  }

  MemoryBudget* const budget;
  std::atomic<int> pending{0};  // that wait
  std::mutex mutex;
  std::map<char, Reservation> held;
  std::string granted, refused;
  absl::Status status;
};

TEST(MemoryLine, WhatDoesNotFitWaitsForWhatEnds) {
  MemoryBudget budget(100);
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 60));
  EXPECT_FALSE(line.Ask('b', 60));
  EXPECT_FALSE(line.Ask('c', 60));
  EXPECT_EQ(budget.waiting(Priority::kDefault), 2u);
  EXPECT_EQ(budget.waiting_bytes(Priority::kDefault), 120);
  EXPECT_EQ(budget.Position('c'), 1u);
  line.Release('a');
  Await([&] { return budget.waiting(Priority::kDefault) == 1; });
  EXPECT_EQ(budget.reserved_bytes(), 60);
  line.Release('b');  // it may be on its way still
  Await([&] {
    line.Release('b');
    return budget.waiting(Priority::kDefault) == 0;
  });
  std::lock_guard lock(line.mutex);
  EXPECT_EQ(line.refused, "");
}

TEST(MemoryLine, WhatOvertakesFitsBesideTheFirst) {
  MemoryBudget budget(100);
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 50));
  EXPECT_FALSE(line.Ask('L', 80));  // the first of the line from now on
  EXPECT_TRUE(line.Ask('s', 15));   // 80 + 15: the first one does not wait longer for it
  EXPECT_FALSE(line.Ask('t', 15));  // 80 + 15 + 15
  EXPECT_TRUE(line.Ask('u', 5));
  line.Release('s');
  EXPECT_TRUE(line.Ask('v', 15));  // what has overtaken is less now
  EXPECT_FALSE(line.Ask('w', 1));
  line.Release('a');
  Await([&] { return !budget.Position('L').has_value(); });
  Await([&] { return budget.reserved_bytes() == 100; });  // L, u, v
  // What was admitted already takes what is there.
  line.Release('u');
  EXPECT_TRUE(budget.Reserve(5).ok());
}

TEST(MemoryLine, ClassesGoFirst) {
  FakeClock clock;
  MemoryBudget budget(100, 64, clock.now());
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 100));
  EXPECT_FALSE(line.Ask('b', 100, Priority::kBulk));
  EXPECT_FALSE(line.Ask('i', 100, Priority::kInteractive));
  EXPECT_EQ(budget.Position('i'), 0u);
  EXPECT_EQ(budget.Position('b'), 1u);
  clock.Advance(std::chrono::seconds(25));
  EXPECT_FALSE(line.Ask('j', 100, Priority::kInteractive));
  EXPECT_EQ(budget.Position('b'), 1u);  // it has aged
  EXPECT_EQ(budget.Position('j'), 2u);
}

TEST(MemoryLine, WaitsEndAtTheirTime) {
  FakeClock clock;
  MemoryBudget budget(100, 64, clock.now());
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 60));
  EXPECT_FALSE(line.Ask('b', 60, Priority::kDefault, clock.In(std::chrono::seconds(30))));
  EXPECT_FALSE(line.Ask('c', 70, Priority::kDefault, clock.In(std::chrono::seconds(90))));
  clock.Advance(std::chrono::seconds(29));
  EXPECT_EQ(line.Granted(), "");
  EXPECT_EQ(budget.waiting(Priority::kDefault), 2u);
  clock.Advance(std::chrono::seconds(1));
  budget.Serve();
  Await([&] {
    std::lock_guard lock(line.mutex);
    return line.refused == "b";
  });
  std::lock_guard lock(line.mutex);
  EXPECT_TRUE(Fails(line.status, Reason::kOverloaded));
  const auto metadata = GetErrorDetails(line.status).metadata;
  EXPECT_EQ(metadata.at("planned_peak_bytes"), "60");
  EXPECT_EQ(metadata.at("free_bytes"), "40");
  EXPECT_EQ(metadata.at("limit_bytes"), "100");
  EXPECT_EQ(metadata.count("retry_delay_seconds"), 1u);
}

TEST(MemoryLine, IsBoundedByClassAndMayBeLeft) {
  MemoryBudget budget(100, 1);
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 100));
  EXPECT_FALSE(line.Ask('b', 10, Priority::kBulk));
  MemoryBudget::Request request{.ticket = 7, .priority = Priority::kBulk, .bytes = 10};
  request.granted = [](Reservation) { FAIL(); };
  EXPECT_TRUE(Fails(budget.ReserveInTurn(request).status(), Reason::kOverloaded));
  EXPECT_EQ(budget.refused(Priority::kBulk), 1);
  request.priority = Priority::kInteractive;
  EXPECT_TRUE(budget.ReserveInTurn(request).ok());
  EXPECT_TRUE(budget.Leave(7));
  EXPECT_FALSE(budget.Leave(7));
  // Who does not wait is refused, and never goes before those that do.
  line.Release('a');
  Await([&] { return budget.waiting(Priority::kBulk) == 0; });
  EXPECT_TRUE(budget.ReserveInTurn({.bytes = 90}).ok());
  EXPECT_TRUE(Fails(budget.ReserveInTurn({.bytes = 101}).status(), Reason::kExceedsServerLimit));
}

TEST(MemoryLine, ASmallerLimitLeavesWhatIsReserved) {
  MemoryBudget budget(100);
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 80));
  budget.SetLimit(50);
  EXPECT_EQ(budget.reserved_bytes(), 80);
  EXPECT_EQ(budget.free_bytes(), 0);
  const absl::Status busy = budget.Reserve(10).status();
  EXPECT_TRUE(Fails(busy, Reason::kOverloaded));
  EXPECT_EQ(GetErrorDetails(busy).metadata.at("free_bytes"), "0");
  EXPECT_TRUE(Fails(budget.Reserve(51), Reason::kExceedsServerLimit));
  line.Release('a');
  EXPECT_TRUE(budget.Reserve(50).ok());
}

TEST(MemoryLine, ALimitThatChangesIsSeenByThoseWhoWait) {
  MemoryBudget budget(100);
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 80));
  EXPECT_FALSE(line.Ask('b', 90));
  EXPECT_FALSE(line.Ask('c', 30));
  budget.SetLimit(85);  // b would never get it, and would keep c waiting
  Await([&] {
    std::lock_guard lock(line.mutex);
    return line.refused == "b";
  });
  EXPECT_TRUE(Fails(line.status, Reason::kExceedsServerLimit));
  EXPECT_EQ(budget.Position('c'), 0u);
  budget.SetLimit(110);
  Await([&] { return budget.waiting(Priority::kDefault) == 0; });
  EXPECT_EQ(budget.reserved_bytes(), 110);
}

TEST(MemoryLine, TheLineMayGrow) {
  MemoryBudget budget(100, 0);
  Line line(&budget);
  EXPECT_TRUE(line.Ask('a', 100));
  MemoryBudget::Request request{.ticket = 7, .bytes = 10};
  request.granted = [](Reservation) { FAIL(); };
  EXPECT_TRUE(Fails(budget.ReserveInTurn(request).status(), Reason::kOverloaded));
  budget.SetMaxWaiting(1);
  EXPECT_TRUE(budget.ReserveInTurn(request).ok());
  EXPECT_TRUE(budget.Leave(7));
}

// As content that was in use and is not any more: nothing is released, but can be evicted.
TEST(MemoryLine, LooksForWhatCanBeGivenBack) {
  MemoryBudget budget(100);
  std::mutex mutex;
  Reservation kept;
  std::atomic<bool> in_use{true};
  budget.SetReclaimer([&](int64_t bytes) {
    EXPECT_EQ(bytes, 20);
    std::lock_guard lock(mutex);
    if (!in_use) kept.Release();
  });
  kept = *budget.Reserve(50);
  Line line(&budget);
  EXPECT_FALSE(line.Ask('a', 70));
  in_use = false;
  Await([&] { return budget.reserved_bytes() == 70; });
}

TEST(MemoryBudget, ReservationsSplit) {
  MemoryBudget budget(100);
  auto all = budget.Reserve(60);
  ASSERT_TRUE(all.ok());
  {
    const Reservation part = all->Split(25);
    EXPECT_EQ(part.bytes(), 25);
    EXPECT_EQ(all->bytes(), 35);
    EXPECT_EQ(budget.reserved_bytes(), 60);
  }
  EXPECT_EQ(budget.reserved_bytes(), 35);
  EXPECT_EQ(all->Split(100).bytes(), 35);
  EXPECT_EQ(budget.reserved_bytes(), 0);
}

TEST(Deadlines, InfeasibleOnesAreToldApart) {
  EXPECT_TRUE(CheckFeasible(10, 12).ok());
  const absl::Status refused = CheckFeasible(10, 11.9);
  EXPECT_TRUE(Fails(refused, Reason::kDeadlineInfeasible));
  EXPECT_EQ(GetErrorDetails(refused).metadata.at("estimate_seconds"), "10");
  EXPECT_EQ(GetErrorDetails(refused).metadata.at("remaining_seconds"), "11.9");
}

TEST(Executor, WithoutAQueueItStillUsesItsThreads) {
  Gate first, second;
  Executor executor(2, 0);
  ASSERT_TRUE(executor.Submit(first.Task()).ok());
  ASSERT_TRUE(executor.Submit(second.Task()).ok());
  EXPECT_TRUE(Fails(executor.Submit([] {}), Reason::kOverloaded));
  first.WaitUntilStarted();
  second.WaitUntilStarted();
  EXPECT_TRUE(Fails(executor.Submit([] {}), Reason::kOverloaded));
  first.Open();
  second.Open();
}

TEST(Executor, DropsATaskAsSoonAsItHasRun) {
  auto held = std::make_shared<int>(0);
  std::weak_ptr<int> watch = held;
  std::promise<void> next;
  Executor executor(1, 4);
  ASSERT_TRUE(executor.Submit([held = std::move(held)] { ++*held; }).ok());
  ASSERT_TRUE(executor.Submit([&] { next.set_value(); }).ok());
  next.get_future().wait();
  EXPECT_TRUE(watch.expired());
}

TEST(Executor, TheQueueMayGrowAndShrink) {
  std::promise<void> opened;
  const auto gate = opened.get_future().share();
  Executor executor(1, 0);
  ASSERT_TRUE(executor.Submit([gate] { gate.wait(); }).ok());
  EXPECT_FALSE(executor.Submit([] {}).ok());
  executor.SetMaxQueued(1);
  EXPECT_TRUE(executor.Submit([] {}).ok());
  executor.SetMaxQueued(0);
  EXPECT_FALSE(executor.Submit([] {}).ok());
  opened.set_value();
}

}  // namespace
}  // namespace tenon::server
