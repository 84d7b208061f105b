#include "server/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "server/queue_wait.h"
#include "server/warm_memory.h"
#include "tests/server/waiting_support.h"
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
  EXPECT_EQ(refused.status().message(), "the request plans 101 bytes; this server has 100 bytes");
  EXPECT_EQ(GetErrorDetails(refused.status()).metadata.count("planned_peak_is_lower_bound"), 0u);
  const auto uncounted = budget.Reserve(int64_t{1} << 50);
  EXPECT_TRUE(Fails(uncounted, Reason::kExceedsServerLimit));
  EXPECT_EQ(uncounted.status().message(),
            "the request plans at least 1 PiB; this server has 100 bytes");
  EXPECT_EQ(GetErrorDetails(uncounted.status()).metadata.at("planned_peak_is_lower_bound"), "true");
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
  request.priority = Priority::kBulk;
  request.bounded = false;  // accepted before
  EXPECT_TRUE(budget.ReserveInTurn(request).ok());
  EXPECT_TRUE(budget.Leave(7));
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

}  // namespace
}  // namespace tenon::server
