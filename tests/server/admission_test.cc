#include "server/admission.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "server/executor.h"
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
