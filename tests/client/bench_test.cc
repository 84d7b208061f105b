// The parts of `tenon bench` without a server: percentiles, arrivals, windows, targets, reports.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "backends/core/error.h"
#include "client/cpp/tool/bench_histogram.h"
#include "client/cpp/tool/bench_load.h"
#include "client/cpp/tool/bench_report.h"
#include "client/cpp/tool/bench_work.h"

namespace tenon::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr double kResolution = 1.0 / 128;

// The nearest rank in sorted values: what a percentile is by definition.
int64_t SortedPercentile(std::vector<int64_t> values, double percent) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

TEST(LatencyHistogramTest, AgreesWithSortedValues) {
  std::mt19937_64 random(5);
  for (const double spread : {1.0, 3.0, 9.0}) {
    LatencyHistogram histogram;
    std::vector<int64_t> values;
    std::lognormal_distribution<double> latencies(10, spread);
    for (int i = 0; i < 5001; ++i) {
      values.push_back(static_cast<int64_t>(std::min(latencies(random), 9e18)));
      histogram.Record(values.back());
    }
    EXPECT_EQ(histogram.count(), 5001);
    EXPECT_EQ(histogram.max(), *std::max_element(values.begin(), values.end()));
    for (const double percent : {0.0, 1.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0}) {
      const auto exact = static_cast<double>(SortedPercentile(values, percent));
      const auto told = static_cast<double>(histogram.Percentile(percent));
      EXPECT_GE(told, exact) << percent;
      EXPECT_LE(told, exact * (1 + kResolution)) << percent;
    }
  }
}

TEST(LatencyHistogramTest, SmallValuesAreExact) {
  LatencyHistogram histogram;
  for (int64_t value = 255; value >= 1; --value) histogram.Record(value);
  EXPECT_EQ(histogram.Percentile(50), 128);
  EXPECT_EQ(histogram.Percentile(100), 255);
  EXPECT_DOUBLE_EQ(histogram.Mean(), 128);
}

TEST(LatencyHistogramTest, BorderCases) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Percentile(99), 0);
  EXPECT_EQ(histogram.Mean(), 0);
  histogram.Record(-5);
  EXPECT_EQ(histogram.Percentile(50), 0);
  const int64_t largest = std::numeric_limits<int64_t>::max();
  histogram.Record(largest);
  EXPECT_EQ(histogram.Percentile(100), largest);
  EXPECT_EQ(histogram.count(), 2);
}

TEST(LatencyHistogramTest, MergedHistogramsAreOne) {
  LatencyHistogram one, two, all;
  for (int64_t i = 0; i < 1000; ++i) {
    (i % 3 == 0 ? one : two).Record(i * i * 1000);
    all.Record(i * i * 1000);
  }
  one.Merge(two);
  EXPECT_EQ(one.count(), all.count());
  EXPECT_EQ(one.max(), all.max());
  EXPECT_DOUBLE_EQ(one.Mean(), all.Mean());
  for (const double percent : {10.0, 50.0, 99.0}) {
    EXPECT_EQ(one.Percentile(percent), all.Percentile(percent));
  }
}

// Time that passes only when somebody sleeps or works.
class FakeClock final : public BenchClock {
 public:
  BenchTime Now() override { return now_; }
  void SleepUntil(BenchTime time) override { now_ = std::max(now_, time); }
  void Pass(BenchDuration time) { now_ += time; }

 private:
  BenchTime now_{std::chrono::hours(5)};
};

// Every request takes as long as the list says, then the last entry again and again.
class ScriptedWork final : public BenchWork {
 public:
  ScriptedWork(FakeClock* clock, std::vector<int> milliseconds)
      : clock_(clock), milliseconds_(std::move(milliseconds)) {}
  BenchOutcome Run(int64_t number) override {
    numbers_.push_back(number);
    started_.push_back(clock_->Now());
    const size_t i = std::min(numbers_.size(), milliseconds_.size()) - 1;
    clock_->Pass(std::chrono::milliseconds(milliseconds_[i]));
    return {status_, 0, 10};
  }
  const std::vector<int64_t>& numbers() const { return numbers_; }
  const std::vector<BenchTime>& started() const { return started_; }
  void set_status(absl::Status status) { status_ = std::move(status); }

 private:
  FakeClock* const clock_;
  const std::vector<int> milliseconds_;
  std::vector<int64_t> numbers_;
  std::vector<BenchTime> started_;
  absl::Status status_;
};

BenchTime After(BenchTime start, int milliseconds) {
  return start + std::chrono::milliseconds(milliseconds);
}

TEST(OpenLoopTest, LatencyCountsFromTheIntendedTime) {
  FakeClock clock;
  const BenchTime start = clock.Now();
  LoadOptions options;
  options.rate = 100;  // one every 10 ms
  options.requests = 6;
  Arrivals arrivals(options, start, std::nullopt);
  // The first one stalls for 35 ms; those due at 10, 20 and 30 ms wait for it, and for each other.
  ScriptedWork work(&clock, {35, 1});
  Recorder recorder(start, 1, 1);
  RunWorker(&clock, &arrivals, &work, &recorder);
  const std::vector<BenchTime> expected = {
      start,           After(start, 35), After(start, 36), After(start, 37), After(start, 40),
      After(start, 50)};
  EXPECT_EQ(work.started(), expected);
  // From 0: 35; from 10 to 36: 26; from 20 to 37: 17; from 30 to 38: 8; then 1 and 1.
  const LatencyHistogram latency = recorder.Total().All();
  EXPECT_EQ(latency.count(), 6);
  EXPECT_EQ(latency.max(), 35'000'000);
  EXPECT_DOUBLE_EQ(latency.Mean(), (35 + 26 + 17 + 8 + 1 + 1) * 1e6 / 6);
}

TEST(OpenLoopTest, WhatWasDueAndNeverSentIsCounted) {
  FakeClock clock;
  const BenchTime start = clock.Now(), end = After(start, 100);
  LoadOptions options;
  options.rate = 100;
  Arrivals arrivals(options, start, end);
  ScriptedWork work(&clock, {70});  // two of them: until 140 ms
  Recorder recorder(start, 1, 1);
  RunWorker(&clock, &arrivals, &work, &recorder);
  EXPECT_EQ(work.numbers(), (std::vector<int64_t>{0, 1}));
  const std::vector<BenchTime> unsent = arrivals.TakeUnsent();
  ASSERT_EQ(unsent.size(), 8u);
  EXPECT_EQ(unsent.front(), After(start, 20));
  EXPECT_EQ(unsent.back(), After(start, 90));
}

TEST(OpenLoopTest, WhatIsDueBeforeTheEndIsSentLate) {
  FakeClock clock;
  const BenchTime start = clock.Now();
  LoadOptions options;
  options.rate = 100;
  Arrivals arrivals(options, start, After(start, 30), std::chrono::milliseconds(5));
  ScriptedWork work(&clock, {1, 22, 1});  // the third is due at 20 ms and begins at 32
  Recorder recorder(start, 1, 1);
  RunWorker(&clock, &arrivals, &work, &recorder);
  EXPECT_EQ(work.started(), (std::vector<BenchTime>{start, After(start, 10), After(start, 32)}));
  EXPECT_EQ(recorder.Total().All().max(), 22'000'000);
  EXPECT_TRUE(arrivals.TakeUnsent().empty());
}

TEST(OpenLoopTest, AnEndThatIsLearntLaterHoldsForWhatWasDue) {
  const BenchTime start{};
  LoadOptions options;
  options.rate = 100;
  Arrivals arrivals(options, start, std::nullopt, std::chrono::milliseconds(5));
  ASSERT_TRUE(arrivals.Next(start).has_value());
  arrivals.EndAt(After(start, 35));
  ASSERT_TRUE(arrivals.Next(After(start, 39)).has_value());
  EXPECT_FALSE(arrivals.Next(After(start, 40)).has_value());
  EXPECT_EQ(arrivals.TakeUnsent(), (std::vector<BenchTime>{After(start, 20), After(start, 30)}));
}

// The gap that leads beyond the end is not drawn again: another one might end before it.
TEST(OpenLoopTest, PoissonArrivalsThatAreAllSentLeaveNoneUnsent) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FakeClock clock;
    const BenchTime start = clock.Now();
    LoadOptions options;
    options.rate = 20;
    options.poisson = true;
    options.seed = seed;
    Arrivals arrivals(options, start, After(start, 2000), std::chrono::seconds(2));
    ScriptedWork work(&clock, {1});
    Recorder recorder(start, 1, 1);
    RunWorker(&clock, &arrivals, &work, &recorder);
    EXPECT_FALSE(arrivals.Next(clock.Now()).has_value());
    EXPECT_TRUE(arrivals.TakeUnsent().empty()) << seed;
  }
}

TEST(OpenLoopTest, PoissonGapsRepeatAndHaveTheRate) {
  LoadOptions options;
  options.rate = 1000;
  options.poisson = true;
  options.requests = 20000;
  const BenchTime start{};
  std::vector<BenchTime> first, second;
  for (auto* times : {&first, &second}) {
    Arrivals arrivals(options, start, std::nullopt);
    while (const auto arrival = arrivals.Next(start)) times->push_back(arrival->intended);
  }
  EXPECT_EQ(first, second);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  // The mean of 20000 exponential gaps of 1 ms: within five standard errors.
  const double seconds = std::chrono::duration<double>(first.back() - start).count();
  EXPECT_NEAR(seconds / 20000, 1e-3, 5e-3 / std::sqrt(20000.0));
  options.seed = 2;
  Arrivals other(options, start, std::nullopt);
  EXPECT_NE(other.Next(start)->intended, first[0]);
}

TEST(ClosedLoopTest, AsksAgainWhenTheAnswerIsThere) {
  FakeClock clock;
  const BenchTime start = clock.Now();
  Arrivals arrivals(LoadOptions(), start, After(start, 100));
  ScriptedWork work(&clock, {30});
  Recorder recorder(start, 0.05, 1);
  RunWorker(&clock, &arrivals, &work, &recorder);
  EXPECT_EQ(work.started(),
            (std::vector<BenchTime>{start, After(start, 30), After(start, 60), After(start, 90)}));
  // By the time of the answer: at 30 ms; at 60 and 90; and at 120.
  EXPECT_EQ(recorder.windows(), 3u);
  EXPECT_EQ(recorder.At(0).succeeded(), 1);
  EXPECT_EQ(recorder.At(1).succeeded(), 2);
  EXPECT_EQ(recorder.At(2).succeeded(), 1);
  EXPECT_EQ(recorder.At(7).succeeded(), 0);
  EXPECT_EQ(recorder.Total().bytes, 40);
  EXPECT_EQ(recorder.last_done(), After(start, 120));
}

TEST(ClosedLoopTest, ErrorsAreCountedByReasonAndNotTimed) {
  FakeClock clock;
  LoadOptions options;
  options.requests = 3;
  Arrivals arrivals(options, clock.Now(), std::nullopt);
  ScriptedWork work(&clock, {1});
  work.set_status(absl::UnavailableError("gone"));
  Recorder recorder(clock.Now(), 1, 1);
  RunWorker(&clock, &arrivals, &work, &recorder);
  const Window total = recorder.Total();
  EXPECT_EQ(total.succeeded(), 0);
  EXPECT_EQ(total.failed(), 3);
  EXPECT_THAT(total.errors, ElementsAre(Pair("UNAVAILABLE", 3)));
  EXPECT_EQ(recorder.first_error().message(), "gone");
}

TEST(ClosedLoopTest, AnInterruptEndsIt) {
  FakeClock clock;
  Arrivals arrivals(LoadOptions(), clock.Now(), std::nullopt);
  ScriptedWork work(&clock, {1});
  work.set_status(absl::CancelledError(""));
  Recorder recorder(clock.Now(), 1, 1);
  RunWorker(&clock, &arrivals, &work, &recorder);
  EXPECT_EQ(work.numbers().size(), 1u);
}

TEST(StabilityTest, ThreeWindowsMustAgree) {
  const WindowFigures good{100, 0.02, 0.01, 0};
  std::vector<WindowFigures> windows = {good, good};
  EXPECT_FALSE(IsStable(windows, 0.1));
  windows.push_back(good);
  EXPECT_TRUE(IsStable(windows, 0.1));
  windows.push_back({115, 0.02, 0.01, 0});  // 9.5 % above the mean of 105
  EXPECT_TRUE(IsStable(windows, 0.1));
  windows.back() = {118, 0.02, 0.01, 0};  // 11.3 %
  EXPECT_FALSE(IsStable(windows, 0.1));
  windows.back() = {100, 0.02, 0.012, 0};  // the latency: 12.5 %
  EXPECT_FALSE(IsStable(windows, 0.1));
  // Only the last three count.
  windows = {{1, 1, 1, 0}, good, good, good};
  EXPECT_TRUE(IsStable(windows, 0.1));
  windows.back() = {0, 0, 0, 5};  // no answers at all
  EXPECT_FALSE(IsStable(windows, 10));
}

TEST(TargetTest, FailedAndUnsentRequestsCountAsNeverAnswered) {
  LoadResult load;
  load.total.latency.resize(1);
  for (int i = 0; i < 985; ++i) load.total.latency[0].Record(1'000'000);
  for (int i = 0; i < 15; ++i) load.total.latency[0].Record(50'000'000);
  EXPECT_FALSE(MeetsTarget(load, 0.010));  // the 990th is slow
  EXPECT_TRUE(MeetsTarget(load, 0.051));
  load.total.errors["OVERLOADED"] = 5;
  EXPECT_TRUE(MeetsTarget(load, 0.051));  // 995 of 1005
  for (int i = 0; i < 6; ++i) load.unsent.Record(1);
  EXPECT_FALSE(MeetsTarget(load, 0.051));  // 1000 of 1011 are fewer than 99 %
  load.total.errors.clear();
  EXPECT_TRUE(MeetsTarget(load, 0.051));
  EXPECT_FALSE(MeetsTarget(LoadResult(), 1));
}

TEST(MixTest, ParsesKindsAndWeights) {
  EXPECT_EQ(*ParseBenchMix("contract"), (BenchMix{{"contract", 1}}));
  EXPECT_EQ(*ParseBenchMix("contract=9,measure=1,upload"),
            (BenchMix{{"contract", 9}, {"measure", 1}, {"upload", 1}}));
  for (const char* bad : {"", "sing", "contract=0", "contract=1001", "contract=x",
                          "contract,contract=2", "contract=2,"}) {
    EXPECT_EQ(GetErrorDetails(ParseBenchMix(bad).status()).reason, Reason::kBadParameter) << bad;
  }
}

TEST(MixTest, EveryRunOfRequestsHasTheShares) {
  const BenchMix mix = {{"contract", 3}, {"measure", 2}};
  for (int64_t begin : {0, 1, 2, 1003}) {
    int64_t measures = 0;
    for (int64_t i = begin; i < begin + 5; ++i) measures += KindOf(mix, i) == 1 ? 1 : 0;
    EXPECT_EQ(measures, 2);
  }
}

v1::GetStatisticsResponse Statistics(const std::string& method, int64_t count, double seconds) {
  v1::GetStatisticsResponse statistics;
  v1::MethodStatistics* entry = statistics.add_methods();
  entry->set_method(method);
  v1::PhaseStatistics* phase = entry->add_phases();
  phase->set_phase("setup");
  phase->set_count(count);
  phase->set_total_seconds(seconds);
  return statistics;
}

TEST(ServerSplitTest, IsTheDifferenceOverAllServers) {
  const std::string contract = "tenon.v1.ContractionService/Contract";
  ServerSplit split;
  AddServerSplit(Statistics(contract, 10, 1.0), Statistics(contract, 30, 2.0), &split);
  AddServerSplit(v1::GetStatisticsResponse(), Statistics(contract, 5, 0.5), &split);
  AddServerSplit(v1::GetStatisticsResponse(), Statistics("tenon.v1.ProviderService", 9, 9), &split);
  AddServerSplit(Statistics(contract, 4, 1), Statistics(contract, 4, 1), &split);
  ASSERT_EQ(split.phases.size(), 1u);
  EXPECT_EQ(split.phases[0].name, "setup");
  EXPECT_EQ(split.phases[0].count, 25);
  EXPECT_DOUBLE_EQ(split.phases[0].seconds, 1.5);
}

BenchReport Report() {
  BenchReport report;
  report.description = "contract ab,bc->ac";
  report.servers = {"127.0.0.1:1"};
  report.mix = {{"contract", 1}};
  report.options.concurrency = 4;
  report.load.seconds = 2;
  report.load.total.latency.resize(1);
  for (int i = 0; i < 98; ++i) report.load.total.latency[0].Record(100);
  report.load.unsent.Record(2'000'000'000);
  report.load.total.errors["OVERLOADED"] = 3;
  report.load.total.bytes = 4000;
  report.load.windows = {{49, 0.1, 0.1, 3}};
  return report;
}

TEST(BenchReportTest, JsonHasTheFigures) {
  BenchReport report = Report();
  Json json = BenchToJson(report);
  EXPECT_EQ(json["load"]["loop"], "closed");
  EXPECT_TRUE(json["load"]["rate"].is_null());
  EXPECT_TRUE(json["stable"].is_null());
  EXPECT_TRUE(json["server"].is_null());
  EXPECT_EQ(json["requests"]["succeeded"], 98);
  EXPECT_EQ(json["requests"]["unsent"], 1);
  EXPECT_EQ(json["requests"]["failed"], 3);
  EXPECT_EQ(json["errors"]["OVERLOADED"], 3);
  EXPECT_DOUBLE_EQ(json["requests_per_second"], 49);
  EXPECT_DOUBLE_EQ(json["bytes_per_second"], 2000);
  EXPECT_DOUBLE_EQ(json["latency_seconds"]["p50"], 1e-7);
  EXPECT_DOUBLE_EQ(json["latency_seconds"]["max"], 2);
  EXPECT_EQ(json["latency_seconds"]["count"], 99);  // with the one that was never sent
  EXPECT_EQ(json["kinds"]["contract"]["count"], 98);
  EXPECT_FALSE(json.contains("target"));

  report.options.rate = 50;
  report.load.stable = false;
  report.split = ServerSplit{{{"setup", 4, 2.0}}};
  report.target_p99_seconds = 0.5;
  report.target_met = false;
  json = BenchToJson(report);
  EXPECT_EQ(json["load"]["arrivals"], "constant");
  EXPECT_EQ(json["stable"], false);
  EXPECT_DOUBLE_EQ(json["server"]["setup"]["mean_seconds"], 0.5);
  EXPECT_EQ(json["target"]["met"], false);
  EXPECT_EQ(Json::parse(json.dump()), json);
}

TEST(BenchReportTest, TextTellsWhatWentWrong) {
  BenchReport report = Report();
  report.load.stable = false;
  report.target_p99_seconds = 0.5;
  report.target_met = false;
  const std::string text = BenchToText(report);
  EXPECT_THAT(text, HasSubstr("NOT stable"));
  EXPECT_THAT(text, HasSubstr("3 OVERLOADED"));
  EXPECT_THAT(text, HasSubstr("1: the rate can't be kept up"));
  EXPECT_THAT(text, HasSubstr("MISSED"));
}

}  // namespace
}  // namespace tenon::tool
