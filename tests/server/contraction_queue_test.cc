// Contractions that wait: for a slot, for memory, for a search; and those that wait no more.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <complex>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "server/gauges.h"
#include "server/logging.h"
#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"
#include "tests/server/plan_service_fixture.h"

namespace tenon::server {
namespace {

using ::testing::HasSubstr;

constexpr v1::DataType kDouble = v1::DATA_TYPE_FLOAT64;

void Await(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  ASSERT_TRUE(holds());
}

// [rows, 64] x [64, 32]; 3 MiB for 4096 rows. The bytes come in frames.
v1::ContractHeader Product(int64_t rows) {
  v1::ContractHeader header;
  AddOperand(&header, {"a", "b"}, kDouble, {rows, 64});
  AddOperand(&header, {"b", "c"}, kDouble, {64, 32});
  SetOutput(&header, {"a", "c"});
  return header;
}

Answer SendProduct(ContractionTestServer* server, const v1::ContractHeader& header, int64_t rows) {
  ContractClient client(server);
  client.SendHeader(header);
  client.SendOperand(0, 0, std::string(static_cast<size_t>(rows * 64 * 8), '\0'), 1 << 20);
  client.SendOperand(0, 1, std::string(64 * 32 * 8, '\0'), 1 << 20);
  return client.Finish();
}

TEST(ContractionQueue, GrantsTheClassThatWasAsked) {
  ContractionTestServer server;
  for (const v1::PriorityClass priority :
       {v1::PRIORITY_CLASS_UNSPECIFIED, v1::PRIORITY_CLASS_INTERACTIVE, v1::PRIORITY_CLASS_DEFAULT,
        v1::PRIORITY_CLASS_BULK}) {
    v1::ContractHeader header = MatrixProduct();
    header.mutable_execution()->set_priority(priority);
    const Answer answer = Contract(&server, header);
    ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
    EXPECT_EQ(answer.accepted->granted().priority(),
              priority == v1::PRIORITY_CLASS_UNSPECIFIED ? v1::PRIORITY_CLASS_DEFAULT : priority);
  }
  EXPECT_EQ(server.state().metrics.Waits(Priority::kInteractive).admitted, 1);
  EXPECT_EQ(server.state().metrics.Waits(Priority::kDefault).admitted, 2);
}

TEST(ContractionQueue, AFullClassLeavesTheOthersTheirPlaces) {
  ContractionTestServer server({.executor_threads = 1, .max_queued = 1});
  BusyExecutor busy(&server.state().executor, 1);
  v1::ContractHeader bulk = MatrixProduct(), interactive = MatrixProduct();
  bulk.mutable_execution()->set_priority(v1::PRIORITY_CLASS_BULK);
  interactive.mutable_execution()->set_priority(v1::PRIORITY_CLASS_INTERACTIVE);
  ContractClient first(&server), second(&server);
  first.SendHeader(bulk);
  Await([&] { return server.state().executor.queued(Priority::kBulk) == 1; });
  const CallError refused = ErrorOf(Contract(&server, bulk).status);
  EXPECT_EQ(refused.reason, "OVERLOADED");
  EXPECT_EQ(refused.metadata.at("queued_requests"), "1");
  second.SendHeader(interactive);
  Await([&] { return server.state().executor.queued(Priority::kInteractive) == 1; });
  EXPECT_THAT(MetricsText(server.state()),
              HasSubstr("tenon_queue_depth{class=\"interactive\"} 1\n"));
  busy.Release();
  EXPECT_TRUE(first.Finish().status.ok());
  EXPECT_TRUE(second.Finish().status.ok());
}

// Its sets are continuations; they keep to their class, too.
TEST(ContractionQueue, BulkLeavesOneThreadToTheOthers) {
  ContractionTestServer server({.executor_threads = 2});
  Executor& executor = server.state().executor;
  v1::ContractHeader header = Product(512);
  header.mutable_execution()->set_priority(v1::PRIORITY_CLASS_BULK);
  ContractClient bulk(&server);
  bulk.SendHeader(header);
  ASSERT_TRUE(bulk.Read().has_accepted());
  std::promise<void> released;
  const auto gate = released.get_future().share();
  ASSERT_TRUE(executor.Submit({.priority = Priority::kBulk, .task = [gate] { gate.wait(); }}).ok());
  Await([&] { return executor.running() == 1; });
  bulk.SendOperand(0, 0, std::string(512 * 64 * 8, '\0'), 1 << 20);
  bulk.SendOperand(0, 1, std::string(64 * 32 * 8, '\0'), 1 << 20);
  Await([&] { return executor.continuing() == 1; });  // though a thread is free
  EXPECT_TRUE(Contract(&server, MatrixProduct()).status.ok());
  EXPECT_EQ(executor.continuing(), 1u);
  released.set_value();
  EXPECT_TRUE(bulk.Finish().status.ok());
}

// No thread comes free before it has expired.
TEST(ContractionQueue, WaitsEndWhileAllThreadsAreBusy) {
  ContractionTestServer server({.executor_threads = 1});
  BusyExecutor busy(&server.state().executor, 1);
  v1::ContractHeader header = MatrixProduct();
  header.mutable_execution()->set_max_queue_seconds(0.02);
  EXPECT_EQ(Summary(Contract(&server, header).status),
            "DEADLINE_EXCEEDED DEADLINE header.execution.max_queue_seconds");
  EXPECT_EQ(server.state().executor.queued(), 0u);
  Await([&] { return server.state().metrics.in_flight() == 0; });  // it is counted then
  EXPECT_THAT(MetricsText(server.state()),
              HasSubstr("tenon_admission_rejections_total{reason=\"expired\"} 1\n"));
}

TEST(ContractionQueue, WhoeverCancelsLeavesTheQueueAndHasNotRun) {
  ContractionTestServer server({.executor_threads = 1});
  BusyExecutor busy(&server.state().executor, 1);
  InitLogging("info", false);
  ::testing::internal::CaptureStderr();
  ContractClient client(&server);
  client.SendHeader(MatrixProduct());
  Await([&] { return server.state().executor.queued() == 1; });
  client.Cancel();
  client.Finish();
  Await([&] { return server.state().executor.queued() == 0; });
  Await([&] { return server.state().metrics.in_flight() == 0; });
  busy.Release();
  EXPECT_TRUE(Contract(&server, MatrixProduct()).status.ok());
  Await([&] { return server.state().metrics.in_flight() == 0; });
  const std::string log = ::testing::internal::GetCapturedStderr();
  InitLogging("error", false);
  EXPECT_THAT(log, ::testing::ContainsRegex("reason=CLIENT_CANCELLED[^\n]*ran=false"));
  EXPECT_THAT(log, ::testing::ContainsRegex("reason=OK[^\n]*ran=true"));
}

// Sixteen at once on a server that has room for one.
TEST(ContractionQueue, CallsThatDoNotFitTogetherWaitForMemory) {
  ContractionTestServer server({.budget_bytes = int64_t{5} << 20});
  std::vector<std::future<Answer>> calls;
  for (int i = 0; i < 16; ++i) {
    calls.push_back(
        std::async(std::launch::async, [&] { return SendProduct(&server, Product(4096), 4096); }));
  }
  for (auto& call : calls) {
    const Answer answer = call.get();
    EXPECT_TRUE(answer.status.ok()) << Summary(answer.status);
  }
  EXPECT_TRUE(server.AllReleased());
}

// Each gets its share of the cores, which changes while it runs; the bits do not.
TEST(ContractionQueue, CallsThatRunTogetherGiveTheBitsOfALoneOne) {
  constexpr int64_t kRows = 512;
  v1::ContractHeader header = Product(kRows);
  v1::ContractionPath* path = header.mutable_path()->mutable_path();
  path->set_format(v1::PATH_FORMAT_LINEAR);
  path->add_steps()->add_operands(0);
  path->mutable_steps(0)->add_operands(1);
  header.mutable_path()->add_sliced_indices("b");
  std::vector<std::complex<double>> left, right;
  for (int i = 0; i < kRows * 64; ++i) left.emplace_back(1.0 / (i % 97 + 1));
  for (int i = 0; i < 64 * 32; ++i) right.emplace_back(1.0 / (i % 89 + 1));
  ContractionTestServer server({.executor_threads = 4});
  const auto run = [&] {
    ContractClient client(&server);
    client.SendHeader(header);
    client.SendOperand(0, 0, Encode(kDouble, left), 1 << 20);
    client.SendOperand(0, 1, Encode(kDouble, right), 1 << 20);
    return client.Finish();
  };
  const Answer alone = run();
  ASSERT_TRUE(alone.status.ok()) << Summary(alone.status);
  ASSERT_GT(alone.report->slice_groups(), 1);
  std::vector<std::future<Answer>> calls;
  for (int i = 0; i < 12; ++i) calls.push_back(std::async(std::launch::async, run));
  for (auto& call : calls) {
    const Answer answer = call.get();
    ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
    EXPECT_EQ(answer.results.at(0).bytes, alone.results.at(0).bytes);
  }
}

TEST(ContractionQueue, WhoWaitsForMemoryHoldsNoThread) {
  ContractionTestServer server({.budget_bytes = int64_t{5} << 20, .executor_threads = 1});
  ContractClient first(&server), second(&server);
  first.SendHeader(Product(4096));
  ASSERT_TRUE(first.Read().has_accepted());
  second.SendHeader(Product(4096));
  Await([&] { return server.state().budget.waiting(Priority::kDefault) == 1; });
  EXPECT_GE(server.state().budget.waiting_bytes(Priority::kDefault), int64_t{3} << 20);
  // A small one goes on meanwhile.
  EXPECT_TRUE(Contract(&server, MatrixProduct()).status.ok());
  first.Cancel();
  EXPECT_TRUE(second.Read().has_accepted());
}

TEST(ContractionQueue, TheWaitForMemoryEnds) {
  ContractionTestServer server({.budget_bytes = int64_t{5} << 20});
  server.state().settings.max_queue_wait = std::chrono::milliseconds(20);
  ContractClient first(&server);
  first.SendHeader(Product(4096));
  ASSERT_TRUE(first.Read().has_accepted());
  const CallError refused = ErrorOf(Contract(&server, Product(4096)).status);
  EXPECT_EQ(refused.reason, "OVERLOADED");
  EXPECT_EQ(refused.metadata.count("free_bytes"), 1u);
  EXPECT_EQ(refused.metadata.at("limit_bytes"), std::to_string(int64_t{5} << 20));
  EXPECT_EQ(refused.metadata.count("retry_delay_seconds"), 1u);
  // The request's own limit.
  server.state().settings.max_queue_wait = std::chrono::hours(1);
  v1::ContractHeader header = Product(4096);
  header.mutable_execution()->set_max_queue_seconds(0.02);
  EXPECT_EQ(Summary(Contract(&server, header).status),
            "DEADLINE_EXCEEDED DEADLINE header.execution.max_queue_seconds");
  // A call that goes leaves the line.
  {
    ContractClient gone(&server);
    gone.SendHeader(Product(4096));
    Await([&] { return server.state().budget.waiting(Priority::kDefault) == 1; });
  }
  Await([&] { return server.state().budget.waiting(Priority::kDefault) == 0; });
}

// The client sends nothing but the header, and is refused.
TEST(ContractionQueue, WhatIsRefusedIsRefusedAtTheHeader) {
  ContractionTestServer server({.budget_bytes = int64_t{5} << 20});
  const auto refusal = [&](const v1::ContractHeader& header) {
    ContractClient client(&server);
    client.SendHeader(header);
    return ErrorOf(client.Finish().status).reason;
  };
  EXPECT_EQ(refusal(Product(1 << 20)), "EXCEEDS_SERVER_LIMIT");
  v1::ContractHeader header = Product(4096);
  header.mutable_execution()->set_memory_budget_bytes(1000);
  EXPECT_EQ(refusal(header), "EXCEEDS_MEMORY_BUDGET");
  header = Product(4096);
  header.mutable_execution()->set_required_fingerprint(std::string(64, '0'));
  EXPECT_EQ(refusal(header), "FINGERPRINT_MISMATCH");
}

TEST(ContractionQueue, DeadlinesThatCannotBeMetAreRefusedAtTheHeader) {
  ContractionTestServer server({.budget_bytes = int64_t{1} << 40});
  ASSERT_TRUE((*server.state().providers.Find("cpu"))->Calibrate(nullptr).ok());
  v1::ContractHeader header;  // 6 * 10^10 multiply-adds: about a second on any single core
  AddOperand(&header, {"a", "b"}, kDouble, {4000, 4000});
  AddOperand(&header, {"b", "c"}, kDouble, {4000, 4000});
  SetOutput(&header, {"a", "c"});
  header.mutable_execution()->set_threads(1);
  ContractClient client(&server, std::chrono::milliseconds(700));
  client.SendHeader(header);
  const CallError refused = ErrorOf(client.Finish().status);
  ASSERT_EQ(refused.reason, "DEADLINE_INFEASIBLE") << refused.message;
  EXPECT_GT(1.2 * std::stod(refused.metadata.at("estimate_seconds")), 0.7);
  EXPECT_LE(std::stod(refused.metadata.at("remaining_seconds")), 0.75);  // gRPC rounds up
  // With time enough, and where nobody predicts, it is admitted.
  ContractClient patient(&server, std::chrono::hours(100));
  patient.SendHeader(header);
  EXPECT_TRUE(patient.Read().has_accepted()) << Summary(patient.Finish().status);
  patient.Cancel();
  header.mutable_execution()->add_providers("reference");
  ContractClient unknown(&server, std::chrono::milliseconds(700));
  unknown.SendHeader(header);
  EXPECT_TRUE(unknown.Read().has_accepted()) << Summary(unknown.Finish().status);
}

// As many endless searches as there are places for, and more.
class SearchQueueTest : public PlanServiceTest {
 protected:
  SearchQueueTest() {
    for (int i = 0; i < 3; ++i) {
      v1::PlanContractionRequest request = Request(Ring(100, "a"));
      *request.mutable_search() = Endless();
      request.mutable_execution()->set_progress_interval_seconds(0.01);
      readers_.push_back(server_.stub().PlanContraction(&contexts_[i], request));
    }
    const Executor& searches = server_.state().searches;
    Await([&] { return searches.running() == 1 && searches.queued() == 2; });
  }
  ~SearchQueueTest() override {
    for (grpc::ClientContext& context : contexts_) context.TryCancel();
    v1::PlanContractionResponse frame;
    for (const auto& reader : readers_) {
      while (reader->Read(&frame)) {
      }
      reader->Finish();
    }
    EXPECT_TRUE(server_.AllReleased());
  }

  grpc::ClientContext contexts_[3];
  std::vector<std::unique_ptr<grpc::ClientReader<v1::PlanContractionResponse>>> readers_;
};

TEST_F(SearchQueueTest, ContractionsWithAPlanDoNotWaitForSearches) {
  EXPECT_EQ(server_.state().searches.running(), 1);
  EXPECT_GT(server_.state().budget.reserved_bytes(), 0);  // the searches'
  const Answer pair = Contract(&server_, MatrixProduct());
  EXPECT_TRUE(pair.status.ok()) << Summary(pair.status);
  // A small network is searched in its own slot, and is in the cache then.
  const v1::ContractHeader small = Ring(6, "a", true);
  EXPECT_TRUE(Contract(&server_, small).status.ok());
  EXPECT_EQ(Contract(&server_, small).report->plan().provenance().source(), v1::PLAN_SOURCE_CACHE);
  v1::ContractHeader explicit_path = Ring(12, "b", true);
  v1::ContractionPath* path = explicit_path.mutable_path()->mutable_path();
  path->set_format(v1::PATH_FORMAT_LINEAR);
  for (int i = 0; i < 11; ++i) {
    v1::PathStep* step = path->add_steps();
    step->add_operands(0);
    step->add_operands(1);
  }
  const Answer planned = Contract(&server_, explicit_path);
  EXPECT_TRUE(planned.status.ok()) << Summary(planned.status);
}

// What a contraction without a plan does by itself ends soon, so that it does not wait for those
// that ask for long searches.
TEST_F(SearchQueueTest, BriefSearchesDoNotWaitForLongOnes) {
  const Answer unasked = Contract(&server_, Ring(12, "b", true));
  EXPECT_TRUE(unasked.status.ok()) << Summary(unasked.status);
  EXPECT_EQ(unasked.report->plan().provenance().source(), v1::PLAN_SOURCE_SEARCH);
  v1::EstimateRequest estimate;
  *estimate.mutable_header() = Ring(14, "d");
  v1::EstimateResponse response;
  grpc::ClientContext context;
  const grpc::Status estimated = server_.stub().Estimate(&context, estimate, &response);
  EXPECT_TRUE(estimated.ok()) << Summary(estimated);
  v1::ContractHeader asked = Ring(15, "e", true);
  asked.mutable_search()->set_max_time_seconds(0.05);
  EXPECT_TRUE(Contract(&server_, asked).status.ok());
  asked.mutable_search()->clear_max_time_seconds();
  asked.mutable_search()->set_max_trials(8);
  EXPECT_TRUE(Contract(&server_, asked).status.ok());
  EXPECT_EQ(server_.state().searches.running(), 1);
}

TEST_F(SearchQueueTest, ContractionsThatSearchWaitAndTellIt) {
  v1::ContractHeader header = Ring(12, "c", true);
  header.mutable_search()->set_max_trials(9);
  header.mutable_execution()->set_progress_interval_seconds(0.01);
  header.mutable_execution()->set_priority(v1::PRIORITY_CLASS_INTERACTIVE);
  ContractClient client(&server_);
  client.SendHeader(header);
  v1::ContractResponse frame;
  do {
    frame = client.Read();
    ASSERT_TRUE(frame.has_progress());
  } while (frame.progress().phase() != v1::CONTRACT_PHASE_QUEUED ||
           server_.state().searches.queued() < 3);
  EXPECT_EQ(frame.progress().queue_position(), 0);  // before the two of the default class
  contexts_[0].TryCancel();  // the one that runs, unless they have come in another order
  contexts_[1].TryCancel();
  contexts_[2].TryCancel();
  const Answer answer = client.Finish();
  EXPECT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.order_error, "");
}

TEST_F(SearchQueueTest, CancelledSearchesLeaveTheQueue) {
  for (grpc::ClientContext& context : contexts_) context.TryCancel();
  Await([&] { return server_.state().searches.queued() == 0; });
  Await([&] { return server_.state().searches.running() == 0; });
}

TEST_F(SearchQueueTest, EstimatesOfLargeNetworksWaitAsSearchesDo) {
  v1::EstimateRequest request;
  *request.mutable_header() = Ring(40, "d");
  request.mutable_header()->mutable_search()->set_max_trials(9);
  request.mutable_header()->mutable_execution()->set_max_queue_seconds(0.02);
  v1::EstimateResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(Summary(server_.stub().Estimate(&context, request, &response)),
            "DEADLINE_EXCEEDED DEADLINE header.execution.max_queue_seconds");
  *request.mutable_header() = MatrixProduct();
  grpc::ClientContext another;
  EXPECT_TRUE(server_.stub().Estimate(&another, request, &response).ok());
}

}  // namespace
}  // namespace tenon::server
