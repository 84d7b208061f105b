#include "backends/core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "backends/core/arena_pool.h"
#include "oneapi/tbb/global_control.h"

namespace tenon::testing {
namespace {

class ParallelTest : public ::testing::Test {
  const tbb::global_control allow_{tbb::global_control::max_allowed_parallelism, 4};
};

TEST_F(ParallelTest, MakesNoArenaPerLoop) {
  const Parallel parallel(3, nullptr);
  ASSERT_TRUE(parallel.ForEach(8, [](int64_t, int) {}).ok());
  const int64_t made = ArenasMade();
  for (int64_t blocks = 2; blocks < 200; ++blocks) {
    std::atomic<int64_t> calls = 0;
    ASSERT_TRUE(parallel.ForEach(blocks, [&](int64_t, int) { ++calls; }).ok());
    EXPECT_EQ(calls, blocks);
  }
  EXPECT_EQ(ArenasMade(), made);
}

TEST_F(ParallelTest, ArenasAreNeverSharedAndComeBack) {
  const int64_t before = ArenasMade();
  {
    const ArenaLease one = LeaseArena(4), other = LeaseArena(4);
    EXPECT_NE(one.get(), other.get());
  }
  const ArenaLease again = LeaseArena(4), second = LeaseArena(4);
  EXPECT_LE(ArenasMade(), before + 2);
}

// Loops side by side, and loops within blocks: a slot belongs to one call at a time, and a thread
// that waits for an inner loop begins no other block.
TEST_F(ParallelTest, SlotsAreNotUsedTwiceAtOnce) {
  constexpr int kThreads = 3;
  std::atomic<int> clashes = 0, nested_begins = 0;
  const auto request = [&] {
    const Parallel parallel(kThreads, nullptr);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<std::atomic<int>> busy(kThreads);
      const absl::Status status = parallel.ForEach(12, [&](int64_t, int slot) {
        static thread_local bool is_inside = false;
        if (is_inside) ++nested_begins;
        is_inside = true;
        if (++busy.at(slot) != 1) ++clashes;
        if (!parallel.ForEach(5, [](int64_t, int) { std::this_thread::yield(); }).ok()) ++clashes;
        --busy.at(slot);
        is_inside = false;
      });
      if (!status.ok()) ++clashes;
    }
  };
  std::vector<std::thread> requests;
  for (int i = 0; i < 4; ++i) requests.emplace_back(request);
  for (std::thread& thread : requests) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_EQ(nested_begins, 0);
}

}  // namespace
}  // namespace tenon::testing
