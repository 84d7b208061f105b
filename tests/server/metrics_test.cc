#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <regex>
#include <set>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/gauges.h"
#include "tests/support/prometheus_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon::server {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

std::unique_ptr<ServerState> MakeState() {
  return std::make_unique<ServerState>(int64_t{1} << 30, 2, 4, std::chrono::seconds(60));
}

// What dashboards rely on: every family with type, help, and the values of each label. What differs
// from build to build or from machine to machine is "*".
std::string Schema(const std::string& exposition) {
  const std::set<std::string> open_labels = {"version", "commit", "isa", "description", "cuda"};
  const std::regex label(R"re((\w+)="([^"]*)")re");
  std::string schema;
  for (const auto& [name, family] : testing::ParsePrometheus(exposition)) {
    schema += StrCat(name, " ", family.type, ": ", family.help, "\n");
    std::map<std::string, std::set<std::string>> values;
    for (const auto& [labels, value] : family.series) {
      for (std::sregex_iterator it(labels.begin(), labels.end(), label), end; it != end; ++it) {
        values[(*it)[1]].insert(open_labels.count((*it)[1]) > 0 ? "*" : (*it)[2].str());
      }
    }
    for (const auto& [key, set] : values) {
      schema += StrCat("  ", key, " = ", absl::StrJoin(set, ", "), "\n");
    }
  }
  return schema;
}

// To take an intended change over, copy what the test prints.
TEST(Metrics, ExpositionKeepsItsSchema) {
  const auto state = MakeState();
  state->providers.Set({"cpu", nullptr, Error(Reason::kStarting, "warming up")});
  state->metrics.DeclareProvider("cpu");
  const std::string schema = Schema(MetricsText(*state));
  EXPECT_EQ(schema, testing::ReadFileOrDie(testing::TestPath("golden/metrics.txt"))) << schema;
}

TEST(Metrics, TellsHowLongTheLongestTaskOfEachMethodRuns) {
  const auto state = MakeState();
  const auto longest = [&](Method method) {
    const auto families = testing::ParsePrometheus(MetricsText(*state));
    return families.at("tenon_longest_running_seconds")
        .series.at(StrCat("method=\"", MethodName(method), "\""));
  };
  EXPECT_EQ(longest(Method::kMeasure), 0);
  CancelToken cancel;
  const WorkWatch::Entry entry(&state->work_watch, &cancel, MethodName(Method::kMeasure), "scoring",
                               "a");
  EXPECT_GT(longest(Method::kMeasure), 0);
  EXPECT_EQ(longest(Method::kContract), 0);
}

TEST(Metrics, TellsWhatTheAllocatorHolds) {
  const auto state = MakeState();
  const auto held = [&] {
    const auto families = testing::ParsePrometheus(MetricsText(*state));
    const auto& series = families.at("tenon_allocator_bytes").series;
    EXPECT_GE(series.at("kind=\"arena\""), series.at("kind=\"in_use\""));
    return series.at("kind=\"in_use\"") + series.at("kind=\"mapped\"");
  };
  constexpr size_t kBytes = size_t{64} << 20;
  const double before = held();
  const std::unique_ptr<char[]> block(new char[kBytes]);
  block[0] = 1;
  EXPECT_GE(held() - before, kBytes / 2) << "in a heap or mapped";
}

TEST(Metrics, EightDevicesStayBelowTheLimitOfSeries) {
  const auto state = MakeState();
  std::vector<std::string> names = {"cpu", "reference"};
  for (int i = 0; i < 8; ++i) names.push_back(StrCat("cuda:", i));
  for (const std::string& name : names) {
    state->providers.Set({name, nullptr, Error(Reason::kStarting, "warming up")});
    state->metrics.DeclareProvider(name);
  }
  const auto series = testing::SeriesOf(testing::ParsePrometheus(MetricsText(*state)));
  EXPECT_LT(series.size(), 1500u);
}

TEST(Metrics, NoRequestAddsASeries) {
  const auto state = MakeState();
  const size_t before = Lines(MetricsText(*state)).size();
  EXPECT_LT(before, 1500u);
  for (int m = 0; m < static_cast<int>(Method::kCount); ++m) {
    const auto method = static_cast<Method>(m);
    for (int p = 0; p < static_cast<int>(Phase::kCount); ++p) {
      state->metrics.Observe(method, static_cast<Phase>(p), 1e-9 * (p + 1));
      state->metrics.Observe(method, static_cast<Phase>(p), 1e9);
    }
    for (const absl::Status& status :
         {absl::OkStatus(), absl::UnknownError("?"), absl::DataLossError("?"),
          Error(Reason::kInternal, "x").Build(), Error(Reason::kBadPath, "y").Build()}) {
      state->metrics.CallBegan(method);
      state->metrics.CallEnded(method, status, 0.1);
    }
  }
  EXPECT_EQ(Lines(MetricsText(*state)).size(), before);
}

TEST(Metrics, EveryReasonExistsBeforeItOccurs) {
  const auto state = MakeState();
  const std::string text = MetricsText(*state);
#define TENON_EXPECT_REASON(id, name, code) EXPECT_THAT(text, HasSubstr("reason=\"" name "\"} 0"));
  TENON_REASONS(TENON_EXPECT_REASON)
#undef TENON_EXPECT_REASON
}

TEST(Metrics, CountsCallsByOutcomeAndPhase) {
  Metrics metrics;
  for (int i = 0; i < 4; ++i) metrics.CallBegan(Method::kContract);
  EXPECT_EQ(metrics.in_flight(), 4);
  metrics.CallEnded(Method::kContract, absl::OkStatus(), 0.25);
  metrics.CallEnded(Method::kContract, Error(Reason::kBadPath, "x"), 1.0);
  metrics.CallEnded(Method::kContract, Error(Reason::kBadPath, "x"), 0.5);
  metrics.Observe(Method::kContract, Phase::kExecute, 0.125);
  EXPECT_EQ(metrics.in_flight(), 1);

  for (const MethodStatistics& method : metrics.Statistics()) {
    if (method.method != "tenon.v1.ContractionService/Contract") {
      EXPECT_EQ(method.succeeded + method.failed + method.in_flight, 0) << method.method;
      continue;
    }
    EXPECT_EQ(method.succeeded, 1);
    EXPECT_EQ(method.failed, 2);
    EXPECT_EQ(method.in_flight, 1);
    EXPECT_THAT(method.failures, ::testing::ElementsAre(::testing::Pair("BAD_PATH", 2)));
    ASSERT_EQ(method.phases.size(), 2u);
    EXPECT_EQ(method.phases[0].phase, "execution");
    EXPECT_EQ(method.phases[0].seconds, 0.125);
    EXPECT_EQ(method.phases[1].phase, "request");
    EXPECT_EQ(method.phases[1].count, 3);
    EXPECT_EQ(method.phases[1].seconds, 1.75);
    EXPECT_EQ(method.phases[1].max_seconds, 1.0);
  }
}

// All series are there before anything happens.
TEST(Metrics, ShowsQueuesByClassAndWhyCallsWereNotAdmitted) {
  const auto state = MakeState();
  const std::string before = MetricsText(*state);
  for (const char* reason : {"queue_full", "bytes_full", "too_large", "deadline_infeasible",
                             "draining", "no_device", "unauthorized", "expired"}) {
    EXPECT_THAT(before,
                HasSubstr(StrCat("tenon_admission_rejections_total{reason=\"", reason, "\"} 0\n")));
  }
  for (const char* line :
       {"tenon_queue_depth{class=\"interactive\"} 0", "tenon_queue_depth{class=\"default\"} 0",
        "tenon_queue_depth{class=\"bulk\"} 0", "tenon_queue_bytes{class=\"bulk\"} 0",
        "tenon_queue_wait_seconds_count{class=\"interactive\"} 0"}) {
    EXPECT_THAT(before, HasSubstr(std::string(line) + "\n"));
  }
  const std::vector<absl::Status> refusals = {
      Error(Reason::kOverloaded, "").Meta("queued_requests", 3),
      Error(Reason::kOverloaded, "").Meta("free_bytes", 3), Error(Reason::kExceedsServerLimit, ""),
      Error(Reason::kDeadlineInfeasible, ""), Error(Reason::kDraining, ""),
      Error(Reason::kNoDevice, ""), Error(Reason::kPermissionDenied, ""),
      Error(Reason::kDeadline, "").Meta("queue_seconds", 3),
      // Those that were admitted, and wrong ones, are none.
      Error(Reason::kDeadline, "while it ran"), Error(Reason::kBadPath, ""), absl::OkStatus()};
  for (const absl::Status& status : refusals) {
    state->metrics.CallBegan(Method::kMeasure);
    state->metrics.CallEnded(Method::kMeasure, status, 1);
  }
  state->metrics.ObserveQueueWait(Priority::kBulk, 2.5);
  EXPECT_EQ(state->metrics.Waits(Priority::kBulk).admitted, 1);
  EXPECT_EQ(state->metrics.Waits(Priority::kBulk).seconds, 2.5);
  EXPECT_EQ(state->metrics.Waits(Priority::kDefault).admitted, 0);
  const auto held = state->budget.Reserve(state->budget.limit_bytes());
  ASSERT_TRUE(held.ok());
  MemoryBudget::Request request{.ticket = NewTicket(), .priority = Priority::kBulk, .bytes = 77};
  request.granted = [](Reservation) {};
  ASSERT_TRUE(state->budget.ReserveInTurn(request).ok());
  const std::string after = MetricsText(*state);
  for (const char* reason : {"queue_full", "bytes_full", "too_large", "deadline_infeasible",
                             "draining", "no_device", "unauthorized", "expired"}) {
    EXPECT_THAT(after,
                HasSubstr(StrCat("tenon_admission_rejections_total{reason=\"", reason, "\"} 1\n")));
  }
  for (const char* line :
       {"tenon_queue_depth{class=\"bulk\"} 1", "tenon_queue_bytes{class=\"bulk\"} 77",
        "tenon_queue_depth{class=\"default\"} 0",
        "tenon_queue_wait_seconds_sum{class=\"bulk\"} 2.5"}) {
    EXPECT_THAT(after, HasSubstr(std::string(line) + "\n"));
  }
  EXPECT_TRUE(state->budget.Leave(request.ticket));
}

TEST(Metrics, ShowsWorkAndMemory) {
  const auto state = MakeState();
  state->metrics.AddPayloadBytes(Method::kContract, Direction::kReceived, 10);
  state->metrics.AddPayloadBytes(Method::kMeasure, Direction::kSent, 20);
  state->metrics.AddProjections(5, 2);
  state->metrics.ObserveCancellation(0.02);
  const auto reservation = state->budget.Reserve(4096);
  ASSERT_TRUE(reservation.ok());
  const std::string text = MetricsText(*state);
  for (const char* line :
       {"tenon_received_bytes_total{method=\"tenon.v1.ContractionService/Contract\"} 10",
        "tenon_sent_bytes_total{method=\"tenon.v1.MeasurementService/Measure\"} 20",
        "tenon_projections_total{outcome=\"scored\"} 5",
        "tenon_projections_total{outcome=\"failed\"} 2", "tenon_memory_reserved_bytes 4096",
        "tenon_cancel_latency_seconds_count 1", "tenon_cancel_latency_seconds_sum 0.02",
        "tenon_memory_budget_bytes 1073741824", "tenon_server_state{state=\"starting\"} 1",
        "tenon_stuck_workers 0", "tenon_shutdown_drain_seconds 0"}) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
}

TEST(Metrics, CountsWorkByProvider) {
  const auto state = MakeState();
  Metrics& metrics = state->metrics;
  metrics.AddGroup("cpu", SliceOutcome::kOk, 8, 0.5);
  metrics.AddGroup("cpu", SliceOutcome::kOk, 4, 0.25);
  metrics.AddGroup("cpu", SliceOutcome::kCancelled, 2, 0.1);
  metrics.AddGroup("cuda:0", SliceOutcome::kFailed, 3, 0.1);
  metrics.AddGroup("cuda:0", SliceOutcome::kRetried, 5, 0.1);
  metrics.AddFault("cuda:0", FaultKind::kSticky);
  metrics.AddFault("cuda:0", FaultKind::kOutOfMemory);
  metrics.AddWork("cpu", {.busy_seconds = 1.5, .real_flops = 16, .dtype = DType::kFloat32});
  metrics.AddWork("cpu", {.busy_seconds = 0.5,
                          .real_flops = 16,
                          .dtype = DType::kComplex128,
                          .to_device_bytes = 7,
                          .from_device_bytes = 9,
                          .resources_built = 2,
                          .resources_reused = 3});

  auto families = testing::ParsePrometheus(MetricsText(*state));
  auto& slices = families["tenon_slices_total"].series;
  EXPECT_EQ(slices["outcome=\"ok\",provider=\"cpu\""], 12);
  EXPECT_EQ(slices["outcome=\"cancelled\",provider=\"cpu\""], 2);
  EXPECT_EQ(slices["outcome=\"failed\",provider=\"cuda:0\""], 3);
  EXPECT_EQ(slices["outcome=\"retried\",provider=\"cuda:0\""], 5);
  EXPECT_EQ(families["tenon_slice_group_seconds"].series["_sum provider=\"cpu\""], 0.75);
  EXPECT_EQ(families["tenon_slice_group_seconds"].series["_count provider=\"cuda:0\""], 0);
  EXPECT_EQ(families["tenon_flops_total"].series["dtype=\"complex128\",provider=\"cpu\""], 16);
  EXPECT_EQ(families["tenon_provider_busy_seconds_total"].series["provider=\"cpu\""], 2);
  EXPECT_EQ(families["tenon_provider_faults_total"].series["kind=\"sticky\",provider=\"cuda:0\""],
            1);

  const std::vector<ProviderStatistics> all = metrics.Providers();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].provider, "cpu");
  EXPECT_EQ(all[0].groups, 2);
  EXPECT_EQ(all[0].failed_groups, 0);
  EXPECT_EQ(all[0].multiply_adds, 8 + 2);
  EXPECT_EQ(all[0].busy_seconds, 2);
  EXPECT_EQ(all[0].to_device_bytes, 7);
  EXPECT_EQ(all[0].from_device_bytes, 9);
  EXPECT_EQ(all[0].resources_built, 2);
  EXPECT_EQ(all[0].resources_reused, 3);
  EXPECT_EQ(all[1].failed_groups, 2);
  EXPECT_EQ(all[1].faults, 2);
}

TEST(Metrics, ErrorsOfRequestsAreNoFaultsOfProviders) {
  EXPECT_EQ(FaultKindOf(Error(Reason::kDeviceMemory, "")), FaultKind::kOutOfMemory);
  EXPECT_EQ(FaultKindOf(Error(Reason::kDeviceFault, "")), FaultKind::kSticky);
  EXPECT_EQ(FaultKindOf(Error(Reason::kInternal, "")), FaultKind::kOther);
  for (const Reason reason : {Reason::kClientCancelled, Reason::kDeadline, Reason::kNotFinite,
                              Reason::kUnsupportedByProvider, Reason::kExceedsMemoryBudget}) {
    EXPECT_EQ(FaultKindOf(Error(reason, "")), std::nullopt) << ReasonName(reason);
  }
  EXPECT_EQ(SliceOutcomeOf(absl::OkStatus()), SliceOutcome::kOk);
  EXPECT_EQ(SliceOutcomeOf(Error(Reason::kDeadline, "")), SliceOutcome::kCancelled);
  EXPECT_EQ(SliceOutcomeOf(Error(Reason::kClientCancelled, "")), SliceOutcome::kCancelled);
  EXPECT_EQ(SliceOutcomeOf(Error(Reason::kDeviceFault, "")), SliceOutcome::kFailed);
}

}  // namespace
}  // namespace tenon::server
