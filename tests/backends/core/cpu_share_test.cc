#include "backends/core/cpu_share.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "backends/core/parallel.h"

namespace tenon {
namespace {

// Sixteen cores during the test.
class CpuShareTest : public ::testing::Test {
 protected:
  CpuShareTest() { CpuShare::SetCores(16); }
  ~CpuShareTest() override {
    CpuShare::SetCores(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  }
};

TEST_F(CpuShareTest, DividesTheCoresAmongThoseWhoRun) {
  EXPECT_EQ(CpuShare::Threads(), 16);  // nobody is counted
  std::vector<std::optional<CpuShare>> running(40);
  running[0].emplace();
  EXPECT_EQ(CpuShare::Threads(), 16);
  running[1].emplace();
  EXPECT_EQ(CpuShare::Threads(), 8);
  running[2].emplace();
  EXPECT_EQ(CpuShare::Threads(), 5);
  running[1].reset();
  EXPECT_EQ(CpuShare::Threads(), 8);
  for (auto& share : running) {
    if (!share.has_value()) share.emplace();
  }
  EXPECT_EQ(CpuShare::Threads(), 1);
}

TEST_F(CpuShareTest, AThreadBeyondTheShareWaitsForIt) {
  std::atomic<bool> over{false};
  std::optional<CpuShare> own(std::in_place), other(std::in_place);
  CpuShare::AwaitTurn(0, over);
  CpuShare::AwaitTurn(7, over);  // within it
  std::atomic<bool> passed{false};
  std::thread beyond([&] {
    CpuShare::AwaitTurn(8, over);
    passed = true;
  });
  EXPECT_FALSE(passed);
  other.reset();  // the share is 16 now
  beyond.join();
  EXPECT_TRUE(passed);
}

TEST_F(CpuShareTest, AThreadBeyondTheShareGoesWhenAllIsOver) {
  const CpuShare own, other;
  std::atomic<bool> over{false};
  std::thread beyond([&] { CpuShare::AwaitTurn(8, over); });
  over = true;
  CpuShare::WakeAll();
  beyond.join();
}

TEST_F(CpuShareTest, LoopsUseNoMoreThreadsThanTheShare) {
  CpuShare::SetCores(1);
  const CpuShare own, other;
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<int> elsewhere{0};
  ASSERT_TRUE(Parallel(4, nullptr)
                  .ForEach(1000,
                           [&](int64_t, int slot) {
                             elsewhere += std::this_thread::get_id() != here || slot != 0 ? 1 : 0;
                           })
                  .ok());
  EXPECT_EQ(elsewhere, 0);
}

}  // namespace
}  // namespace tenon
