#include "backends/cpu/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "backends/core/arena_pool.h"
#include "oneapi/tbb/global_control.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kScratchBytes = 64;

// Lets `count` threads meet. False for those who waited in vain.
class Meeting {
 public:
  explicit Meeting(int count) : missing_(count) {}

  bool Wait() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) all_there_.notify_all();
    return all_there_.wait_for(lock, std::chrono::seconds(20), [&] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_there_;
  int missing_;
};

class ThreadTeamTest : public ::testing::Test {
 protected:
  // A team of three, also on machines with fewer cores.
  ThreadTeam Team(int threads) {
    scratch_.resize(static_cast<size_t>(threads * kScratchBytes));
    return ThreadTeam(threads, scratch_.data(), kScratchBytes);
  }

  const tbb::global_control maybe_more_than_cores_{tbb::global_control::max_allowed_parallelism, 3};
  std::vector<std::byte> scratch_;
};

TEST_F(ThreadTeamTest, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3}) {
    ThreadTeam team = Team(threads);
    for (const int64_t count : {0, 1, 2, 7, 100, 1001}) {
      for (const int64_t grain : {0, 1, 5, 1000, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
        const auto visit = [&](int64_t begin, int64_t end, Scratch) {
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        };
        team.For(count, grain, visit);
        team.Enter([&] { team.For(count, grain, visit); });
        EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 2; }))
            << threads << " threads, " << count << " by " << grain;
      }
    }
  }
}

TEST_F(ThreadTeamTest, TeamsUseTheArenasOfThoseBefore) {
  { const ThreadTeam team = Team(3); }
  const int64_t made = ArenasMade();
  for (int i = 0; i < 20; ++i) {
    ThreadTeam team = Team(3);
    team.For(5, 1, [](int64_t, int64_t, Scratch) {});
  }
  EXPECT_EQ(ArenasMade(), made);
}

TEST_F(ThreadTeamTest, AThreadWithNothingToDoHelps) {
  ThreadTeam team = Team(2);
  Meeting meeting(2);
  std::atomic<int> met{0};
  team.Enter([&] {
    team.For(2, 1, [&](int64_t begin, int64_t end, Scratch) {
      for (int64_t i = begin; i < end; ++i) met += meeting.Wait();
    });
  });
  EXPECT_EQ(met, 2);
}

TEST_F(ThreadTeamTest, CallersThatFillTheTeamWorkAlone) {
  ThreadTeam team = Team(2);
  Meeting inside(2), done(2);
  std::atomic<bool> alone{true};
  const auto call = [&] {
    team.Enter([&] {
      EXPECT_TRUE(inside.Wait());
      const std::thread::id self = std::this_thread::get_id();
      for (int round = 0; round < 100; ++round) {
        team.For(64, 1, [&](int64_t, int64_t, Scratch) {
          if (std::this_thread::get_id() != self) alone = false;
        });
      }
      EXPECT_TRUE(done.Wait());
    });
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_TRUE(alone);
}

TEST_F(ThreadTeamTest, MoreCallersThanThreadsTakeTurns) {
  ThreadTeam team = Team(2);
  std::atomic<int> inside{0}, most{0}, done{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        team.Enter([&] {
          const int now = ++inside;
          int seen = most;
          while (seen < now && !most.compare_exchange_weak(seen, now)) {
          }
          team.For(16, 1, [&](int64_t begin, int64_t end, Scratch) {
            done += static_cast<int>(end - begin);
          });
          --inside;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_LE(most, 2);
  EXPECT_EQ(done, 8 * 50 * 16);
}

// Every range marks its scratch with its loop. A mark that is there while the range runs is its
// own, and scratch that is said to be kept has the mark of this loop.
TEST_F(ThreadTeamTest, ScratchIsKeptWithinALoopAndNotShared) {
  ThreadTeam team = Team(3);
  std::atomic<int> next_loop{1}, kept{0}, wrong{0};
  const auto call = [&] {
    for (int round = 0; round < 200; ++round) {
      team.Enter([&] {
        const int loop = next_loop++;
        team.For(24, 1, [&](int64_t, int64_t, Scratch scratch) {
          int mark = 0;
          std::memcpy(&mark, scratch.data, sizeof(mark));
          if (scratch.is_kept) {
            ++kept;
            if (mark != loop) ++wrong;
          }
          for (int i = 0; i < 50; ++i) {
            std::memcpy(scratch.data, &loop, sizeof(loop));
            std::atomic_signal_fence(std::memory_order_seq_cst);
            std::memcpy(&mark, scratch.data, sizeof(mark));
            if (mark != loop) ++wrong;
          }
        });
      });
    }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(kept, 0);
}

TEST_F(ThreadTeamTest, ExceptionsReachTheCaller) {
  ThreadTeam team = Team(3);
  const auto fail = [](int64_t, int64_t, Scratch) { throw std::runtime_error("no"); };
  EXPECT_THROW(team.For(100, 1, fail), std::runtime_error);
  EXPECT_THROW(team.Enter([&] { team.For(100, 1, fail); }), std::runtime_error);
  int64_t sum = 0;  // the team is whole again, and not thought to be busy
  Meeting meeting(2);
  team.Enter([&] {
    team.For(2, 1, [&](int64_t, int64_t, Scratch) { EXPECT_TRUE(meeting.Wait()); });
    team.For(3, 5, [&](int64_t begin, int64_t end, Scratch) { sum += end - begin; });
  });
  EXPECT_EQ(sum, 3);
}

}  // namespace
}  // namespace tenon::cpu
