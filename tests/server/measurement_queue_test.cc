// Measurements that wait: for a slot, for memory, for temporary files.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "server/scratch_space.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

constexpr int64_t kRows = 60;

void Await(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  ASSERT_TRUE(holds());
}

TEST(MeasurementQueue, WaitsForMemoryAndThenRuns) {
  TestServer server({.budget_bytes = int64_t{1} << 20});
  auto held = server.state().budget.Reserve((int64_t{1} << 20) - 4000);
  ASSERT_TRUE(held.ok());
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 3, 1), {"srho"});
  header.mutable_execution()->set_priority(v1::PRIORITY_CLASS_BULK);
  MeasureClient client(&server);
  client.Send(header);
  Await([&] { return server.state().budget.waiting(Priority::kBulk) == 1; });
  EXPECT_EQ(server.state().executor.running(), 0);
  held->Release();
  EXPECT_EQ(client.Read().accepted().granted().priority(), v1::PRIORITY_CLASS_BULK);
  client.Send(Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1))));
  EXPECT_EQ(client.ReadAll().size(), 2u);
  EXPECT_EQ(Summary(client.Finish()), "OK");
  EXPECT_EQ(server.state().metrics.Waits(Priority::kBulk).admitted, 1);
  EXPECT_TRUE(server.AllReleased());
}

TEST(MeasurementQueue, TellsItsPlaceWhileItWaitsForMemory) {
  TestServer server({.budget_bytes = int64_t{1} << 20});
  auto held = server.state().budget.Reserve((int64_t{1} << 20) - 4000);
  ASSERT_TRUE(held.ok());
  MeasureClient before(&server);
  before.Send(Header(MakeMatrix(kRows, 3, 1), {"srho"}));
  Await([&] { return server.state().budget.waiting(Priority::kDefault) == 1; });
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 3, 1), {"srho"});
  header.mutable_execution()->set_progress_interval_seconds(0.01);
  MeasureClient client(&server);
  client.Send(header);
  for (int i = 0; i < 2; ++i) {
    const v1::MeasureResponse frame = client.Read();
    ASSERT_TRUE(frame.has_progress());
    EXPECT_EQ(frame.progress().phase(), v1::MEASURE_PHASE_QUEUED);
    EXPECT_EQ(frame.progress().queue_position(), 1);
    EXPECT_GT(frame.progress().elapsed_seconds(), 0);
  }
  before.Cancel();
  before.Finish();
  v1::MeasureResponse frame = client.Read();
  while (frame.has_progress() && frame.progress().queue_position() == 1) frame = client.Read();
  ASSERT_TRUE(frame.has_progress());
  EXPECT_EQ(frame.progress().queue_position(), 0);
  held->Release();
  while (frame.has_progress()) frame = client.Read();
  ASSERT_TRUE(frame.has_accepted());
  client.Send(Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1))));
  client.ReadAll();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  EXPECT_TRUE(server.AllReleased());
}

// An end that comes while it waits ends the telling, too.
TEST(MeasurementQueue, WhoeverIsToldOfTheWaitMayCancel) {
  TestServer server({.budget_bytes = int64_t{1} << 20});
  auto held = server.state().budget.Reserve((int64_t{1} << 20) - 4000);
  ASSERT_TRUE(held.ok());
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 3, 1), {"srho"});
  header.mutable_execution()->set_progress_interval_seconds(0.01);
  MeasureClient client(&server);
  client.Send(header);
  EXPECT_TRUE(client.Read().has_progress());
  client.Cancel();
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::CANCELLED);
  held->Release();
  EXPECT_TRUE(server.AllReleased());
}

TEST(MeasurementQueue, WhoeverCancelsLeavesTheLine) {
  TestServer server({.budget_bytes = int64_t{1} << 20});
  auto held = server.state().budget.Reserve((int64_t{1} << 20) - 4000);
  ASSERT_TRUE(held.ok());
  MeasureClient client(&server);
  client.Send(Header(MakeMatrix(kRows, 3, 1), {"srho"}));
  Await([&] { return server.state().budget.waiting(Priority::kDefault) == 1; });
  client.Cancel();
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::CANCELLED);
  Await([&] { return server.state().budget.waiting(Priority::kDefault) == 0; });
  held->Release();
  EXPECT_TRUE(server.AllReleased());
}

// No thread comes free before it has expired.
TEST(MeasurementQueue, WaitsEndWhileAllThreadsAreBusy) {
  TestServer server({.executor_threads = 1});
  std::promise<void> released;
  const auto gate = released.get_future().share();
  ASSERT_TRUE(server.state().executor.Submit([gate] { gate.wait(); }).ok());
  Await([&] { return server.state().executor.running() == 1; });
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 3, 1), {"srho"});
  header.mutable_execution()->set_max_queue_seconds(0.02);
  MeasureClient client(&server);
  client.Send(header);
  client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()),
            "DEADLINE_EXCEEDED DEADLINE header.execution.max_queue_seconds");
  EXPECT_TRUE(server.AllReleased());
  released.set_value();
}

// The client sends nothing but the header, and is refused.
TEST(MeasurementQueue, WhatIsRefusedIsRefusedAtTheHeader) {
  TestServer server({.budget_bytes = int64_t{1} << 20});
  const auto refusal = [&](int64_t rows, int64_t budget) {
    v1::MeasureHeader header = Header(MakeMatrix(kRows, 3, 1), {"srho"});
    header.mutable_dataset_input()->clear_inline_data();
    header.mutable_dataset_input()->mutable_spec()->set_shape(0, rows);
    if (budget > 0) header.mutable_execution()->set_memory_budget_bytes(budget);
    MeasureClient client(&server);
    client.Send(header);
    EXPECT_TRUE(client.ReadRest().empty());
    return ErrorOf(client.Finish()).reason;
  };
  EXPECT_EQ(refusal(int64_t{1} << 40, 0), "EXCEEDS_SERVER_LIMIT");
  EXPECT_EQ(refusal(kRows, 1000), "EXCEEDS_MEMORY_BUDGET");
  EXPECT_TRUE(server.AllReleased());
}

// The first call takes as long as the gate is held; so would the second one.
TEST(MeasurementQueue, ADeadlineBeforeTheFirstScoreIsRefused) {
  constexpr std::chrono::milliseconds kHeld(1500);
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 3, 1), {"tnc"});
  header.mutable_execution()->set_provider("gated");
  header.mutable_execution()->set_in_flight(1);
  const auto call = [&](std::chrono::milliseconds deadline, const std::function<void()>& inside) {
    MeasureClient client(&server, std::chrono::system_clock::now() + deadline);
    client.Send(header);
    client.Send(Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1))));
    inside();
    client.ReadAll();
    return ErrorOf(client.Finish());
  };
  Gate::Close();
  const CallError first = call(std::chrono::minutes(2), [&] {
    Gate::AwaitInside(1);
    const auto until = std::chrono::steady_clock::now() + kHeld;
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    Gate::Open();
  });
  EXPECT_EQ(first.code, grpc::StatusCode::OK) << first.message;
  const CallError refused = call(kHeld, [] {});
  EXPECT_EQ(refused.reason, "DEADLINE_INFEASIBLE");
  EXPECT_GE(std::stod(refused.metadata.at("estimate_seconds")), 1.5);
  EXPECT_LE(std::stod(refused.metadata.at("remaining_seconds")), 1.6);  // gRPC rounds up
  // Other work is not judged by it, nor a call with time enough.
  EXPECT_EQ(call(std::chrono::minutes(2), [] {}).code, grpc::StatusCode::OK);
  header = Header(MakeMatrix(kRows, 3, 1), {"srho"});
  EXPECT_NE(call(kHeld, [] {}).reason, "DEADLINE_INFEASIBLE");
  EXPECT_TRUE(server.AllReleased());
}

TEST(MeasurementQueue, WaitsForTemporaryFiles) {
  const std::filesystem::path root =
      std::filesystem::path(::testing::TempDir()) / "measurement_queue_scratch";
  std::filesystem::create_directories(root);
  TestServer server({.scratch_root = root.string(), .scratch_budget_bytes = int64_t{1} << 30});
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"srho"});
  header.mutable_execution()->set_pair_order_strategy(v1::PAIR_ORDER_STRATEGY_EXTERNAL);
  header.mutable_execution()->set_temporary_budget_bytes(int64_t{1} << 30);
  MemoryBudget& budget = server.state().scratch->budget();
  auto held = budget.Reserve(int64_t{1} << 30);
  ASSERT_TRUE(held.ok());
  {
    MeasureClient client(&server);
    client.Send(header);
    Await([&] { return budget.waiting(Priority::kDefault) == 1; });
    EXPECT_EQ(server.state().budget.reserved_bytes(), 0);  // it keeps no memory from others
    held->Release();
    ASSERT_TRUE(client.Read().has_accepted());
    client.Send(Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1))));
    EXPECT_EQ(client.ReadAll().size(), 2u);
    EXPECT_EQ(Summary(client.Finish()), "OK");
  }
  EXPECT_TRUE(server.AllReleased());
  server.state().settings.max_queue_wait = std::chrono::milliseconds(0);
  auto again = budget.Reserve(int64_t{1} << 30);
  ASSERT_TRUE(again.ok());
  MeasureClient client(&server);
  client.Send(header);
  client.ReadRest();
  const CallError refused = ErrorOf(client.Finish());
  EXPECT_EQ(refused.reason, "OVERLOADED");
  EXPECT_EQ(refused.message.substr(0, 15), "temporary files");
  // The call's folder goes with the call, a moment after its end is told.
  Await([&] { return std::filesystem::is_empty(root); });
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tenon::server
