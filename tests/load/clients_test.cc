// Many clients at once do not make everybody slower than their share: threads are scheduled, not
// oversubscribed.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "server/allocator.h"
#include "server/process_stats.h"
#include "tests/load/load_fixture.h"

namespace tenon::testing {
namespace {

struct Throughput {
  double calls_per_second = 0;
  double cpu_seconds = 0;  // of a call, client and server
};

class ClientsTest : public LoadServerTest {
 protected:
  // Contractions of middle size by so many clients, each on a connection of its own.
  Throughput Run(int clients, int calls) const {
    constexpr int64_t kSide = 400;
    const v1::ContractRequest header = Header("ij,jk->ik", {{kSide, kSide}, {kSide, kSide}});
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < clients; ++i) {
      channels.push_back(Connect());
      channels.back()->WaitForConnected(std::chrono::system_clock::now() +
                                        std::chrono::seconds(60));
    }
    std::atomic<int> left = calls;
    const double cpu = server::ReadProcessStats().cpu_seconds;
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> threads;
    for (const auto& channel : channels) {
      threads.emplace_back([&] {
        while (left-- > 0) {
          Contraction call(channel, header);
          for (int k = 0; k < 2; ++k) call.Upload(k, kSide * kSide * sizeof(float));
          const grpc::Status status = call.Finish();
          EXPECT_TRUE(status.ok()) << status.error_message();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return {calls / SecondsSince(start), (server::ReadProcessStats().cpu_seconds - cpu) / calls};
  }
};

// Rounds side by side, of which the best one counts: what else runs on the machine comes and goes.
TEST_F(ClientsTest, EightClientsTogetherAreNotSlowerThanOne) {
  server::TuneAllocator();  // as tenond does; else threads wait for each other to get pages
  Start(TestConfig());
  Run(1, 20);                    // warm
  double speed = 0, cost = 1e9;  // of eight clients, in terms of one
  for (int round = 0; round < 5; ++round) {
    const Throughput one = Run(1, 60), eight = Run(8, 120);
    std::printf("400x400 products: %.0f/s of one client, %.0f/s of eight; cpu %.2f and %.2f ms\n",
                one.calls_per_second, eight.calls_per_second, 1e3 * one.cpu_seconds,
                1e3 * eight.cpu_seconds);
    speed = std::max(speed, eight.calls_per_second / one.calls_per_second);
    cost = std::min(cost, eight.cpu_seconds / one.cpu_seconds);
  }
  EXPECT_GE(speed, 0.5);
  EXPECT_LE(cost, 2);
}

}  // namespace
}  // namespace tenon::testing
