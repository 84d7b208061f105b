#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "absl/strings/str_split.h"
#include "server/gauges.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

std::unique_ptr<ServerState> MakeState() {
  return std::make_unique<ServerState>(int64_t{1} << 30, 2, 4, std::chrono::seconds(60));
}

// Every family with its type and the names of its labels: what dashboards rely on.
TEST(Metrics, ExpositionKeepsItsSchema) {
  const std::map<std::string, std::pair<std::string, std::string>> expected = {
      {"tenon_admission_rejections_total", {"counter", "reason"}},
      {"tenon_build_info", {"gauge", "version,commit"}},
      {"tenon_flops_total", {"counter", ""}},
      {"tenon_memory_budget_bytes", {"gauge", ""}},
      {"tenon_memory_reserved_bytes", {"gauge", ""}},
      {"tenon_memory_resource_bytes", {"gauge", ""}},
      {"tenon_memory_stored_bytes", {"gauge", ""}},
      {"tenon_memory_warm_bytes", {"gauge", ""}},
      {"tenon_payload_bytes_total", {"counter", "direction"}},
      {"tenon_phase_seconds", {"histogram", "method,phase"}},
      {"tenon_plan_cache_bytes", {"gauge", ""}},
      {"tenon_plan_cache_entries", {"gauge", ""}},
      {"tenon_plan_cache_evictions_total", {"counter", ""}},
      {"tenon_plan_cache_lookups_total", {"counter", "result"}},
      {"tenon_process_cpu_seconds_total", {"counter", ""}},
      {"tenon_process_open_files", {"gauge", ""}},
      {"tenon_process_resident_bytes", {"gauge", ""}},
      {"tenon_process_start_time_seconds", {"gauge", ""}},
      {"tenon_projections_total", {"counter", "outcome"}},
      {"tenon_provider_cold_seconds", {"gauge", "provider"}},
      {"tenon_provider_state", {"gauge", "provider,state"}},
      {"tenon_queue_bytes", {"gauge", "class"}},
      {"tenon_queue_depth", {"gauge", "class"}},
      {"tenon_queue_wait_seconds", {"histogram", "class"}},
      {"tenon_requests_in_flight", {"gauge", "method"}},
      {"tenon_requests_running", {"gauge", ""}},
      {"tenon_requests_total", {"counter", "method,reason"}},
      {"tenon_scratch_reserved_bytes", {"gauge", ""}},
      {"tenon_server_state", {"gauge", "state"}},
      {"tenon_slices_total", {"counter", ""}},
  };
  const auto state = MakeState();
  state->providers.Set({"cpu", nullptr, Error(Reason::kStarting, "warming up")});
  std::map<std::string, std::pair<std::string, std::string>> seen;
  const std::regex sample(R"(^(\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$)");
  for (const std::string& line : Lines(MetricsText(*state))) {
    if (line.rfind("# TYPE ", 0) == 0) {
      const std::vector<std::string> parts = absl::StrSplit(line, ' ');
      seen[parts[2]].first = parts[3];
    } else if (line[0] != '#') {
      std::smatch match;
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      std::string labels;
      const std::string text = match[3];
      const std::regex label(R"re((\w+)="[^"]*")re");
      for (std::sregex_iterator it(text.begin(), text.end(), label), end; it != end; ++it) {
        if ((*it)[1] == "le") continue;
        labels += (labels.empty() ? "" : ",") + (*it)[1].str();
      }
      ASSERT_EQ(seen.count(match[1]), 1u) << line;
      seen[match[1]].second = labels;
    }
  }
  EXPECT_EQ(seen, expected);
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
  EXPECT_THAT(text, HasSubstr("reason=\"OK\"} 0"));
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
  state->metrics.AddPayloadBytes(Direction::kReceived, 10);
  state->metrics.AddPayloadBytes(Direction::kSent, 20);
  state->metrics.AddSlices(3);
  state->metrics.AddFlops(1000);
  state->metrics.AddProjections(5, 2);
  const auto reservation = state->budget.Reserve(4096);
  ASSERT_TRUE(reservation.ok());
  const std::string text = MetricsText(*state);
  for (const char* line :
       {"tenon_payload_bytes_total{direction=\"received\"} 10",
        "tenon_payload_bytes_total{direction=\"sent\"} 20", "tenon_slices_total 3",
        "tenon_flops_total 1000", "tenon_projections_total{outcome=\"scored\"} 5",
        "tenon_projections_total{outcome=\"failed\"} 2", "tenon_memory_reserved_bytes 4096",
        "tenon_memory_budget_bytes 1073741824", "tenon_server_state{state=\"starting\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
}

}  // namespace
}  // namespace tenon::server
