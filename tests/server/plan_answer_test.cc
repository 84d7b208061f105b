// What the answer to PlanContraction tells of a plan: scores, names, what ended the search, errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "backends/core/error.h"
#include "tests/server/plan_service_fixture.h"

namespace tenon::server {
namespace {

class PlanAnswerTest : public PlanServiceTest {};

double SumOfLog2(double weight_a, double log2_a, double weight_b, double log2_b) {
  return std::log2(weight_a * std::exp2(log2_a) + weight_b * std::exp2(log2_b));
}

double Log2(double log10) { return log10 * std::log2(10.0); }

TEST_F(PlanAnswerTest, ScoresAreOfTheObjectiveAndItsWeights) {
  struct Case {
    v1::SearchObjective objective;
    double (*expected)(const v1::PlanCost&);
  };
  const Case cases[] = {
      {v1::SEARCH_OBJECTIVE_FLOPS, [](const v1::PlanCost& c) { return Log2(c.log10_flops()); }},
      {v1::SEARCH_OBJECTIVE_READ_WRITE, [](const v1::PlanCost& c) { return c.log2_read_write(); }},
      {v1::SEARCH_OBJECTIVE_LARGEST_INTERMEDIATE,
       [](const v1::PlanCost& c) { return c.log2_largest_intermediate(); }},
      {v1::SEARCH_OBJECTIVE_WEIGHTED,
       [](const v1::PlanCost& c) {
         return SumOfLog2(3, Log2(c.log10_flops()), 5, c.log2_read_write());
       }},
  };
  for (const Case& one : cases) {
    v1::PlanContractionRequest request = Request(Lattice(5, 2));
    request.mutable_search()->set_objective(one.objective);
    request.mutable_search()->set_target_size(8);
    if (one.objective == v1::SEARCH_OBJECTIVE_WEIGHTED) {
      request.mutable_search()->set_flops_weight(3);
      request.mutable_search()->set_read_write_weight(5);
    }
    const Planned planned = Plan(request);
    ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
    const v1::PlanSummary& plan = planned.plan->plan();
    EXPECT_GT(plan.slices(), 1);
    ASSERT_FALSE(planned.improvements.empty());
    const v1::PlanImprovement& last = planned.improvements.back();
    for (const v1::PlanCost& cost :
         {plan.unsliced(), plan.per_slice(), plan.total(), last.per_slice(), last.total()}) {
      EXPECT_NEAR(cost.log2_score(), one.expected(cost), 1e-9) << one.objective;
    }
    EXPECT_EQ(last.log2_score(), plan.log2_score());
    EXPECT_LE(plan.log2_score(), plan.total().log2_score());
  }
}

TEST_F(PlanAnswerTest, SecondsWithoutAPredictionAreNoScore) {
  ASSERT_TRUE((*server_.state().providers.Find("cpu"))->Calibrate(nullptr).ok());
  v1::PlanContractionRequest request = Request(Lattice(5, 2));
  request.mutable_search()->set_objective(v1::SEARCH_OBJECTIVE_SECONDS);
  const v1::PlanSummary whole = Plan(request).plan.value_or(v1::PlanResult()).plan();
  EXPECT_EQ(whole.unsliced().log2_score(), std::log2(whole.predicted_seconds()));
  EXPECT_EQ(whole.log2_score(), std::log2(whole.predicted_seconds()));
  request.mutable_search()->set_target_size(8);
  const Planned planned = Plan(request);
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  const v1::PlanSummary& plan = planned.plan->plan();
  EXPECT_TRUE(std::isnan(plan.unsliced().log2_score()));
  EXPECT_EQ(plan.total().log2_score(), std::log2(plan.predicted_seconds()));
  EXPECT_NEAR(plan.per_slice().log2_score(), plan.total().log2_score() - plan.log2_slices(), 1e-9);
  EXPECT_EQ(planned.improvements.back().log2_score(), plan.log2_score());
}

// The score of `total`, without hoisting, may rise meanwhile.
TEST_F(PlanAnswerTest, ImprovingNeverRaisesWhatIsExecuted) {
  v1::PlanContractionRequest request = Request(Lattice(7, 2), 1);
  request.mutable_search()->set_target_size(16);
  const Planned first = Plan(request);
  ASSERT_TRUE(first.plan.has_value()) << Summary(first.status);
  double score = first.plan->plan().log2_score();
  EXPECT_LT(score, first.plan->plan().total().log2_score());
  request.mutable_search()->set_cache(v1::PLAN_CACHE_POLICY_IMPROVE);
  for (int round = 0; round < 5; ++round) {
    const Planned better = Plan(request);
    ASSERT_TRUE(better.plan.has_value()) << Summary(better.status);
    for (size_t i = 1; i < better.improvements.size(); ++i) {
      EXPECT_LT(better.improvements[i].log2_score(), better.improvements[i - 1].log2_score());
    }
    EXPECT_LE(better.plan->plan().log2_score(), score);
    score = better.plan->plan().log2_score();
  }
}

TEST_F(PlanAnswerTest, EveryPlanHasANameThatWorks) {
  for (int operands = 1; operands <= 3; ++operands) {
    v1::ContractHeader header;
    const char* const names[] = {"a", "b", "c", "d"};
    for (int k = 0; k < operands; ++k) {
      AddOperand(&header, {names[k], names[k + 1]}, v1::DATA_TYPE_FLOAT64, {2, 2}, {1, 2, 3, 4});
    }
    SetOutput(&header, {"a", names[operands]});
    v1::PlanContractionRequest request;
    *request.mutable_network() = header.network();
    const Planned planned = Plan(request);
    ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
    const v1::PlanSummary& plan = planned.plan->plan();
    EXPECT_THAT(plan.plan_id(), ::testing::StartsWith("plans/")) << operands;
    const Answer own = Contract(&server_, header);
    header.set_plan_id(plan.plan_id());
    const Answer named = Contract(&server_, header);
    ASSERT_TRUE(named.status.ok()) << Summary(named.status);
    EXPECT_EQ(named.report->plan().program_fingerprint(), plan.program_fingerprint());
    EXPECT_EQ(named.results[0].bytes, own.results[0].bytes);
  }
  // Of two operands that no machine could hold.
  v1::PlanContractionRequest request;
  v1::ContractHeader huge;
  AddOperand(&huge, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {1 << 28, 1 << 28});
  AddOperand(&huge, {"b", "c"}, v1::DATA_TYPE_FLOAT64, {1 << 28, 1 << 28});
  SetOutput(&huge, {"a", "c"});
  *request.mutable_network() = huge.network();
  const Planned planned = Plan(request);
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  EXPECT_THAT(planned.plan->plan().plan_id(), ::testing::StartsWith("plans/"));
  EXPECT_EQ(planned.plan->plan().path().steps_size(), 1);
}

TEST_F(PlanAnswerTest, ASearchThatIsNotWorthMoreEndsByTheDefaultBudget) {
  v1::PlanContractionRequest request;
  *request.mutable_network() = Ring(40, "a").network();
  const Planned planned = Plan(request);
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  EXPECT_EQ(planned.plan->plan().provenance().stopped_by(), v1::SEARCH_STOP_DEFAULT_BUDGET);
  *request.mutable_network() = Ring(6, "a").network();  // solved exactly
  EXPECT_EQ(Plan(request).plan->plan().provenance().stopped_by(), v1::SEARCH_STOP_EXHAUSTED);
}

TEST_F(PlanAnswerTest, RefusesWhatItsPlanDoesNotMeet) {
  v1::PlanContractionRequest request = Request(Ring(12, "a"));
  request.mutable_execution()->set_required_fingerprint(std::string(64, '0'));
  EXPECT_EQ(Summary(Plan(request).status),
            "FAILED_PRECONDITION FINGERPRINT_MISMATCH execution.required_fingerprint");
  request = Request(Ring(12, "a"));
  request.mutable_execution()->mutable_slice_groups()->set_last(1);
  EXPECT_TRUE(Plan(request).plan.has_value());
  request.mutable_execution()->mutable_slice_groups()->set_last(100);
  EXPECT_EQ(Summary(Plan(request).status), "INVALID_ARGUMENT BAD_SLICE execution.slice_groups");
  request = Request(Ring(12, "a"));
  request.set_path_format(static_cast<v1::PathFormat>(9));
  EXPECT_EQ(Summary(Plan(request).status), "INVALID_ARGUMENT BAD_PARAMETER path_format");
}

TEST_F(PlanAnswerTest, FiguresOfErrorsHaveAllTheirDigits) {
  v1::ContractHeader header;
  AddOperand(&header, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {12345, 2});
  AddOperand(&header, {"b", "c"}, v1::DATA_TYPE_FLOAT64, {2, 1001});
  SetOutput(&header, {"a", "c"});
  v1::PlanContractionRequest request = Request(header);
  request.mutable_search()->set_target_size(1234567);
  const grpc::Status status = Plan(request).status;
  EXPECT_EQ(Summary(status), "RESOURCE_EXHAUSTED UNREACHABLE_TARGET search.target_size");
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("12357345 elements"));
}

}  // namespace
}  // namespace tenon::server
