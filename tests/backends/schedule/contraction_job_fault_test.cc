// Jobs on a provider that fails, stalls, or takes too much.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "backends/schedule/contraction_job.h"
#include "tests/support/fake_provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::schedule {
namespace {

using tenon::testing::Fails;
using tenon::testing::FakeProvider;
using Entry = FakeProvider::Entry;

constexpr int64_t kSlices = 12;

class ContractionJobFaultTest : public ::testing::Test {
 protected:
  ContractionJobFaultTest() {
    request_.network.inputs = {{"s", "a"}, {"s"}};
    request_.network.output = {"a"};
    request_.operands = {{DType::kFloat64, {kSlices, 2}}, {DType::kFloat64, {kSlices}}};
    request_.sliced = {"s"};
    request_.threads = 3;
    Replace();
  }

  // A sticky fault ends a provider: the next test of one needs another.
  void Replace() {
    provider_.reset();
    auto provider = plugin::Provider::Create(fake_.api(), fake_.options());
    EXPECT_TRUE(provider.ok()) << provider.status();
    provider_ = *std::move(provider);
    EXPECT_TRUE(provider_->WarmUp().ok());
  }

  absl::Status Prepare() {
    TENON_ASSIGN_OR_RETURN(job_, ContractionJob::Prepare(request_, {provider_}, &cancel_));
    return absl::OkStatus();
  }
  absl::Status RunOnce(const ContractionJob::ProgressFn& progress = nullptr) {
    TENON_RETURN_IF_ERROR(Prepare());
    TENON_RETURN_IF_ERROR(job_->Start({left_.data(), right_.data()}));
    return job_->RunSet({}, result_, progress);
  }
  // Everything was given back once the job is gone.
  void ExpectNothingLeft() {
    job_.reset();
    EXPECT_EQ(fake_.live(), (FakeProvider::Live{1, 0, 0}));
  }

  FakeProvider fake_;
  std::shared_ptr<plugin::Provider> provider_;
  CancelToken cancel_;
  ContractionRequest request_;
  std::vector<double> left_ = std::vector<double>(2 * kSlices),
                      right_ = std::vector<double>(kSlices);
  double result_[2] = {-1, -1};
  std::unique_ptr<ContractionJob> job_;
};

TEST_F(ContractionJobFaultTest, EveryGroupRunsOnce) {
  ASSERT_TRUE(RunOnce().ok());
  for (int64_t element = 0; element < 2; ++element) {
    double expected = 0;
    for (int64_t slice = 0; slice < kSlices; ++slice) {
      expected += FakeProvider::SliceValue(0, slice, element);
    }
    EXPECT_EQ(result_[element], expected);
  }
  std::vector<bool> seen(kSlices, false);
  for (const FakeProvider::Group& group : fake_.groups()) {
    for (int64_t slice = group.first_slice; slice < group.last_slice; ++slice) {
      EXPECT_FALSE(seen[static_cast<size_t>(slice)]);
      seen[static_cast<size_t>(slice)] = true;
    }
  }
  EXPECT_EQ(seen, std::vector<bool>(kSlices, true));
  EXPECT_EQ(fake_.calls(Entry::kBindSet), 1);
  // The fake can't tell when its work is complete.
  EXPECT_EQ(job_->Report().timing_scope, 3);
  EXPECT_LT(job_->Report().execution_seconds, 0);
  EXPECT_FALSE(job_->host_timed());
  ExpectNothingLeft();
}

TEST_F(ContractionJobFaultTest, FailureOfTheNthGroupEndsTheJob) {
  for (const int n : {1, 2, 7, 12}) {
    fake_.FailNth(Entry::kRunGroup, n, Error(Reason::kDeviceFault, "gone"));
    const absl::Status status = RunOnce();
    EXPECT_TRUE(Fails(status, Reason::kDeviceFault)) << n;
    ExpectNothingLeft();
    Replace();
  }
}

TEST_F(ContractionJobFaultTest, FailuresBeforeTheGroups) {
  fake_.FailNth(Entry::kCompile, 1, Error(Reason::kUnsupportedByProvider, "no such step"));
  EXPECT_TRUE(Fails(RunOnce(), Reason::kUnsupportedByProvider));
  ExpectNothingLeft();
  fake_.FailNth(Entry::kBegin, 1, Error(Reason::kDeviceMemory, "full"));
  EXPECT_TRUE(Fails(RunOnce(), Reason::kDeviceMemory));
  ExpectNothingLeft();
  fake_.FailNth(Entry::kBindSet, 1, Error(Reason::kDeviceFault, "gone"));
  EXPECT_TRUE(Fails(RunOnce(), Reason::kDeviceFault));
  ExpectNothingLeft();
}

TEST_F(ContractionJobFaultTest, ProviderThatTakesMoreThanPlannedIsRefused) {
  fake_.extra_bytes = int64_t{1} << 20;
  EXPECT_TRUE(Fails(RunOnce(), Reason::kExceedsMemoryBudget));
  ExpectNothingLeft();
}

TEST_F(ContractionJobFaultTest, LibraryBytesAreInThePlan) {
  fake_.compiled_info.worker_bytes = 1000;
  fake_.compiled_info.shared_bytes = 500;
  ASSERT_TRUE(RunOnce().ok());
  EXPECT_EQ(job_->plan().worker_library, 1000);
  EXPECT_EQ(job_->plan().shared_library, 500);
  EXPECT_GE(job_->plan().Total(), 3 * 1000 + 500);
  EXPECT_LE(job_->Report().measured_peak_bytes, job_->plan().Total() + (1 << 16));
}

TEST_F(ContractionJobFaultTest, CancelReachesARunningGroup) {
  fake_.StallNth(Entry::kRunGroup, 2);
  std::thread canceller([&] {
    fake_.WaitUntilStalled();
    cancel_.Cancel(Reason::kSlowReader);
  });
  EXPECT_TRUE(Fails(RunOnce(), Reason::kSlowReader));  // the token's reason, not the provider's
  canceller.join();
  ExpectNothingLeft();
}

TEST_F(ContractionJobFaultTest, CancelledBeforeItBegins) {
  ASSERT_TRUE(Prepare().ok());
  cancel_.Cancel();
  EXPECT_TRUE(Fails(job_->Start({left_.data(), right_.data()}), Reason::kClientCancelled));
  EXPECT_EQ(fake_.calls(Entry::kBegin), 0);
}

// The flag that providers see knows no deadline: the job looks between groups.
TEST_F(ContractionJobFaultTest, DeadlineIsSeenBetweenGroups) {
  const CancelToken expired{std::chrono::steady_clock::now() - std::chrono::seconds(1)};
  auto job = ContractionJob::Prepare(request_, {provider_}, &expired);
  if (job.ok()) {
    EXPECT_TRUE(Fails((*job)->Start({left_.data(), right_.data()}), Reason::kDeadline));
  } else {
    EXPECT_TRUE(Fails(job, Reason::kDeadline));
  }
}

TEST_F(ContractionJobFaultTest, ProgressCountsUp) {
  // The first group takes long enough for the second to be told.
  fake_.slice_value = [](int64_t, int64_t, int64_t) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return 1.0;
  };
  std::vector<ContractionJob::Progress> seen;
  ASSERT_TRUE(RunOnce([&](const ContractionJob::Progress& now) { seen.push_back(now); }).ok());
  EXPECT_EQ(job_->NothingDone().slices_total, kSlices);
  EXPECT_EQ(job_->NothingDone().slices_done, 0);
  ASSERT_FALSE(seen.empty());
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].slices_total, kSlices);
    EXPECT_GT(seen[i].slices_done, i == 0 ? 0 : seen[i - 1].slices_done);
    EXPECT_LE(seen[i].slices_done, kSlices);
    EXPECT_LE(seen[i].flops_done, seen[i].flops_total);
    EXPECT_GE(seen[i].left_seconds.value_or(-1), 0);
  }
  EXPECT_EQ(result_[0], static_cast<double>(kSlices));
}

TEST_F(ContractionJobFaultTest, PredictedSecondsAreThoseOfAllSlices) {
  fake_.compiled_info.predicted_slice_seconds = 2;
  ASSERT_TRUE(Prepare().ok());
  EXPECT_DOUBLE_EQ(job_->predicted_seconds().value(), 2.0 * kSlices / 3);
  request_.first_group = 0;
  request_.last_group = job_->program().n_groups() / 3;
  request_.threads = 1;
  ASSERT_TRUE(Prepare().ok());
  EXPECT_DOUBLE_EQ(job_->predicted_seconds().value(), 2.0 * kSlices / 3);
  fake_.compiled_info.predicted_slice_seconds = -1;
  ASSERT_TRUE(Prepare().ok());
  EXPECT_FALSE(job_->predicted_seconds().has_value());
}

}  // namespace
}  // namespace tenon::schedule
