// Groups that a provider fails and another does: who is asked, how often, and that no bit changes.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "backends/schedule/contraction_job.h"
#include "backends/schedule/program_cache.h"
#include "tests/backends/schedule/fake_lanes.h"
#include "tests/support/status_matchers.h"

namespace tenon::schedule {
namespace {

using fake_lanes::Buffers;
using fake_lanes::FakeLane;
using fake_lanes::kSlices;
using fake_lanes::SlicedSum;
using tenon::testing::Fails;
using tenon::testing::FakeProvider;
using Entry = FakeProvider::Entry;

const Error kDead(Reason::kDeviceFault, "the device fell off the bus");
const Error kFull(Reason::kDeviceMemory, "the device is full");
const Error kHiccup(Reason::kInternal, "the launch timed out");

class RetryTest : public ::testing::Test {
 protected:
  // Two lanes with a worker each: four groups may be on the way.
  absl::Status Run(ContractionRequest request = SlicedSum(1, 2)) {
    a_.Make();
    b_.Make();
    return RunOn({a_.provider, b_.provider}, request);
  }
  absl::Status RunOn(const std::vector<std::shared_ptr<plugin::Provider>>& providers,
                     const ContractionRequest& request) {
    TENON_ASSIGN_OR_RETURN(job_, ContractionJob::Prepare(request, providers, &cancel_));
    TENON_RETURN_IF_ERROR(job_->Start({buffers_.left.data(), buffers_.right.data()}));
    return job_->RunSet({}, buffers_.result.data(), nullptr);
  }
  // What one healthy provider gives.
  static std::vector<double> Expected() {
    FakeLane lane("healthy");
    Buffers buffers(1);
    const CancelToken cancel;
    auto job = ContractionJob::Prepare(SlicedSum(1, 1), {lane.Make()}, &cancel);
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE((*job)->Start({buffers.left.data(), buffers.right.data()}).ok());
    EXPECT_TRUE((*job)->RunSet({}, buffers.result.data(), nullptr).ok());
    return buffers.result;
  }
  ContractionReport::PerProvider ReportOf(int lane) {
    return job_->Report().providers[static_cast<size_t>(lane)];
  }
  // The first two groups are a's and b's first. Has b wait in its first for a's fault; and once b
  // has done both, so that the fault is noted and a group finished after it, for a's second try.
  void WaitForTheSecondTryOfA() {
    b_.fake.slice_value = [this](int64_t block, int64_t slice, int64_t element) {
      const bool noted = done_by_b_.contains(0) && done_by_b_.contains(1);
      while (a_.group_calls() < (noted ? 2 : 1)) std::this_thread::yield();
      if (element == fake_lanes::kElements - 1) done_by_b_.insert(slice);
      return fake_lanes::OrderedValue(block, slice, element);
    };
  }
  void ExpectNothingLeft() {
    job_.reset();
    EXPECT_EQ(a_.fake.live(), (FakeProvider::Live{1, 0, 0}));
    EXPECT_EQ(b_.fake.live(), (FakeProvider::Live{1, 0, 0}));
  }

  FakeLane a_{"a"}, b_{"b"};
  CancelToken cancel_;
  Buffers buffers_{1};
  std::unique_ptr<ContractionJob> job_;
  std::set<int64_t> done_by_b_;  // slices; by its only worker
};

TEST_F(RetryTest, ADeviceThatDiesOnTheNthGroupIsReplacedWithTheSameBits) {
  const std::vector<double> expected = Expected();
  for (const int n : {1, 2, 3}) {
    FakeLane dying("dying"), healthy("healthy");
    dying.fake.FailFrom(Entry::kRunGroup, n, kDead);
    healthy.HoldGroup(1, [&dying, n] { return dying.group_calls() >= n; });
    dying.Make();
    healthy.Make();
    const absl::Status status = RunOn({dying.provider, healthy.provider}, SlicedSum(1, 2));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(buffers_.result, expected) << n;
    EXPECT_EQ(dying.group_calls(), n);  // none after its death
    const ContractionReport report = job_->Report();
    EXPECT_EQ(report.groups_done, kSlices);
    EXPECT_EQ(report.slices_done, kSlices);
    EXPECT_EQ(report.providers[0].groups, n - 1);
    EXPECT_EQ(report.providers[0].groups_failed, 1);
    EXPECT_EQ(report.providers[0].groups_taken_over, 0);
    EXPECT_EQ(report.providers[1].groups, kSlices - n + 1);
    EXPECT_EQ(report.providers[1].groups_failed, 0);
    EXPECT_EQ(report.providers[1].groups_taken_over, 1);
    ASSERT_EQ(report.moves.size(), 1u);
    EXPECT_EQ(report.moves[0].from, "dying");
    EXPECT_EQ(report.moves[0].to, "healthy");
    EXPECT_TRUE(Fails(report.moves[0].fault, Reason::kDeviceFault));
    job_.reset();
    EXPECT_EQ(dying.fake.live(), (FakeProvider::Live{1, 0, 0}));
  }
}

TEST_F(RetryTest, SeveralWorkersAndThreeLanes) {
  const std::vector<double> expected = Expected();
  FakeLane c("c");
  a_.fake.FailFrom(Entry::kRunGroup, 2, kDead);
  b_.fake.FailFrom(Entry::kRunGroup, 3, kDead);
  a_.Make();
  b_.Make();
  c.Make();
  ASSERT_TRUE(RunOn({a_.provider, b_.provider, c.provider}, SlicedSum(1, 9)).ok());
  EXPECT_EQ(buffers_.result, expected);
  EXPECT_EQ(job_->Report().groups_done, kSlices);
  ExpectNothingLeft();
}

TEST_F(RetryTest, AFailedProviderIsRefusedToEverybody) {
  a_.fake.FailFrom(Entry::kRunGroup, 1, kDead);
  b_.HoldGroup(1, [this] { return a_.group_calls() >= 1; });
  ASSERT_TRUE(Run().ok());
  const int compiled = a_.fake.calls(Entry::kCompile);
  const auto next = ContractionJob::Prepare(SlicedSum(1, 2), {a_.provider}, &cancel_);
  EXPECT_TRUE(Fails(next, Reason::kDeviceFault));
  EXPECT_EQ(next.status().message(), "provider 'a' has failed: the device fell off the bus");
  EXPECT_EQ(a_.fake.calls(Entry::kCompile), compiled);  // not asked again
  EXPECT_TRUE(ContractionJob::Prepare(SlicedSum(1, 2), {b_.provider}, &cancel_).ok());
}

// A job that was prepared before the provider failed.
TEST_F(RetryTest, AProviderThatFailsBeforeTheJobBeginsTakesNoPart) {
  const std::vector<double> expected = Expected();
  a_.fake.FailFrom(Entry::kBegin, 1, kDead);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(buffers_.result, expected);
  EXPECT_EQ(a_.group_calls(), 0);
  EXPECT_EQ(ReportOf(1).groups, kSlices);
  ExpectNothingLeft();
}

TEST_F(RetryTest, AProviderThatCanNotBindTakesNoPart) {
  const std::vector<double> expected = Expected();
  b_.fake.FailFrom(Entry::kBindSet, 1, kFull);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(buffers_.result, expected);
  EXPECT_EQ(b_.group_calls(), 0);
  EXPECT_EQ(ReportOf(0).groups, kSlices);
}

// Once it is out of memory, it waits for another's group, is tried once more, and no third time.
TEST_F(RetryTest, AFullDeviceIsTriedOnceMore) {
  const std::vector<double> expected = Expected();
  a_.fake.FailFrom(Entry::kRunGroup, 1, kFull);
  WaitForTheSecondTryOfA();
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(buffers_.result, expected);
  EXPECT_EQ(a_.group_calls(), 2);
  EXPECT_EQ(ReportOf(0).groups_failed, 2);
  EXPECT_EQ(ReportOf(1).groups_taken_over, 2);
  EXPECT_TRUE(a_.provider->health().Check().ok());  // for other jobs it stays in use
  EXPECT_EQ(a_.provider->health().faults(plugin::Fault::kOutOfMemory), 2);
}

TEST_F(RetryTest, AHiccupCostsAGroupAndNotTheLane) {
  const std::vector<double> expected = Expected();
  a_.fake.FailNth(Entry::kRunGroup, 1, kHiccup);
  WaitForTheSecondTryOfA();
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(buffers_.result, expected);
  EXPECT_GE(ReportOf(0).groups, 1);  // it was tried again, and did it
  EXPECT_EQ(ReportOf(0).groups_failed, 1);
  EXPECT_EQ(ReportOf(1).groups_taken_over, 1);
}

TEST_F(RetryTest, WhenAllAreFullTheCallerIsToldWhenToRetry) {
  a_.fake.FailNth(Entry::kRunGroup, 0, kFull);
  b_.fake.FailNth(Entry::kRunGroup, 0, kFull);
  const absl::Status status = Run();
  EXPECT_TRUE(Fails(status, Reason::kDeviceMemory));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetails(status).metadata.count("retry_delay_seconds"), 1u);
  EXPECT_LE(a_.group_calls() + b_.group_calls(), 4);
  ExpectNothingLeft();
}

TEST_F(RetryTest, WhenAllAreDeadTheFirstFaultIsTold) {
  a_.fake.FailNth(Entry::kRunGroup, 0, Error(Reason::kDeviceFault, "a died"));
  b_.fake.FailNth(Entry::kRunGroup, 0, Error(Reason::kDeviceFault, "b died"));
  const absl::Status status = Run();
  EXPECT_TRUE(Fails(status, Reason::kDeviceFault));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const std::string provider = GetErrorDetails(status).metadata.at("provider");
  EXPECT_EQ(std::string(status.message()), provider + " died");
  EXPECT_FALSE(a_.provider->health().Check().ok());
  EXPECT_FALSE(b_.provider->health().Check().ok());
  ExpectNothingLeft();
}

TEST_F(RetryTest, WithOneProviderNothingIsRetried) {
  for (const Error& error : {kFull, kHiccup, kDead}) {
    a_.fake.FailNth(Entry::kRunGroup, 1, error);
    a_.Make();
    const int before = a_.group_calls();
    const absl::Status status = RunOn({a_.provider}, SlicedSum(1, 1));
    EXPECT_EQ(status.code(), absl::Status(error).code());
    EXPECT_EQ(a_.group_calls(), before + 1);
  }
}

// Errors that say nothing of the device end the job, whoever else is there.
TEST_F(RetryTest, TheRequestsOwnErrorsAreNotRetried) {
  a_.fake.FailNth(Entry::kRunGroup, 0, Error(Reason::kNotFinite, "NaN"));
  b_.HoldGroup(1, [this] { return a_.group_calls() >= 1; });
  EXPECT_TRUE(Fails(Run(), Reason::kNotFinite));
  EXPECT_EQ(a_.group_calls(), 1);
  EXPECT_TRUE(a_.provider->health().Check().ok());
  ExpectNothingLeft();
}

TEST_F(RetryTest, CancelReachesAStalledLaneWhileTheOtherWorks) {
  a_.fake.StallNth(Entry::kRunGroup, 1);
  b_.HoldGroup(1, [this] { return a_.group_calls() >= 1; });
  std::thread canceller([this] {
    a_.fake.WaitUntilStalled();
    cancel_.Cancel(Reason::kSlowReader);
  });
  EXPECT_TRUE(Fails(Run(), Reason::kSlowReader));
  canceller.join();
  EXPECT_TRUE(job_->Report().moves.empty());
  ExpectNothingLeft();
}

// A lane that is held up leaves the groups to the other, as far as buffers go.
TEST_F(RetryTest, TheFastLaneTakesMore) {
  b_.HoldGroup(1, [this] { return a_.fake.groups().size() >= 3; });
  a_.HoldGroup(1, [this] { return b_.group_calls() >= 1; });
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(buffers_.result, Expected());
  EXPECT_GE(ReportOf(0).groups, 3);
  EXPECT_EQ(ReportOf(0).groups + ReportOf(1).groups, kSlices);
}

// Whatever fails when, the job ends: with the same bits, or with a fault that a device reported.
TEST_F(RetryTest, AnyFaultsEndInTheSameBitsOrAFault) {
  const std::vector<double> expected = Expected();
  int finished = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::minstd_rand random(seed);
    std::vector<std::unique_ptr<FakeLane>> lanes;
    std::vector<std::shared_ptr<plugin::Provider>> providers;
    for (int lane = 0; lane < 3; ++lane) {
      lanes.push_back(std::make_unique<FakeLane>(std::string(1, static_cast<char>('a' + lane))));
      for (int fault = static_cast<int>(random() % 4); fault > 0; --fault) {
        const auto n = static_cast<int>(1 + random() % 6);
        const Error& error = random() % 4 == 0 ? kDead : random() % 2 == 0 ? kFull : kHiccup;
        lanes.back()->fake.FailNth(Entry::kRunGroup, n, error);
      }
      providers.push_back(lanes.back()->Make());
    }
    const auto threads = static_cast<int>(3 + random() % 7);
    const absl::Status status = RunOn(providers, SlicedSum(1, threads));
    if (status.ok()) {
      ++finished;
      EXPECT_EQ(buffers_.result, expected);
    } else {
      EXPECT_NE(plugin::ClassifyFault(status), plugin::Fault::kNone) << status;
    }
    job_.reset();
    for (const auto& lane : lanes) {
      EXPECT_EQ(lane->fake.live(), (FakeProvider::Live{1, 0, 0}));
    }
  }
  EXPECT_GT(finished, 100);
}

// The only group of a job without slices is written in place, and moves all the same.
TEST_F(RetryTest, TheOnlyGroupMovesToo) {
  ContractionRequest request = SlicedSum(1, 2);
  request.sliced.clear();
  a_.fake.FailNth(Entry::kRunGroup, 1, kHiccup);
  ASSERT_TRUE(Run(request).ok());
  EXPECT_EQ(a_.group_calls(), 1);
  EXPECT_EQ(b_.group_calls(), 1);
  EXPECT_EQ(ReportOf(0).groups_failed, 1);
  EXPECT_EQ(ReportOf(1).groups_taken_over, 1);
  ASSERT_EQ(job_->Report().moves.size(), 1u);
  EXPECT_EQ(buffers_.result[0], fake_lanes::OrderedValue(0, 0, 0));
}

}  // namespace
}  // namespace tenon::schedule
