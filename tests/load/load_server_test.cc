// What a whole server promises while it is busy: health, cancelling, slow readers, shutting down.
// Limits are wide; what was measured is printed.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/process_stats.h"
#include "tests/load/load_fixture.h"
#include "tests/support/fake_provider.h"

namespace tenon::testing {
namespace {

constexpr double kPromisedHealthSeconds = 0.05;

// R9
TEST_F(LoadServerTest, HealthAnswersWhileAllComputeThreadsAreBusy) {
  Start(TestConfig());
  std::vector<std::unique_ptr<Contraction>> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::make_unique<Contraction>(Connect(), LongProduct()));
    for (int k = 0; k < 2; ++k) calls.back()->Upload(k, 4 * kExtent * kExtent * 4);
  }
  const std::vector<double> seconds = CheckHealth(200);
  EXPECT_GT(AdmittedBytes(), 0) << "the server was idle";
  Print("health under load", seconds);
  EXPECT_LT(Percentile(seconds, 0.99), kSlack * kPromisedHealthSeconds);
}

// R5, seen from outside: from the client's cancel until nothing is admitted any more.
TEST_F(LoadServerTest, CancellingFreesTheWorkersSoon) {
  Start(TestConfig());
  std::minstd_rand random(3);
  std::vector<double> seconds;
  for (int round = 0; round < 20; ++round) {
    Contraction call(channel_, LongProduct());
    for (int k = 0; k < 2; ++k) call.Upload(k, 4 * kExtent * kExtent * 4);
    std::this_thread::sleep_for(milliseconds(10 + random() % 150));  // anywhere in a slice
    const Clock::time_point start = Clock::now();
    call.Cancel();
    ASSERT_TRUE(WaitForAdmitted(false));
    seconds.push_back(SecondsSince(start));
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  Print("cancel to idle", seconds);
  EXPECT_LT(Percentile(seconds, 0.99), kSlack * kPromisedCancelSeconds);
}

// R2
TEST_F(LoadServerTest, ASlowReaderCostsItsResultAndIsCut) {
  server::Config config = TestConfig();
  config.write_stall_timeout = absl::Seconds(1);
  Start(config);
  constexpr int64_t kSide = 4096, kBytes = kSide * kSide * 4;  // 64 MiB
  const int64_t before = server::ReadProcessStats().resident_bytes;
  Contraction call(channel_, Header("i,j->ij", {{kSide}, {kSide}}));
  for (int k = 0; k < 2; ++k) call.Upload(k, kSide * 4);
  ASSERT_TRUE(WaitForAdmitted(true));
  int64_t most = 0;
  const Clock::time_point start = Clock::now();
  while (AdmittedBytes() > 0 && SecondsSince(start) < 60) {
    most = std::max(most, server::ReadProcessStats().resident_bytes - before);
    std::this_thread::sleep_for(milliseconds(5));
  }
  const double seconds = SecondsSince(start);
  const grpc::Status status = call.Finish();
  std::printf("slow reader: %.1f MiB above its result of %lld MiB, cut after %.2f s\n",
              static_cast<double>(most - kBytes) / kMiB, static_cast<long long>(kBytes / kMiB),
              seconds);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
  EXPECT_GE(seconds, 0.5);
  EXPECT_LT(seconds, 1 + 2 * kSlack);
  // The client's own window is in this process too.
  EXPECT_LT(most, kBytes + 64 * kMiB);
}

// 256 idle streams, 32 slow readers, all workers held and the queue full.
TEST_F(LoadServerTest, HealthAnswersOnAFullServer) {
  FakeProvider held("held");
  for (int i = 1; i <= 8; ++i) held.StallNth(FakeProvider::Entry::kRunGroup, i);
  server::Config config = TestConfig();
  config.providers = {"cpu", "held"};
  config.memory_budget_bytes = 1024 * kMiB;
  config.max_queued_requests = 16;
  config.write_stall_timeout = absl::Minutes(5);
  server::Server::Parts parts;
  parts.providers.push_back({"held", held.api(), held.options()});
  Start(config, std::move(parts));
  const int64_t before = server::ReadProcessStats().resident_bytes;

  constexpr int64_t kSide = 1448;  // results of 8 MiB
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 8; ++i) channels.push_back(ConnectWithWindow(64 << 10));
  std::vector<std::unique_ptr<Contraction>> slow, idle, queued;
  for (size_t i = 0; i < 32; ++i) {
    slow.push_back(
        std::make_unique<Contraction>(channels[i % 8], Header("i,j->ij", {{kSide}, {kSide}})));
    for (int k = 0; k < 2; ++k) slow.back()->Upload(k, kSide * 4);
    ASSERT_EQ(slow.back()->Read(), v1::ContractResponse::kAccepted);
    ASSERT_EQ(slow.back()->Read(), v1::ContractResponse::kResult);
  }
  for (size_t i = 0; i < 256; ++i) {
    idle.push_back(std::make_unique<Contraction>(channels[i % 8],
                                                 Header("ij,jk->ik", {{64, 256}, {256, 64}})));
    ASSERT_EQ(idle.back()->Read(), v1::ContractResponse::kAccepted);
  }
  // The stalled provider holds every thread; then the queue fills until somebody is refused.
  v1::ContractRequest small = Header("i->", {{4}});
  small.mutable_header()->mutable_einsum()->mutable_operands(0)->set_inline_data(
      std::string(16, '\0'));
  small.mutable_header()->mutable_execution()->add_providers("held");
  bool refused = false;
  for (int i = 0; i < 200 && !refused; ++i) {
    queued.push_back(std::make_unique<Contraction>(channels[0], small));
    if (i == 0) held.WaitUntilStalled();
    // A refusal answers at once; what waits does not answer at all.
    refused = server_->state()->metrics.in_flight() < static_cast<int64_t>(i + 1 + 32 + 256);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(refused) << "the queue never filled";

  const std::vector<double> seconds = CheckHealth(100);
  const int64_t grown = server::ReadProcessStats().resident_bytes - before;
  Print("health on a full server", seconds);
  std::printf("memory: %.1f MiB resident, %.1f MiB admitted, of a budget of %lld MiB\n",
              static_cast<double>(grown) / kMiB, static_cast<double>(AdmittedBytes()) / kMiB,
              static_cast<long long>(config.memory_budget_bytes / kMiB));
  EXPECT_LT(Percentile(seconds, 0.99), kSlack * kPromisedHealthSeconds);
  EXPECT_LE(AdmittedBytes(), config.memory_budget_bytes);
  EXPECT_LT(grown, config.memory_budget_bytes);
  queued.clear();
  idle.clear();
  slow.clear();
  EXPECT_TRUE(WaitForAdmitted(false));
  server_.reset();  // before its providers
}

// R8: a provider that does not hear of cancelling. What main does, in a process of its own.
[[noreturn]] void ServeWithAStuckProvider() {
  static FakeProvider stuck("cpu");
  static std::atomic<bool> entered = false;
  stuck.table.run_group = [](tenon_execution*, int32_t, int64_t, int64_t, int64_t, void*,
                             tenon_status*) -> int32_t {
    entered = true;
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  };
  server::Config config = TestConfig();
  config.providers = {"cpu"};
  config.grace_period = absl::Milliseconds(100);
  config.kill_limit = absl::Milliseconds(300);
  server::Server::Parts parts;
  parts.providers = {{"cpu", stuck.api(), stuck.options()}};
  static const auto server = StartOrDie(config, std::move(parts));
  server->WaitUntilReady();
  v1::ContractRequest header = Header("i->", {{4}});
  header.mutable_header()->mutable_einsum()->mutable_operands(0)->set_inline_data(
      std::string(16, '\0'));
  static Contraction call(ChannelTo(server->addresses()[0]), header);
  while (!entered) std::this_thread::sleep_for(milliseconds(1));
  const Clock::time_point start = Clock::now();
  server->Shutdown();
  const bool clean = server->Wait();
  const double seconds = SecondsSince(start);
  std::fprintf(stderr, "shut down with stuck work after %.2f s\n", seconds);
  _exit(clean || seconds > 0.4 + kSlack ? 0 : 1);
}

TEST(StuckServerDeathTest, ShutdownEndsWithinTheHardLimitAndSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ServeWithAStuckProvider(), ::testing::ExitedWithCode(1),
              "shut down with stuck work after");
}

}  // namespace
}  // namespace tenon::testing
