// Memory budgets: what a refusal says would be enough is enough.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <thread>

#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"
#include "tests/server/plan_service_fixture.h"

namespace tenon::server {
namespace {

int64_t SmallestBudget(const grpc::Status& refused) {
  const CallError error = ErrorOf(refused);
  EXPECT_EQ(error.reason, "EXCEEDS_MEMORY_BUDGET") << error.message;
  const auto found = error.metadata.find("smallest_budget_bytes");
  EXPECT_NE(found, error.metadata.end()) << error.message;
  return found == error.metadata.end() ? 0 : std::stoll(found->second);
}

class PlanMemoryTest : public PlanServiceTest {};

TEST_F(PlanMemoryTest, APlanFitsTheBudgetThatARefusalNames) {
  for (const auto& header : {Lattice(4, 3), Lattice(7, 4), Ring(24, "a")}) {
    for (const uint64_t seed : {0, 1}) {
      v1::PlanContractionRequest request = Request(header, 8);
      request.mutable_search()->set_seed(seed);
      request.mutable_execution()->set_memory_budget_bytes(1000);
      const int64_t smallest = SmallestBudget(Plan(request).status);
      EXPECT_GT(smallest, 1000);
      request.mutable_execution()->set_memory_budget_bytes(smallest);
      const Planned planned = Plan(request);
      ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
      EXPECT_LE(planned.plan->planned_peak_bytes(), smallest);
    }
  }
}

TEST_F(PlanMemoryTest, APeakThatIsNotCountedNamesNoBudget) {
  v1::ContractHeader header = MatrixProduct(false);
  for (v1::Operand& operand : *header.mutable_network()->mutable_operands()) {
    operand.mutable_spec()->set_shape(0, 1 << 28);
    operand.mutable_spec()->set_shape(1, 1 << 28);
  }
  v1::PlanContractionRequest request = Request(header, 1);
  const Planned free = Plan(request);
  ASSERT_TRUE(free.plan.has_value()) << Summary(free.status);
  EXPECT_EQ(free.plan->refusal().message().find("the request plans at least 1 PiB; "), 0u);
  EXPECT_EQ(free.plan->refusal().metadata().at("planned_peak_is_lower_bound"), "true");
  request.mutable_execution()->set_memory_budget_bytes(1 << 20);
  for (const bool searches : {true, false}) {
    if (!searches) request.clear_search();
    const CallError error = ErrorOf(Plan(request).status);
    EXPECT_EQ(error.reason, "EXCEEDS_MEMORY_BUDGET") << error.message;
    EXPECT_EQ(error.metadata.count("smallest_budget_bytes"), 0u) << error.message;
    // Neither the bound nor what is staged beside it.
    EXPECT_EQ(error.message.find("112589990684"), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find("225179981368"), std::string::npos) << error.message;
  }
}

TEST_F(PlanMemoryTest, WithATargetTheBudgetNamedIsThatOfPlansThatMeetIt) {
  v1::PlanContractionRequest request = Request(Lattice(6, 4), 8);
  request.mutable_search()->set_target_size(16);
  request.mutable_execution()->set_memory_budget_bytes(1000);
  const int64_t smallest = SmallestBudget(Plan(request).status);
  request.mutable_execution()->set_memory_budget_bytes(smallest);
  const Planned planned = Plan(request);
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  EXPECT_LE(planned.plan->plan().per_slice().log2_largest_intermediate(), 4 + 1e-9);
}

TEST_F(PlanMemoryTest, AContractionRunsInTheBudgetThatARefusalNames) {
  // With a search of its own, and with none, which leaves the slicing to the engine.
  for (const auto& header : {Lattice(4, 3, true), MatrixProduct()}) {
    v1::ContractHeader tight = header;
    tight.mutable_execution()->set_memory_budget_bytes(1);
    const int64_t smallest = SmallestBudget(Contract(&server_, tight).status);
    tight.mutable_execution()->set_memory_budget_bytes(smallest);
    const Answer answer = Contract(&server_, tight);
    ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
    EXPECT_EQ(answer.results[0].bytes, Contract(&server_, header).results[0].bytes);
    tight.mutable_execution()->set_memory_budget_bytes(smallest - 1);
    if (header.network().operands_size() != 2) continue;  // a search may find a better plan
    const grpc::Status refused = Contract(&server_, tight).status;
    EXPECT_EQ(SmallestBudget(refused), smallest);
    EXPECT_EQ(ErrorOf(refused).metadata.at("memory_budget_bytes"), std::to_string(smallest - 1));
  }
}

TEST_F(PlanMemoryTest, APlanTellsThatThisServerCannotRunIt) {
  ContractionTestServer small({.budget_bytes = 1 << 20});
  v1::PlanContractionRequest request = Request(Lattice(7, 8), 2);
  grpc::ClientContext context;
  const auto reader = small.stub().PlanContraction(&context, request);
  v1::PlanContractionResponse frame, last;
  while (reader->Read(&frame)) last = frame;
  const grpc::Status status = reader->Finish();
  ASSERT_TRUE(status.ok()) << Summary(status);
  ASSERT_GT(last.plan().planned_peak_bytes(), 1 << 20);
  EXPECT_EQ(last.plan().refusal().reason(), "EXCEEDS_SERVER_LIMIT");
  const Planned planned = Plan(Request(Ring(12, "a"), 2));
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  EXPECT_FALSE(planned.plan->has_refusal());
}

TEST_F(PlanMemoryTest, APlanOfTwoOperandsIsRefusedAsAnyOther) {
  v1::PlanContractionRequest request;
  *request.mutable_network() = MatrixProduct().network();
  request.mutable_execution()->set_memory_budget_bytes(1);
  EXPECT_GT(SmallestBudget(Plan(request).status), 1);
}

TEST_F(PlanMemoryTest, APlanTellsThatNobodyCanCountItsSlices) {
  v1::PlanContractionRequest request = Request(Lattice(6, 1 << 10), 1);
  request.mutable_search()->set_target_size(2);
  const Planned planned = Plan(request);
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  ASSERT_GT(planned.plan->plan().log2_slices(), 62);
  EXPECT_EQ(planned.plan->refusal().reason(), "OVERFLOW");
}

// The queue took the seconds that it was promised; it ends with what it has.
TEST_F(PlanMemoryTest, ASearchThatWaitedEndsBeforeItsDeadline) {
  std::promise<void> begun, gate;
  server_.state().searches.Continue([&] {
    begun.set_value();
    gate.get_future().wait();
  });
  begun.get_future().wait();
  v1::PlanContractionRequest request;
  *request.mutable_network() = Ring(40, "a").network();
  request.mutable_search()->set_max_time_seconds(3);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(4));
  const auto reader = server_.stub().PlanContraction(&context, request);
  const auto opens = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (server_.state().searches.queued() == 0) std::this_thread::yield();
  std::this_thread::sleep_until(opens);
  gate.set_value();
  v1::PlanContractionResponse frame, last;
  while (reader->Read(&frame)) last = frame;
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << Summary(status);
  EXPECT_TRUE(last.has_plan());
}

TEST_F(PlanMemoryTest, ASearchThatWouldOutliveTheDeadlineIsRefused) {
  v1::PlanContractionRequest request;
  *request.mutable_network() = Ring(40, "a").network();
  request.mutable_search()->set_max_time_seconds(100);
  const auto plan = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(50));
    v1::PlanContractionResponse frame;
    const auto reader = server_.stub().PlanContraction(&context, request);
    while (reader->Read(&frame)) {
    }
    return reader->Finish();
  };
  const CallError refused = ErrorOf(plan());
  EXPECT_EQ(refused.reason, "DEADLINE_INFEASIBLE") << refused.message;
  EXPECT_EQ(refused.metadata.at("estimate_seconds"), "100");
  request.mutable_search()->set_max_trials(2);  // which end it sooner
  const grpc::Status by_trials = plan();
  EXPECT_TRUE(by_trials.ok()) << Summary(by_trials);
}

}  // namespace
}  // namespace tenon::server
