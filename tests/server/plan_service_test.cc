// Plans over the wire: searched, streamed, cached, named, demanded by fingerprint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "server/logging.h"
#include "tests/server/plan_service_fixture.h"

namespace tenon::server {
namespace {

TEST_F(PlanServiceTest, StreamsImprovementsAndThenThePlan) {
  const Planned planned = Plan(Request(Ring(40, "a")));
  ASSERT_TRUE(planned.status.ok()) << Summary(planned.status);
  ASSERT_TRUE(planned.plan.has_value());
  const v1::PlanSummary& plan = planned.plan->plan();
  EXPECT_EQ(plan.steps(), 39);
  EXPECT_EQ(plan.path().steps_size(), 39);
  EXPECT_THAT(plan.plan_id(), ::testing::StartsWith("plans/"));
  EXPECT_EQ(plan.provenance().source(), v1::PLAN_SOURCE_SEARCH);
  EXPECT_EQ(plan.provenance().trials(), 8);
  EXPECT_EQ(plan.provenance().stopped_by(), v1::SEARCH_STOP_TRIALS);
  ASSERT_FALSE(planned.improvements.empty());
  for (size_t i = 1; i < planned.improvements.size(); ++i) {
    EXPECT_LT(planned.improvements[i].total().log2_score(),
              planned.improvements[i - 1].total().log2_score());
  }
  EXPECT_EQ(planned.improvements.back().total().log2_score(), plan.total().log2_score());
}

TEST_F(PlanServiceTest, AnswersFromTheCacheWhateverTheNames) {
  const Planned first = Plan(Request(Ring(40, "a")));
  const Planned again = Plan(Request(Ring(40, "other ")));
  ASSERT_TRUE(first.plan.has_value() && again.plan.has_value());
  EXPECT_TRUE(again.improvements.empty());
  EXPECT_EQ(again.plan->plan().provenance().source(), v1::PLAN_SOURCE_CACHE);
  EXPECT_EQ(again.plan->plan().plan_id(), first.plan->plan().plan_id());
  // Other options are another question.
  const Planned other = Plan(Request(Ring(40, "a"), 9));
  EXPECT_EQ(other.plan->plan().provenance().source(), v1::PLAN_SOURCE_SEARCH);
  v1::PlanContractionRequest bypass = Request(Ring(40, "a"));
  bypass.mutable_search()->set_cache(v1::PLAN_CACHE_POLICY_BYPASS);
  EXPECT_EQ(Plan(bypass).plan->plan().provenance().source(), v1::PLAN_SOURCE_SEARCH);
}

TEST_F(PlanServiceTest, ImprovingNeverMakesTheCachedPlanWorse) {
  const Planned first = Plan(Request(Ring(60, "a"), 1));
  v1::PlanContractionRequest improve = Request(Ring(60, "a"), 1);
  improve.mutable_search()->set_cache(v1::PLAN_CACHE_POLICY_IMPROVE);
  const Planned better = Plan(improve);
  ASSERT_TRUE(better.plan.has_value()) << Summary(better.status);
  EXPECT_LE(better.plan->plan().total().log2_score(), first.plan->plan().total().log2_score());
}

TEST_F(PlanServiceTest, ThePlanRunsByItsName) {
  v1::ContractHeader header = Ring(12, "a", true);
  const Planned planned = Plan(Request(header));
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  const Answer own = Contract(&server_, header);
  ASSERT_TRUE(own.status.ok()) << Summary(own.status);
  header.set_plan_id(planned.plan->plan().plan_id());
  const Answer named = Contract(&server_, header);
  ASSERT_TRUE(named.status.ok()) << Summary(named.status);
  EXPECT_EQ(named.report->plan().provenance().source(), v1::PLAN_SOURCE_PLAN_ID);
  EXPECT_EQ(named.report->plan().program_fingerprint(), planned.plan->plan().program_fingerprint());
  EXPECT_NEAR(std::abs(Decode(v1::DATA_TYPE_FLOAT64, own.results[0].bytes)[0] -
                       Decode(v1::DATA_TYPE_FLOAT64, named.results[0].bytes)[0]),
              0, 1e-9);
  // It fits no other network.
  v1::ContractHeader other = Ring(14, "a", true);
  other.set_plan_id(planned.plan->plan().plan_id());
  EXPECT_EQ(Summary(Contract(&server_, other).status), "INVALID_ARGUMENT BAD_PATH header.plan_id");
}

TEST_F(PlanServiceTest, AnOlderPlanServesItsFingerprint) {
  v1::ContractHeader header = Lattice(6, 2, true);
  header.mutable_search()->add_methods(v1::SEARCH_METHOD_BISECTION);
  header.mutable_search()->set_max_trials(1);
  const Answer old = Contract(&server_, header);
  ASSERT_TRUE(old.status.ok()) << Summary(old.status);
  const std::string fingerprint = old.report->plan().program_fingerprint();
  header.mutable_search()->clear_methods();
  header.mutable_search()->set_max_trials(8);
  const Answer better = Contract(&server_, header);
  ASSERT_TRUE(better.status.ok()) << Summary(better.status);
  ASSERT_NE(better.report->plan().program_fingerprint(), fingerprint);
  header.mutable_execution()->set_required_fingerprint(fingerprint);
  const Answer demanded = Contract(&server_, header);
  ASSERT_TRUE(demanded.status.ok()) << Summary(demanded.status);
  EXPECT_EQ(demanded.report->plan().program_fingerprint(), fingerprint);
  EXPECT_EQ(demanded.results[0].bytes, old.results[0].bytes);
  header.mutable_execution()->set_required_fingerprint(std::string(64, '0'));
  EXPECT_EQ(Summary(Contract(&server_, header).status),
            "FAILED_PRECONDITION FINGERPRINT_MISMATCH header.execution.required_fingerprint");
}

TEST_F(PlanServiceTest, PlansForTheMemoryOfTheRequest) {
  const v1::ContractHeader header = Lattice(7, 4);
  v1::PlanContractionRequest request = Request(header, 2);
  const Planned free = Plan(request);
  ASSERT_TRUE(free.plan.has_value()) << Summary(free.status);
  EXPECT_EQ(free.plan->plan().slices(), 1);
  const int64_t budget = free.plan->planned_peak_bytes() / 2;
  request.mutable_execution()->set_memory_budget_bytes(budget);
  const Planned tight = Plan(request);
  ASSERT_TRUE(tight.plan.has_value()) << Summary(tight.status);
  EXPECT_LE(tight.plan->planned_peak_bytes(), budget);
  request.mutable_execution()->set_memory_budget_bytes(1000);
  EXPECT_EQ(Summary(Plan(request).status),
            "RESOURCE_EXHAUSTED EXCEEDS_MEMORY_BUDGET execution.memory_budget_bytes");
}

TEST_F(PlanServiceTest, ThePlanIsTheSameForEveryProvider) {
  v1::PlanContractionRequest request = Request(Ring(40, "a"));
  request.mutable_search()->set_cache(v1::PLAN_CACHE_POLICY_BYPASS);
  const Planned cpu = Plan(request);
  request.mutable_execution()->add_providers("reference");
  const Planned reference = Plan(request);
  ASSERT_TRUE(cpu.plan.has_value() && reference.plan.has_value());
  EXPECT_EQ(cpu.plan->plan().plan_id(), reference.plan->plan().plan_id());
}

TEST_F(PlanServiceTest, GivesLinearPathsToo) {
  v1::PlanContractionRequest request = Request(Ring(12, "a"));
  request.set_path_format(v1::PATH_FORMAT_LINEAR);
  const Planned linear = Plan(request);
  ASSERT_TRUE(linear.plan.has_value()) << Summary(linear.status);
  v1::ContractHeader header = Ring(12, "a", true);
  *header.mutable_path()->mutable_path() = linear.plan->plan().path();
  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.report->plan().program_fingerprint(), linear.plan->plan().program_fingerprint());
}

TEST_F(PlanServiceTest, NeedsSizesAndNothingElse) {
  v1::PlanContractionRequest request;
  for (const auto& indices :
       std::vector<std::vector<std::string>>{{"a", "b"}, {"b", "c"}, {"c", "d"}}) {
    v1::Operand* operand = request.mutable_network()->add_operands();
    for (const std::string& index : indices) operand->add_indices(index);
  }
  request.mutable_network()->add_output("a");
  request.mutable_network()->add_output("d");
  EXPECT_EQ(Summary(Plan(request).status),
            "INVALID_ARGUMENT MISSING_FIELD network.operands[0].spec");
  const std::vector<std::pair<std::string, int64_t>> sizes = {
      {"a", 2}, {"b", 4}, {"c", 8}, {"d", 3}};
  for (const auto& [name, size] : sizes) {
    (*request.mutable_network()->mutable_index_sizes())[name] = size;
  }
  const Planned planned = Plan(request);
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  // The seed's golden numbers of this chain: 120 multiplications, 94 elements moved, score 6136.
  EXPECT_NEAR(planned.plan->plan().total().log10_flops(), std::log10(120), 1e-12);
  EXPECT_NEAR(planned.plan->plan().total().log2_read_write(), std::log2(94), 1e-12);
  EXPECT_NEAR(planned.plan->plan().total().log2_score(), std::log2(6136), 1e-12);
}

TEST_F(PlanServiceTest, RefusesADefaultTypeThatCannotBeContracted) {
  v1::PlanContractionRequest request = Request(Ring(12, "a"));
  for (const v1::DataType dtype : {v1::DATA_TYPE_INT64, static_cast<v1::DataType>(99)}) {
    request.set_default_dtype(dtype);
    EXPECT_EQ(Summary(Plan(request).status), "UNIMPLEMENTED UNSUPPORTED_DTYPE default_dtype");
  }
}

TEST_F(PlanServiceTest, TheDefaultPlanIsTheSameForEveryProvider) {
  ASSERT_TRUE((*server_.state().providers.Find("cpu"))->Calibrate(nullptr).ok());
  v1::PlanContractionRequest request = Request(Ring(40, "a"));
  request.mutable_search()->set_cache(v1::PLAN_CACHE_POLICY_BYPASS);
  std::vector<v1::PlanSummary> plans;
  for (const char* provider : {"", "cpu", "reference"}) {
    request.mutable_search()->set_provider(provider);
    const Planned planned = Plan(request);
    ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
    plans.push_back(planned.plan->plan());
    EXPECT_EQ(plans.back().path().SerializeAsString(), plans[0].path().SerializeAsString());
    EXPECT_GT(plans.back().predicted_seconds(), 0);
    EXPECT_EQ(planned.improvements.back().has_predicted_seconds(),
              std::string(provider) != "reference");
  }
  EXPECT_EQ(plans[1].program_fingerprint(), plans[0].program_fingerprint());
  EXPECT_NE(plans[2].program_fingerprint(), plans[0].program_fingerprint());
}

TEST_F(PlanServiceTest, SecondsAreOfTheNamedProvider) {
  v1::PlanContractionRequest request = Request(Ring(40, "a"));
  request.mutable_search()->set_objective(v1::SEARCH_OBJECTIVE_SECONDS);
  EXPECT_EQ(Summary(Plan(request).status),
            "UNIMPLEMENTED UNSUPPORTED_BY_PROVIDER search.objective");
  ASSERT_TRUE((*server_.state().providers.Find("cpu"))->Calibrate(nullptr).ok());
  const Planned planned = Plan(request);
  ASSERT_TRUE(planned.plan.has_value()) << Summary(planned.status);
  const v1::PlanSummary& plan = planned.plan->plan();
  EXPECT_EQ(plan.provenance().objective(), v1::SEARCH_OBJECTIVE_SECONDS);
  EXPECT_GT(plan.predicted_seconds(), 0);
  EXPECT_EQ(plan.total().log2_score(), std::log2(plan.predicted_seconds()));
  ASSERT_FALSE(planned.improvements.empty());
  EXPECT_EQ(planned.improvements.back().predicted_seconds(), plan.predicted_seconds());
  request.mutable_search()->set_provider("reference");
  EXPECT_EQ(Summary(Plan(request).status),
            "UNIMPLEMENTED UNSUPPORTED_BY_PROVIDER search.objective");
  request.mutable_execution()->add_providers("reference");
  request.mutable_search()->set_provider("cpu");
  const Planned named = Plan(request);
  ASSERT_TRUE(named.plan.has_value()) << Summary(named.status);
  EXPECT_EQ(named.plan->plan().program_fingerprint(), plan.program_fingerprint());
  request.mutable_search()->set_provider("abacus");
  EXPECT_EQ(Summary(Plan(request).status), "INVALID_ARGUMENT UNKNOWN_PROVIDER search.provider");
}

TEST_F(PlanServiceTest, AContractionIsPlannedByTheSecondsOfAnotherProvider) {
  ASSERT_TRUE((*server_.state().providers.Find("cpu"))->Calibrate(nullptr).ok());
  v1::ContractHeader header = Ring(12, "a", true);
  header.mutable_execution()->add_providers("reference");
  header.mutable_search()->set_objective(v1::SEARCH_OBJECTIVE_SECONDS);
  header.mutable_search()->set_provider("cpu");
  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.report->providers(0).provider(), "reference");
  EXPECT_EQ(answer.report->plan().provenance().objective(), v1::SEARCH_OBJECTIVE_SECONDS);
}

TEST_F(PlanServiceTest, ACancelledSearchReturnsNothing) {
  v1::PlanContractionRequest request = Request(Ring(100, "a"), 1'000'000);
  grpc::ClientContext context;
  const auto reader = server_.stub().PlanContraction(&context, request);
  v1::PlanContractionResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  EXPECT_TRUE(frame.has_improvement());
  context.TryCancel();
  while (reader->Read(&frame)) EXPECT_FALSE(frame.has_plan());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(PlanServiceTest, TellsProgressNoMoreOftenThanAsked) {
  v1::PlanContractionRequest request = Request(Ring(60, "a"));
  *request.mutable_search() = Endless();
  constexpr double kInterval = 0.05;
  request.mutable_execution()->set_progress_interval_seconds(kInterval);
  grpc::ClientContext context;
  const auto reader = server_.stub().PlanContraction(&context, request);
  v1::PlanContractionResponse frame;
  std::vector<v1::PlanProgress> progress;
  // Until some trials have been told.
  while ((progress.size() < 4 || progress.back().trials() == 0) && reader->Read(&frame)) {
    if (frame.has_progress()) progress.push_back(frame.progress());
  }
  context.TryCancel();
  while (reader->Read(&frame)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_GE(progress.size(), 4u);
  EXPECT_GE(progress[0].elapsed_seconds(), kInterval);
  for (size_t i = 1; i < progress.size(); ++i) {
    EXPECT_GE(progress[i].elapsed_seconds() - progress[i - 1].elapsed_seconds(), kInterval);
    EXPECT_GE(progress[i].trials(), progress[i - 1].trials());
  }
  EXPECT_EQ(progress.back().queue_position(), 0);
}

TEST_F(PlanServiceTest, TellsNoProgressUnasked) {
  v1::PlanContractionRequest request = Request(Ring(60, "a"));
  EXPECT_EQ(Plan(request).progress, 0);
  for (const double interval : {0.0, -1.0, std::nan("")}) {
    request.mutable_execution()->set_progress_interval_seconds(interval);
    EXPECT_EQ(Summary(Plan(request).status),
              "INVALID_ARGUMENT BAD_PARAMETER execution.progress_interval_seconds");
  }
  // Longer than any search, and shorter than any clock tells.
  for (const double interval : {1e300, 1e-300}) {
    request.mutable_execution()->set_progress_interval_seconds(interval);
    EXPECT_TRUE(Plan(request).plan.has_value());
  }
}

TEST_F(PlanServiceTest, TellsItsPlaceInTheQueue) {
  BusyExecutor busy(&server_.state().executor, 2);
  v1::PlanContractionRequest request = Request(Ring(12, "a"));
  request.mutable_execution()->set_progress_interval_seconds(0.01);
  grpc::ClientContext contexts[2];
  std::unique_ptr<grpc::ClientReader<v1::PlanContractionResponse>> readers[2];
  v1::PlanContractionResponse frame;
  for (int i = 0; i < 2; ++i) {
    readers[i] = server_.stub().PlanContraction(&contexts[i], request);
    ASSERT_TRUE(readers[i]->Read(&frame));  // so it waits
    ASSERT_TRUE(frame.has_progress());
    EXPECT_EQ(frame.progress().queue_position(), i);
    EXPECT_EQ(frame.progress().trials(), 0);
  }
  busy.Release();
  for (const auto& reader : readers) {
    while (reader->Read(&frame)) {
    }
    EXPECT_TRUE(frame.has_plan());
    EXPECT_TRUE(reader->Finish().ok());
  }
}

TEST_F(PlanServiceTest, TheLogNamesTheRequest) {
  v1::PlanContractionRequest request = Request(Ring(12, "a"));
  request.set_request_id("the-request");
  InitLogging("info", false);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(Plan(request).status.ok());
  request.mutable_search()->set_max_trials(0);
  EXPECT_FALSE(Plan(request).status.ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  InitLogging("error", false);
  EXPECT_THAT(log, ::testing::ContainsRegex("request_id=the-request [^\n]*reason=OK"));
  EXPECT_THAT(log, ::testing::ContainsRegex("request_id=the-request [^\n]*reason=BAD_PARAMETER"));
}

TEST_F(PlanServiceTest, ACancelledContractionStopsSearching) {
  v1::ContractHeader header = Ring(100, "a");
  *header.mutable_search() = Endless();
  {
    ContractClient client(&server_, std::chrono::milliseconds(200));
    client.SendHeader(header);
    EXPECT_EQ(client.Finish().status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  ContractClient client(&server_);
  client.SendHeader(header);
  client.Cancel();
  client.Finish();
  EXPECT_TRUE(server_.AllReleased());
  AwaitIdle();
}

TEST_F(PlanServiceTest, ACancelledEstimateStopsSearching) {
  v1::EstimateRequest request;
  *request.mutable_header() = Ring(100, "a");
  *request.mutable_header()->mutable_search() = Endless();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::EstimateResponse response;
  EXPECT_EQ(server_.stub().Estimate(&context, request, &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  AwaitIdle();
}

TEST_F(PlanServiceTest, ContractObeysTheSearchOptions) {
  v1::ContractHeader header = Ring(40, "a", true);
  v1::SearchOptions* search = header.mutable_search();
  search->set_max_trials(3);
  search->set_seed(11);
  search->set_target_size(8);
  search->add_methods(v1::SEARCH_METHOD_BISECTION);
  search->set_slicing_mode(v1::SLICING_MODE_FIXED_TREE);
  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  const v1::PlanSummary& plan = answer.report->plan();
  EXPECT_EQ(plan.provenance().trials(), 3);
  EXPECT_EQ(plan.provenance().seed(), 11u);
  EXPECT_THAT(plan.provenance().methods(), ::testing::ElementsAre(v1::SEARCH_METHOD_BISECTION));
  EXPECT_EQ(plan.provenance().slicing_mode(), v1::SLICING_MODE_FIXED_TREE);
  EXPECT_LE(plan.per_slice().log2_largest_intermediate(), 3);
  EXPECT_GT(plan.slices(), 1);
}

TEST_F(PlanServiceTest, RefusesOptionsThatMakeNoSense) {
  using S = v1::SearchOptions;
  struct Case {
    const char* expected;
    void (*set)(S*);
  };
  const Case cases[] = {
      {"INVALID_ARGUMENT BAD_PARAMETER search.flops_weight",
       [](S* s) { s->set_flops_weight(std::nan("")); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.read_write_weight",
       [](S* s) { s->set_read_write_weight(-1); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.read_write_weight",
       [](S* s) { s->set_read_write_weight(HUGE_VAL); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.read_write_weight",
       [](S* s) { s->set_read_write_weight(1e300); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.target_size", [](S* s) { s->set_target_size(0); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.memory_bytes", [](S* s) { s->set_memory_bytes(-5); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.max_time_seconds",
       [](S* s) { s->set_max_time_seconds(std::nan("")); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.max_time_seconds",
       [](S* s) { s->set_max_time_seconds(-1); }},
      {"FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT search.max_time_seconds",
       [](S* s) { s->set_max_time_seconds(1e300); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.max_trials",
       [](S* s) { s->set_max_trials(INT64_MIN); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.threads", [](S* s) { s->set_threads(0); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.objective",
       [](S* s) { s->set_objective(static_cast<v1::SearchObjective>(77)); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.slicing_mode",
       [](S* s) { s->set_slicing_mode(static_cast<v1::SlicingMode>(-1)); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.cache",
       [](S* s) { s->set_cache(static_cast<v1::PlanCachePolicy>(9)); }},
      {"INVALID_ARGUMENT MISSING_FIELD search.methods[0]",
       [](S* s) { s->add_methods(v1::SEARCH_METHOD_UNSPECIFIED); }},
      {"INVALID_ARGUMENT BAD_PARAMETER search.methods[1]",
       [](S* s) {
         s->add_methods(v1::SEARCH_METHOD_GREEDY);
         s->add_methods(v1::SEARCH_METHOD_GREEDY);
       }},
  };
  for (const Case& one : cases) {
    v1::PlanContractionRequest request = Request(Ring(12, "a"));
    one.set(request.mutable_search());
    EXPECT_EQ(Summary(Plan(request).status), one.expected);
  }
}

TEST_F(PlanServiceTest, RefusesPathsToStartFromThatAreNone) {
  struct Case {
    const char* expected;
    std::vector<std::vector<int64_t>> steps;
    std::vector<std::string> sliced;
  };
  const std::vector<std::vector<int64_t>> whole = {{0, 1}, {4, 2}, {5, 3}};
  const Case cases[] = {
      {"", whole, {}},
      {"", {{0, 1, 2}, {4, 3}}, {"a0"}},  // left to right
      {"INVALID_ARGUMENT BAD_PATH search.initial.path.steps", {{0, 1}}, {}},
      {"INVALID_ARGUMENT BAD_PATH search.initial.path.steps[1]", {{0, 1}, {0, 2}}, {}},
      {"INVALID_ARGUMENT BAD_SLICE search.initial.sliced_indices[0]", whole, {"nowhere"}},
      {"INVALID_ARGUMENT BAD_SLICE search.initial.sliced_indices[1]", whole, {"a0", "a0"}},
  };
  for (const Case& one : cases) {
    v1::PlanContractionRequest request = Request(Ring(4, "a"));
    v1::ExplicitPlan* initial = request.mutable_search()->mutable_initial();
    initial->mutable_path()->set_format(v1::PATH_FORMAT_SSA);
    for (const auto& step : one.steps) {
      initial->mutable_path()->add_steps()->mutable_operands()->Add(step.begin(), step.end());
    }
    initial->mutable_sliced_indices()->Add(one.sliced.begin(), one.sliced.end());
    EXPECT_EQ(Summary(Plan(request).status), *one.expected == '\0' ? "OK" : one.expected);
  }
}

TEST_F(PlanServiceTest, RefusesNetworksThatAreNone) {
  v1::PlanContractionRequest request;
  EXPECT_EQ(Summary(Plan(request).status), "INVALID_ARGUMENT MISSING_FIELD network");
  request.mutable_network();
  EXPECT_EQ(Summary(Plan(request).status), "INVALID_ARGUMENT BAD_EXPRESSION network.operands");
  request = Request(Ring(12, "a"));
  request.mutable_network()->add_output("nowhere");
  EXPECT_EQ(Summary(Plan(request).status), "INVALID_ARGUMENT UNKNOWN_INDEX network.output[0]");
}

}  // namespace
}  // namespace tenon::server
