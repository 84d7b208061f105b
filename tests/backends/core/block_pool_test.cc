#include "backends/core/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "backends/core/memory.h"

namespace tenon {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class BlockPoolTest : public ::testing::Test {
 protected:
  // A block that was used: its pages hold `value`.
  char* Taken(int64_t bytes, char value) {
    auto* const memory = static_cast<char*>(pool_.Take(bytes));
    EXPECT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kHugePageBytes, 0u);
    if (memory != nullptr) std::memset(memory, value, static_cast<size_t>(bytes));
    return memory;
  }

  BlockPool::TimePoint now_{};
  BlockPool pool_{[this] { return now_; }};
};

TEST_F(BlockPoolTest, KeepsNothingWithoutALimit) {
  pool_.Give(Taken(4 * kMiB, 1), 4 * kMiB);
  EXPECT_EQ(pool_.kept_bytes(), 0);
}

TEST_F(BlockPoolTest, GivesAKeptBlockAgain) {
  pool_.SetLimit(16 * kMiB);
  char* const first = Taken(4 * kMiB, 1);
  pool_.Give(first, 4 * kMiB);
  EXPECT_EQ(pool_.kept_bytes(), 4 * kMiB);
  EXPECT_EQ(pool_.taken_bytes(), 0);
  auto* const again = static_cast<char*>(pool_.Take(4 * kMiB));
  EXPECT_EQ(again, first);
  EXPECT_EQ(again[kMiB], 1);  // its pages were not cleared
  EXPECT_EQ(pool_.kept_bytes(), 0);
  EXPECT_EQ(pool_.taken_bytes(), 4 * kMiB);
  pool_.Give(again, 4 * kMiB);
}

TEST_F(BlockPoolTest, CutsAKeptBlockToWhatWasAskedFor) {
  pool_.SetLimit(64 * kMiB);
  char* const first = Taken(16 * kMiB, 1);
  pool_.Give(first, 16 * kMiB);
  EXPECT_EQ(pool_.Take(15 * kMiB + 1), first);
  EXPECT_EQ(pool_.kept_bytes(), 0);
  pool_.Give(first, 15 * kMiB + 1);
  EXPECT_EQ(pool_.kept_bytes(), 15 * kMiB + 4096);
}

TEST_F(BlockPoolTest, BlocksFarTooLargeStayForOthers) {
  pool_.SetLimit(64 * kMiB);
  char* const first = Taken(16 * kMiB, 1);
  pool_.Give(first, 16 * kMiB);
  void* const small = pool_.Take(4 * kMiB);
  EXPECT_NE(small, first);
  EXPECT_EQ(pool_.kept_bytes(), 16 * kMiB);
  pool_.Give(small, 4 * kMiB);
}

TEST_F(BlockPoolTest, TheBestFitIsTaken) {
  pool_.SetLimit(64 * kMiB);
  char* const large = Taken(17 * kMiB, 1);
  char* const fitting = Taken(16 * kMiB, 2);
  pool_.Give(fitting, 16 * kMiB);
  pool_.Give(large, 17 * kMiB);
  EXPECT_EQ(pool_.Take(16 * kMiB), fitting);
  pool_.Give(fitting, 16 * kMiB);
}

TEST_F(BlockPoolTest, TheLeastRecentlyUsedGoFirst) {
  pool_.SetLimit(10 * kMiB);
  std::vector<char*> blocks;
  for (char i = 0; i < 3; ++i) blocks.push_back(Taken((4 + i) * kMiB, i));
  pool_.Give(blocks[0], 4 * kMiB);
  pool_.Give(blocks[1], 5 * kMiB);
  EXPECT_EQ(pool_.kept_bytes(), 9 * kMiB);
  pool_.Give(blocks[2], 6 * kMiB);  // both others have to go
  EXPECT_EQ(pool_.kept_bytes(), 6 * kMiB);
  pool_.Trim(5 * kMiB);
  EXPECT_EQ(pool_.kept_bytes(), 0);
  pool_.Give(Taken(11 * kMiB, 1), 11 * kMiB);  // more than the limit
  EXPECT_EQ(pool_.kept_bytes(), 0);
}

TEST_F(BlockPoolTest, IdleBlocksGo) {
  pool_.SetLimit(64 * kMiB);
  char* const a = Taken(4 * kMiB, 1);
  char* const b = Taken(8 * kMiB, 1);
  pool_.Give(a, 4 * kMiB);
  now_ += std::chrono::seconds(5);
  pool_.Give(b, 8 * kMiB);
  now_ += std::chrono::seconds(5);
  pool_.TrimIdle(std::chrono::seconds(11));
  EXPECT_EQ(pool_.kept_bytes(), 12 * kMiB);
  pool_.TrimIdle(std::chrono::seconds(10));
  EXPECT_EQ(pool_.kept_bytes(), 8 * kMiB);
  pool_.SetLimit(0);
  EXPECT_EQ(pool_.kept_bytes(), 0);
}

TEST_F(BlockPoolTest, RefusesWhatCannotBe) {
  EXPECT_EQ(pool_.Take(0), nullptr);
  EXPECT_EQ(pool_.Take(-1), nullptr);
  EXPECT_EQ(pool_.Take(int64_t{1} << 60), nullptr);
  EXPECT_EQ(pool_.Take(std::numeric_limits<int64_t>::max()), nullptr);
}

// No two threads hold a block at once, and each holds all that it asked for.
TEST_F(BlockPoolTest, ThreadsShareIt) {
  pool_.SetLimit(32 * kMiB);
  std::vector<std::thread> threads;
  for (char i = 1; i <= 4; ++i) {
    threads.emplace_back([this, i] {
      std::minstd_rand random(static_cast<unsigned>(i));
      for (int repeat = 0; repeat < 50; ++repeat) {
        const int64_t bytes = 2 * kMiB + static_cast<int64_t>(random() % (2 * kMiB));
        char* const memory = static_cast<char*>(pool_.Take(bytes));
        ASSERT_NE(memory, nullptr);
        for (int64_t at = 0; at < bytes; at += 4096) memory[at] = i;
        memory[bytes - 1] = i;
        for (int64_t at = 0; at < bytes; at += 4096) ASSERT_EQ(memory[at], i);
        pool_.Give(memory, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool_.kept_bytes(), 32 * kMiB);
}

TEST(BlockPool, ServesLargeAllocations) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer guards every block";
#endif
  BlockPool::Shared().SetLimit(64 * kMiB);
  void* const memory = AllocateMemory(4 * kMiB, 64);
  ReleaseMemory(memory, 4 * kMiB);
  EXPECT_EQ(BlockPool::Shared().kept_bytes(), 4 * kMiB);
  EXPECT_EQ(AllocateMemory(4 * kMiB, 64), memory);
  ReleaseMemory(memory, 4 * kMiB);
  BlockPool::Shared().SetLimit(0);
  EXPECT_EQ(BlockPool::Shared().kept_bytes(), 0);
}

}  // namespace
}  // namespace tenon
