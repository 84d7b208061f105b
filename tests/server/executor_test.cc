#include "server/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/waiting_support.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;

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
