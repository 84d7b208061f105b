// A contraction call from its beginning to its end: forms of the answer, sets, memory,
// cancellation, faults.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "backends/core/crc32c.h"
#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using tenon::testing::FakeProvider;
using Values = std::vector<std::complex<double>>;

constexpr v1::DataType kDouble = v1::DATA_TYPE_FLOAT64;

// Numbers without a pattern that rounding could hide.
Values Numbers(size_t count, double scale = 1) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = scale / (1.0 + static_cast<double>((i * 7919) % 1009));
  }
  return values;
}

// `rows` times 64 by 64 times 32.
v1::ContractHeader Product(int64_t rows, bool with_values) {
  v1::ContractHeader header;
  AddOperand(&header, {"a", "b"}, kDouble, {rows, 64});
  AddOperand(&header, {"b", "c"}, kDouble, {64, 32});
  SetOutput(&header, {"a", "c"});
  if (!with_values) return header;
  for (int k = 0; k < 2; ++k) {
    const auto count = static_cast<size_t>(k == 0 ? rows * 64 : 64 * 32);
    header.mutable_network()->mutable_operands(k)->set_inline_data(Encode(kDouble, Numbers(count)));
  }
  return header;
}

class ContractionLifeTest : public ::testing::Test {
 protected:
  ContractionTestServer server_;
};

TEST_F(ContractionLifeTest, SmallCallsAreAnsweredInOneFrame) {
  const Answer answer = Contract(&server_, MatrixProduct());
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_TRUE(answer.single);
  EXPECT_EQ(answer.order_error, "");
  EXPECT_EQ(Decode(kDouble, answer.results.at(0).bytes), kProduct);
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(ContractionLifeTest, AnswersWithoutHalfClose) {
  ContractClient client(&server_);
  client.SendHeader(MatrixProduct());
  EXPECT_TRUE(client.Finish().status.ok());
}

TEST_F(ContractionLifeTest, AllFormsGiveTheSameBytes) {
  // Inline and single; inline with progress, so in the long form; in frames; in many chunks.
  const Answer single = Contract(&server_, Product(64, true));
  ASSERT_TRUE(single.status.ok()) << Summary(single.status);
  EXPECT_TRUE(single.single);

  v1::ContractHeader header = Product(64, true);
  header.mutable_execution()->set_progress_interval_seconds(1e-9);
  const Answer longer = Contract(&server_, header);
  ASSERT_TRUE(longer.status.ok()) << Summary(longer.status);
  EXPECT_FALSE(longer.single);
  EXPECT_FALSE(longer.progress.empty());

  ContractClient client(&server_);
  client.SendHeader(Product(64, false));
  client.SendOperand(0, 0, Encode(kDouble, Numbers(64 * 64)), 1000);
  client.SendSet(0, {{1, Encode(kDouble, Numbers(64 * 32))}});
  const Answer framed = client.Finish();
  ASSERT_TRUE(framed.status.ok()) << Summary(framed.status);
  EXPECT_FALSE(framed.single);

  for (const Answer* answer : {&single, &longer, &framed}) {
    EXPECT_EQ(answer->order_error, "");
    EXPECT_TRUE(answer->results.at(0).in_line);
    EXPECT_EQ(answer->results.at(0).bytes, single.results.at(0).bytes);
    EXPECT_EQ(answer->report->plan().program_fingerprint(),
              single.report->plan().program_fingerprint());
  }
}

TEST_F(ContractionLifeTest, LargeResultsComeInChunks) {
  v1::ContractHeader header = Product(512, false);
  header.mutable_result()->set_chunk_bytes(5000);
  header.mutable_result()->set_checksums(true);
  ContractClient client(&server_);
  client.SendHeader(header);
  client.SendOperand(0, 0, Encode(kDouble, Numbers(512 * 64)), 1 << 20);
  client.SendOperand(0, 1, Encode(kDouble, Numbers(64 * 32)), 1 << 20);
  const Answer answer = client.Finish();
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.order_error, "");
  EXPECT_EQ(answer.accepted->granted().result_chunk_bytes(), 5000);
  const ReceivedResult& result = answer.results.at(0);
  EXPECT_FALSE(result.in_line);
  EXPECT_EQ(result.bytes.size(), 512u * 32 * 8);
  EXPECT_EQ(result.chunks, 27);
  EXPECT_EQ(result.checked_chunks, 27);
  EXPECT_EQ(result.report.result_crc32c(), Crc32c(result.bytes));
  EXPECT_EQ(result.report.result_bytes(), 512 * 32 * 8);
  EXPECT_EQ(answer.report->timing().sent_bytes(), 512 * 32 * 8);
  EXPECT_TRUE(server_.AllReleased());
}

// Set s multiplies the fixed left operand by s times the right one; the right one is float32.
TEST_F(ContractionLifeTest, SetsOfVaryingOperands) {
  constexpr int kSets = 20;
  v1::ContractHeader header;
  AddOperand(&header, {"a", "b"}, kDouble, {300, 64})->set_varying(false);
  AddOperand(&header, {"b", "c"}, v1::DATA_TYPE_FLOAT32, {64, 40})->set_varying(true);
  SetOutput(&header, {"a", "c"});
  header.set_expected_sets(kSets);
  const Values left = Numbers(300 * 64);
  Values right(64 * 40);
  for (size_t i = 0; i < right.size(); ++i) right[i] = static_cast<double>(i % 13);

  ContractClient client(&server_);
  client.SendHeader(header);
  ASSERT_TRUE(client.Read().has_accepted());
  client.SendOperand(0, 0, Encode(kDouble, left), 1 << 20);
  // Another thread writes: results are read meanwhile, or the flow of neither side goes on.
  std::thread writer([&] {
    for (int set = 0; set < kSets; ++set) {
      Values scaled = right;
      for (auto& value : scaled) value *= set;
      const std::string bytes = Encode(v1::DATA_TYPE_FLOAT32, scaled);
      if (set % 2 == 0) {
        client.SendSet(set, {{1, bytes}});
      } else {
        client.SendOperand(set, 1, bytes, 999);
      }
    }
    client.HalfClose();
  });
  const Answer answer = client.Finish();
  writer.join();
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status) << answer.status.error_message();
  EXPECT_EQ(answer.order_error, "");
  ASSERT_EQ(answer.results.size(), static_cast<size_t>(kSets));
  EXPECT_EQ(answer.report->sets(), kSets);
  for (int set = 0; set < kSets; ++set) {
    const Values values = Decode(kDouble, answer.results[set].bytes);
    EXPECT_EQ(answer.results[set].report.set(), set);
    for (const size_t at : {size_t{0}, size_t{41}, size_t{300 * 40 - 1}}) {
      double expected = 0;
      for (size_t b = 0; b < 64; ++b) {
        expected += left[at / 40 * 64 + b].real() * right[b * 40 + at % 40].real() * set;
      }
      EXPECT_NEAR(values.at(at).real(), expected, 1e-9 * (1 + expected)) << set << " " << at;
    }
  }
  EXPECT_TRUE(server_.AllReleased());
}

// All sets are sent before a result is read: the server must neither stall nor hoard.
TEST_F(ContractionLifeTest, ClientThatReadsLate) {
  constexpr int kSets = 6;
  v1::ContractHeader header;
  AddOperand(&header, {"a"}, kDouble, {500})->set_varying(true);
  AddOperand(&header, {"b"}, kDouble, {500}, Values(500, 1.0));
  SetOutput(&header, {"a", "b"});
  ContractClient client(&server_);
  client.SendHeader(header);
  for (int set = 0; set < kSets; ++set) {
    client.SendSet(set, {{0, Encode(kDouble, Values(500, static_cast<double>(set)))}});
  }
  client.HalfClose();
  const Answer answer = client.Finish();
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  ASSERT_EQ(answer.results.size(), static_cast<size_t>(kSets));
  for (int set = 0; set < kSets; ++set) {
    EXPECT_EQ(Decode(kDouble, answer.results[set].bytes),
              Values(500 * 500, static_cast<double>(set)));
  }
}

TEST_F(ContractionLifeTest, ReportTellsPlanMemoryAndTimes) {
  const Answer answer = Contract(&server_, MatrixProduct());
  ASSERT_TRUE(answer.status.ok());
  const v1::ContractAccepted& accepted = *answer.accepted;
  EXPECT_EQ(accepted.request_id(), "product");
  EXPECT_EQ(accepted.plan().steps(), 1);
  EXPECT_EQ(accepted.plan().flops(), 8);
  EXPECT_EQ(accepted.plan().slices(), 1);
  EXPECT_EQ(accepted.plan().path().steps_size(), 1);
  EXPECT_EQ(accepted.plan().provenance().source(), v1::PLAN_SOURCE_SEARCH);
  EXPECT_EQ(accepted.memory().total_bytes(), accepted.planned_peak_bytes());
  EXPECT_EQ(accepted.memory().operand_bytes(), 64);
  EXPECT_EQ(accepted.memory().result_bytes(), 32);
  EXPECT_EQ(accepted.providers(0).actual(), "cpu");
  EXPECT_EQ(accepted.granted().max_chunk_bytes(), 4'193'280);
  EXPECT_GT(accepted.granted().threads(), 0);

  const v1::ContractionReport& report = *answer.report;
  EXPECT_EQ(report.request_id(), "product");
  EXPECT_EQ(report.sets(), 1);
  EXPECT_EQ(report.slices(), 1);
  EXPECT_EQ(report.slice_groups(), 1);
  EXPECT_EQ(report.flops(), 8);
  EXPECT_EQ(report.real_flops(), 16);
  EXPECT_EQ(report.provider_choices(0).requested(), "cpu");
  ASSERT_EQ(report.providers_size(), 1);
  EXPECT_EQ(report.providers(0).provider(), "cpu");
  ASSERT_GT(report.providers(0).kernels_size(), 0);
  EXPECT_FALSE(report.providers(0).kernels(0).name().empty());
  EXPECT_FALSE(report.server_version().empty());
  EXPECT_LE(report.memory().measured_peak_bytes(), report.memory().planned_peak_bytes());
  const v1::Timing& timing = report.timing();
  EXPECT_EQ(timing.timing_scope(), v1::TIMING_SCOPE_SYNCHRONOUS_HOST);
  EXPECT_TRUE(timing.has_execution_seconds());
  EXPECT_FALSE(timing.has_cold_init_seconds());
  EXPECT_DOUBLE_EQ(
      timing.total_host_seconds(),
      timing.input_prepare_seconds() + timing.setup_seconds() + timing.dispatch_seconds());
  EXPECT_EQ(timing.received_bytes(), 64);
  EXPECT_EQ(timing.sent_bytes(), 32);
}

TEST_F(ContractionLifeTest, ARepeatedRequestIsNotCompiledAgain) {
  v1::ContractHeader header = MatrixProduct();
  const Answer first = Contract(&server_, header);
  ASSERT_TRUE(first.status.ok()) << Summary(first.status);
  EXPECT_TRUE(first.report->timing().has_compile_seconds());
  const Answer again = Contract(&server_, header);
  ASSERT_TRUE(again.status.ok()) << Summary(again.status);
  EXPECT_FALSE(again.report->timing().has_compile_seconds());
  EXPECT_EQ(again.report->plan().program_fingerprint(), first.report->plan().program_fingerprint());
  EXPECT_EQ(Decode(kDouble, again.results.at(0).bytes), kProduct);
}

TEST_F(ContractionLifeTest, BriefReportsLeaveTheDetailsOut) {
  v1::ContractHeader header = MatrixProduct();
  header.clear_request_id();
  header.mutable_result()->set_report_detail(v1::REPORT_DETAIL_BRIEF);
  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok());
  EXPECT_FALSE(answer.report->has_plan());
  EXPECT_FALSE(answer.report->memory().has_plan());
  const v1::PlanSummary& plan = answer.accepted->plan();
  EXPECT_FALSE(plan.has_path() || plan.has_total() || plan.has_provenance());
  v1::PlanSummary full = Contract(&server_, MatrixProduct()).accepted->plan();
  EXPECT_TRUE(full.has_path() && full.has_total() && full.has_provenance());
  EXPECT_EQ(plan.program_fingerprint(), full.program_fingerprint());
  EXPECT_EQ(plan.predicted_seconds(), full.predicted_seconds());
  EXPECT_EQ(plan.flops(), full.flops());
  EXPECT_EQ(answer.report->providers_size() + answer.report->provider_choices_size(), 0);
  EXPECT_EQ(answer.report->server_version(), "");
  EXPECT_FALSE(answer.accepted->has_memory());
  EXPECT_EQ(answer.accepted->providers_size(), 0);
  EXPECT_GT(answer.accepted->planned_peak_bytes(), 0);
  // The server makes an id up, another one every time.
  EXPECT_FALSE(answer.accepted->request_id().empty());
  EXPECT_NE(Contract(&server_, header).accepted->request_id(), answer.accepted->request_id());
}

TEST_F(ContractionLifeTest, TheTimelineHasEverySliceGroup) {
  v1::ContractHeader header = MatrixProduct();
  header.mutable_result()->set_report_detail(v1::REPORT_DETAIL_TIMELINE);
  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  const v1::ContractionReport& report = *answer.report;
  ASSERT_EQ(report.timeline_size(), report.slice_groups());
  ASSERT_GE(report.timeline_size(), 1);
  for (int i = 0; i < report.timeline_size(); ++i) {
    const v1::TimelineEvent& event = report.timeline(i);
    EXPECT_EQ(event.item(), i);
    EXPECT_EQ(event.provider(), "cpu");
    EXPECT_GE(event.begin_seconds(), 0);
    EXPECT_GE(event.end_seconds(), event.begin_seconds());
    EXPECT_LE(event.end_seconds(), report.timing().request_seconds());
  }
  header.mutable_result()->set_report_detail(v1::REPORT_DETAIL_FULL);
  EXPECT_EQ(Contract(&server_, header).report->timeline_size(), 0);
}

TEST_F(ContractionLifeTest, ExplicitPlanIsRunAsGiven) {
  v1::ContractHeader header = MatrixProduct();
  v1::ContractionPath* path = header.mutable_path()->mutable_path();
  path->set_format(v1::PATH_FORMAT_LINEAR);
  path->add_steps()->add_operands(1);
  path->mutable_steps(0)->add_operands(0);
  header.mutable_path()->add_sliced_indices("b");
  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(Decode(kDouble, answer.results.at(0).bytes), kProduct);
  const v1::PlanSummary& plan = answer.report->plan();
  EXPECT_EQ(plan.provenance().source(), v1::PLAN_SOURCE_EXPLICIT);
  EXPECT_EQ(plan.slices(), 2);
  ASSERT_EQ(plan.sliced_indices_size(), 1);
  EXPECT_EQ(plan.sliced_indices(0), "b");
  ASSERT_EQ(plan.path().steps_size(), 1);
  EXPECT_EQ(plan.path().steps(0).operands(0), 1);
  EXPECT_EQ(answer.report->slices(), 2);
}

// The fake's group stands still until it is cancelled, so it is surely running.
v1::ContractHeader FakeProduct() {
  v1::ContractHeader header = MatrixProduct();
  header.mutable_execution()->add_providers("fake");
  return header;
}

TEST_F(ContractionLifeTest, CancelWhileRunning) {
  server_.fake().StallNth(FakeProvider::Entry::kRunGroup, 1);
  ContractClient client(&server_);
  client.SendHeader(FakeProduct());
  server_.fake().WaitUntilStalled();
  EXPECT_GT(server_.state().budget.reserved_bytes(), 0);
  client.Cancel();
  EXPECT_EQ(client.Finish().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_.AllReleased());
  EXPECT_EQ(server_.fake().live().executions, 0);
}

TEST_F(ContractionLifeTest, DeadlineWhileRunning) {
  server_.fake().StallNth(FakeProvider::Entry::kRunGroup, 1);
  ContractClient client(&server_, std::chrono::milliseconds(300));
  client.SendHeader(FakeProduct());
  EXPECT_EQ(client.Finish().status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(server_.AllReleased());
  EXPECT_EQ(server_.fake().live().executions, 0);
}

TEST_F(ContractionLifeTest, CancelWhileBytesAreMissing) {
  ContractClient client(&server_);
  client.SendHeader(MatrixProduct(false));
  ASSERT_TRUE(client.Read().has_accepted());
  EXPECT_GT(server_.state().budget.reserved_bytes(), 0);
  client.Cancel();
  client.Finish();
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(ContractionLifeTest, CancelWhileQueued) {
  BusyExecutor busy(&server_.state().executor, 2);
  ContractClient client(&server_);
  client.SendHeader(FakeProduct());
  client.Cancel();
  client.Finish();
  busy.Release();
  EXPECT_TRUE(server_.AllReleased());
  EXPECT_TRUE(Contract(&server_, MatrixProduct()).status.ok());
}

// Waits until `count` requests are in the queue.
void AwaitQueued(Executor* executor, size_t count) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (executor->queued() < count && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  ASSERT_EQ(executor->queued(), count);
}

TEST(ContractionLoad, FullQueueIsRefusedAtOnce) {
  ContractionTestServer server({.executor_threads = 1, .max_queued = 1});
  BusyExecutor busy(&server.state().executor, 1);
  ContractClient first(&server);
  first.SendHeader(MatrixProduct());
  AwaitQueued(&server.state().executor, 1);
  const Answer refused = Contract(&server, MatrixProduct());
  EXPECT_EQ(Summary(refused.status), "RESOURCE_EXHAUSTED OVERLOADED ");
  EXPECT_EQ(ErrorOf(refused.status).metadata["retry_delay_seconds"], "1");
  busy.Release();
  EXPECT_TRUE(first.Finish().status.ok());
}

TEST(ContractionLoad, QueueTimeMayBeLimited) {
  ContractionTestServer server({.executor_threads = 1});
  BusyExecutor busy(&server.state().executor, 1);
  v1::ContractHeader header = MatrixProduct();
  header.mutable_execution()->set_max_queue_seconds(1e-9);
  ContractClient client(&server);
  client.SendHeader(header);
  EXPECT_EQ(Summary(client.Finish().status),
            "DEADLINE_EXCEEDED DEADLINE header.execution.max_queue_seconds");
}

TEST(ContractionLoad, MemoryIsAdmittedBeforeBytesAreRead) {
  // Room for one of these at a time.
  ContractionTestServer server({.budget_bytes = int64_t{5} << 20});
  server.state().settings.max_queue_wait = std::chrono::milliseconds(0);
  v1::ContractHeader header = Product(4096, false);  // 2 MiB, 16 KiB, and 1 MiB of result
  ContractClient first(&server);
  first.SendHeader(header);
  ASSERT_TRUE(first.Read().has_accepted());
  EXPECT_GE(server.state().budget.reserved_bytes(), int64_t{3} << 20);
  const Answer second = Contract(&server, header);
  EXPECT_EQ(Summary(second.status), "RESOURCE_EXHAUSTED OVERLOADED ");
  first.Cancel();
  first.Finish();
  ASSERT_TRUE(server.AllReleased());
  // What can never fit is refused for good.
  const Answer huge = Contract(&server, Product(1 << 20, false));
  EXPECT_EQ(ErrorOf(huge.status).reason, "EXCEEDS_SERVER_LIMIT");
  EXPECT_EQ(huge.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(ContractionLoad, DrainingServerRefuses) {
  ContractionTestServer server;
  server.state().lifecycle.MoveTo(ServerPhase::kDraining);
  EXPECT_EQ(Summary(Contract(&server, MatrixProduct()).status), "UNAVAILABLE DRAINING ");
}

TEST_F(ContractionLifeTest, TransientFaultsEndTheCallOnly) {
  server_.fake().FailNth(FakeProvider::Entry::kRunGroup, 1,
                         Error(Reason::kInternal, "the launch timed out"));
  const Answer answer = Contract(&server_, FakeProduct());
  EXPECT_EQ(Summary(answer.status), "INTERNAL INTERNAL ");
  EXPECT_THAT(answer.status.error_message(), ::testing::HasSubstr("the launch timed out"));
  EXPECT_TRUE(server_.AllReleased());
  EXPECT_EQ(server_.fake().live().executions, 0);
  EXPECT_TRUE(Contract(&server_, FakeProduct()).status.ok());
}

TEST_F(ContractionLifeTest, CallsAreCounted) {
  Contract(&server_, MatrixProduct());
  Contract(&server_, v1::ContractHeader());
  const auto counted = [&] {
    for (const MethodStatistics& method : server_.state().metrics.Statistics()) {
      if (method.succeeded == 1 && method.failed == 1 && method.in_flight == 0) return true;
    }
    return false;
  };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!counted() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(counted());
}

}  // namespace
}  // namespace tenon::server
