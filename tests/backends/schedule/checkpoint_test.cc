// Runs that tell their state, and runs that go on from one: the same bits, and no group twice.

#include "backends/schedule/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/core/binary_scale.h"
#include "backends/core/error.h"
#include "backends/schedule/contraction_job.h"
#include "tests/backends/schedule/fake_lanes.h"
#include "tests/support/status_matchers.h"

namespace tenon::schedule {
namespace {

using fake_lanes::Buffers;
using fake_lanes::FakeLane;
using fake_lanes::kSlices;
using fake_lanes::SlicedSum;
using tenon::testing::Fails;

std::vector<std::byte> Copy(std::span<const std::byte> data) { return {data.begin(), data.end()}; }

// Keeps every state of a run.
class Recorder : public Checkpoint {
 public:
  absl::Status BlockDone(int64_t block, int64_t exponent,
                         std::span<const std::byte> data) override {
    now_.blocks.push_back({block, exponent, Copy(data)});
    return Answer();
  }
  absl::Status Combined(const SumState& state) override {
    now_.next_group = state.next_group;
    now_.levels.clear();
    for (const SumState::Level& level : state.levels) {
      now_.levels.push_back({level.level, level.exponent, Copy(level.data)});
    }
    points.push_back(now_);
    return Answer();
  }

  // From this call on (from 1) it fails; 0: never.
  int fail_from = 0;
  int calls = 0;
  std::vector<ResumePoint> points;  // after each combined group

 private:
  absl::Status Answer() {
    if (fail_from == 0 || ++calls < fail_from) return absl::OkStatus();
    return Error(Reason::kStorageFull, "the disk is full");
  }
  ResumePoint now_;
};

struct Outcome {
  absl::Status status;
  std::vector<double> result;
  std::optional<int64_t> exponent;
  ContractionReport report;
  int group_calls = 0;
};

// Runs `request` on a fresh fake provider.
Outcome RunJob(const ContractionRequest& request, int64_t blocks, Checkpoint* checkpoint,
               ResumePoint resume, bool set_checkpoint = true) {
  FakeLane lane("fake");
  lane.fake.SetNormalizes([](int64_t block, int64_t slice) { return 40 * (slice % 5) + block; });
  Buffers buffers(blocks);
  const CancelToken cancel;
  Outcome outcome;
  auto job = ContractionJob::Prepare(request, {lane.Make()}, &cancel);
  outcome.status = job.status();
  if (!job.ok()) return outcome;
  if (set_checkpoint) outcome.status = (*job)->SetCheckpoint(checkpoint, std::move(resume));
  if (!outcome.status.ok()) return outcome;
  EXPECT_TRUE((*job)->Start({buffers.left.data(), buffers.right.data()}).ok());
  outcome.status = (*job)->RunSet({}, buffers.result.data(), nullptr);
  outcome.result = buffers.result;
  outcome.exponent = (*job)->exponent();
  outcome.report = (*job)->Report();
  outcome.group_calls = lane.group_calls();
  return outcome;
}

// Runs it undisturbed, with every state recorded, and from each of them.
void ExpectEveryPointGivesTheSame(const ContractionRequest& request, int64_t blocks, int64_t first,
                                  int64_t last) {
  const Outcome whole = RunJob(request, blocks, nullptr, {}, /*set_checkpoint=*/false);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  Recorder recorder;
  const Outcome recorded = RunJob(request, blocks, &recorder, {});
  ASSERT_TRUE(recorded.status.ok()) << recorded.status;
  EXPECT_EQ(recorded.result, whole.result);
  EXPECT_EQ(recorded.exponent, whole.exponent);
  ASSERT_EQ(recorder.points.size(), static_cast<size_t>(last - first));
  for (const ResumePoint& point : recorder.points) {
    SCOPED_TRACE(point.next_group);
    Recorder rest;
    const Outcome resumed = RunJob(request, blocks, &rest, point);
    ASSERT_TRUE(resumed.status.ok()) << resumed.status;
    EXPECT_EQ(std::memcmp(resumed.result.data(), whole.result.data(),
                          whole.result.size() * sizeof(double)),
              0);
    EXPECT_EQ(resumed.exponent, whole.exponent);
    EXPECT_EQ(resumed.group_calls, last - point.next_group);
    EXPECT_EQ(resumed.report.groups_done, last - point.next_group);
    // It tells what is new, and only that.
    ASSERT_EQ(rest.points.size(), static_cast<size_t>(last - point.next_group));
    if (!rest.points.empty()) {
      EXPECT_EQ(rest.points.front().next_group, point.next_group + 1);
    }
  }
}

TEST(Checkpoint, EveryPointOfOneBlockGivesTheSameBits) {
  for (const int threads : {1, 3}) {
    ExpectEveryPointGivesTheSame(SlicedSum(1, threads), 1, 0, kSlices);
  }
}

TEST(Checkpoint, EveryPointOfSeveralBlocksGivesTheSameBits) {
  ExpectEveryPointGivesTheSame(SlicedSum(3, 3), 3, 0, 3 * kSlices);
}

TEST(Checkpoint, EveryPointOfANormalizedRunGivesTheSameBits) {
  ContractionRequest request = SlicedSum(3, 3);
  request.normalize = true;
  ExpectEveryPointGivesTheSame(request, 3, 0, 3 * kSlices);
}

TEST(Checkpoint, EveryPointOfARangeGivesTheSameBits) {
  ContractionRequest request = SlicedSum(1, 2);
  request.first_group = 8;  // a node of the tree
  request.last_group = 12;
  ExpectEveryPointGivesTheSame(request, 1, 8, 12);
  request = SlicedSum(3, 2);
  request.first_group = kSlices;  // the second and third block
  request.last_group = 3 * kSlices;
  ExpectEveryPointGivesTheSame(request, 3, kSlices, 3 * kSlices);
}

TEST(Checkpoint, TheOnlyGroupIsTold) {
  for (const bool normalize : {false, true}) {
    ContractionRequest request = SlicedSum(1, 2);
    request.sliced.clear();
    request.normalize = normalize;
    ExpectEveryPointGivesTheSame(request, 1, 0, 1);
    Recorder recorder;
    const Outcome outcome = RunJob(request, 1, &recorder, {});
    ASSERT_EQ(recorder.points.size(), 1u);
    ASSERT_EQ(recorder.points[0].blocks.size(), 1u);
    EXPECT_EQ(std::memcmp(recorder.points[0].blocks[0].data.data(), outcome.result.data(),
                          outcome.result.size() * sizeof(double)),
              0);
  }
}

// The nodes are the binary digits of the number of groups; a complete block leaves none.
TEST(Checkpoint, TellsTheOccupiedNodesOfTheTree) {
  Recorder recorder;
  ASSERT_TRUE(RunJob(SlicedSum(2, 3), 2, &recorder, {}).status.ok());
  for (int64_t group = 1; group <= 2 * kSlices; ++group) {
    const ResumePoint& point = recorder.points[static_cast<size_t>(group - 1)];
    EXPECT_EQ(point.next_group, group);
    EXPECT_EQ(point.blocks.size(), static_cast<size_t>(group / kSlices));
    int64_t covered = 0;
    for (const ResumePoint::Level& level : point.levels) {
      EXPECT_EQ(covered & (int64_t{1} << level.level), 0);
      covered += int64_t{1} << level.level;
    }
    EXPECT_EQ(covered, group % kSlices);
  }
}

TEST(Checkpoint, ItsErrorEndsTheRun) {
  for (const int call : {1, 5, 13, 14}) {  // the 13th call is a block, the 14th its group
    Recorder recorder;
    recorder.fail_from = call;
    const Outcome outcome = RunJob(SlicedSum(2, 3), 2, &recorder, {});
    EXPECT_TRUE(Fails(outcome.status, Reason::kStorageFull)) << call;
    EXPECT_EQ(recorder.calls, call);  // nothing was told afterwards
  }
}

TEST(Checkpoint, AResumedRunCountsOnlyItsOwnWork) {
  Recorder recorder;
  ASSERT_TRUE(RunJob(SlicedSum(1, 2), 1, &recorder, {}).status.ok());
  FakeLane lane("fake");
  lane.fake.slice_value = [](int64_t block, int64_t slice, int64_t element) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return fake_lanes::OrderedValue(block, slice, element);
  };
  Buffers buffers(1);
  const CancelToken cancel;
  auto job = ContractionJob::Prepare(SlicedSum(1, 1), {lane.Make()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE((*job)->SetCheckpoint(nullptr, recorder.points[5]).ok());
  ASSERT_TRUE((*job)->Start({buffers.left.data(), buffers.right.data()}).ok());
  std::vector<ContractionJob::Progress> seen;
  ASSERT_TRUE((*job)
                  ->RunSet({}, buffers.result.data(),
                           [&](const ContractionJob::Progress& now) { seen.push_back(now); })
                  .ok());
  ASSERT_FALSE(seen.empty());
  for (const ContractionJob::Progress& now : seen) {
    EXPECT_GT(now.slices_done, 6);  // those before count as done
    EXPECT_LE(now.slices_done, kSlices);
    // As long for the rest as for what this run did, in proportion.
    const double done = static_cast<double>(now.slices_done - 6);
    const double left = static_cast<double>(kSlices - now.slices_done);
    EXPECT_DOUBLE_EQ(now.left_seconds.value_or(-1), now.elapsed_seconds * left / done);
  }
  EXPECT_EQ((*job)->Report().slices_done, 6);
  EXPECT_EQ((*job)->Report().groups_done, 6);
}

// What a resume point holds is the caller's: no byte more is planned or taken.
TEST(Checkpoint, PlansNoMemory) {
  Recorder recorder;
  const Outcome plain = RunJob(SlicedSum(3, 2), 3, nullptr, {}, /*set_checkpoint=*/false);
  const Outcome recorded = RunJob(SlicedSum(3, 2), 3, &recorder, {});
  const Outcome resumed = RunJob(SlicedSum(3, 2), 3, nullptr, recorder.points[20]);
  EXPECT_EQ(recorded.report.measured_peak_bytes, plain.report.measured_peak_bytes);
  EXPECT_EQ(resumed.report.measured_peak_bytes, plain.report.measured_peak_bytes);
}

// A point after 17 of 3 * 12 groups, which is changed in one way.
class BadResumePointTest : public ::testing::Test {
 protected:
  BadResumePointTest() {
    EXPECT_TRUE(RunJob(Request(), 3, &recorder_, {}).status.ok());
    point_ = recorder_.points[16];
    EXPECT_EQ(point_.next_group, 17);
    EXPECT_EQ(point_.levels.size(), 2u);  // 5 = 4 + 1
    EXPECT_EQ(point_.blocks.size(), 1u);
  }
  static ContractionRequest Request(bool normalize = false) {
    ContractionRequest request = SlicedSum(3, 2);
    request.normalize = normalize;
    return request;
  }
  void ExpectRefusal(bool normalize = false) {
    const Outcome outcome = RunJob(Request(normalize), 3, nullptr, point_);
    EXPECT_TRUE(Fails(outcome.status, Reason::kBadParameter, "resume"));
    EXPECT_EQ(outcome.group_calls, 0);
  }

  Recorder recorder_;
  ResumePoint point_;
};

TEST_F(BadResumePointTest, GroupOutsideTheRange) {
  for (const int64_t group : {int64_t{-1}, int64_t{37}, INT64_MAX, INT64_MIN}) {
    point_.next_group = group;
    ExpectRefusal();
  }
}
TEST_F(BadResumePointTest, AnotherGroupThanTheLevelsSay) {
  for (const int64_t group : {0, 12, 16, 18, 29, 36}) {
    point_.next_group = group;
    ExpectRefusal();
  }
}
TEST_F(BadResumePointTest, MissingOrStrangeLevels) {
  const ResumePoint good = point_;
  point_.levels.pop_back();
  ExpectRefusal();
  point_ = good;
  std::swap(point_.levels[0], point_.levels[1]);
  ExpectRefusal();
  for (const int level : {-1, 1, 4, 62, 63, 64, 1000, INT32_MAX, INT32_MIN}) {
    point_ = good;
    point_.levels[0].level = level;
    ExpectRefusal();
  }
  point_ = good;
  point_.levels.push_back(point_.levels[1]);
  ExpectRefusal();
}
TEST_F(BadResumePointTest, MissingOrStrangeBlocks) {
  const ResumePoint good = point_;
  point_.blocks.clear();
  ExpectRefusal();
  for (const int64_t block : {int64_t{-1}, int64_t{1}, int64_t{3}, INT64_MAX, INT64_MIN}) {
    point_ = good;
    point_.blocks[0].block = block;
    ExpectRefusal();
  }
  point_ = good;
  point_.blocks.push_back(point_.blocks[0]);
  ExpectRefusal();
}
TEST_F(BadResumePointTest, DataOfAnotherSize) {
  const ResumePoint good = point_;
  point_.levels[1].data.pop_back();
  ExpectRefusal();
  point_ = good;
  point_.levels[0].data.clear();
  ExpectRefusal();
  point_ = good;
  point_.blocks[0].data.push_back(std::byte{0});
  ExpectRefusal();
}
TEST_F(BadResumePointTest, ImpossibleExponents) {
  const ResumePoint good = point_;
  point_.levels[1].exponent = 1;  // nothing is normalised
  ExpectRefusal();
  point_ = good;
  point_.blocks[0].exponent = -1;
  ExpectRefusal();
  for (const int64_t exponent : {INT64_MAX, kNoExponent + 1}) {  // sums would overflow
    point_ = good;
    point_.levels[1].exponent = exponent;
    ExpectRefusal(/*normalize=*/true);
    point_ = good;
    point_.blocks[0].exponent = exponent;
    ExpectRefusal(/*normalize=*/true);
  }
}

TEST(Checkpoint, IsForOneSetBeforeItRuns) {
  FakeLane lane("fake");
  lane.Make();
  const CancelToken cancel;
  ContractionRequest varying = SlicedSum(1, 1);
  varying.varying = {false, true};
  auto job = ContractionJob::Prepare(varying, {lane.provider}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(Fails((*job)->SetCheckpoint(nullptr, {}), Reason::kWrongJobState));

  Buffers buffers(1);
  job = ContractionJob::Prepare(SlicedSum(1, 1), {lane.provider}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE((*job)->SetCheckpoint(nullptr, {}).ok());
  EXPECT_TRUE(Fails((*job)->SetCheckpoint(nullptr, {}), Reason::kWrongJobState));
  ASSERT_TRUE((*job)->Start({buffers.left.data(), buffers.right.data()}).ok());
  ASSERT_TRUE((*job)->RunSet({}, buffers.result.data(), nullptr).ok());
  EXPECT_TRUE(Fails((*job)->RunSet({}, buffers.result.data(), nullptr), Reason::kWrongJobState));

  job = ContractionJob::Prepare(SlicedSum(1, 1), {lane.provider}, &cancel);
  ASSERT_TRUE((*job)->Start({buffers.left.data(), buffers.right.data()}).ok());
  ASSERT_TRUE((*job)->RunSet({}, buffers.result.data(), nullptr).ok());
  EXPECT_TRUE(Fails((*job)->SetCheckpoint(nullptr, {}), Reason::kWrongJobState));
}

// A lane that dies in a run with checkpoints changes nothing of what is told.
TEST(Checkpoint, RetriesAreToldInOrder) {
  Recorder expected;
  ASSERT_TRUE(RunJob(SlicedSum(1, 1), 1, &expected, {}).status.ok());
  FakeLane a("a"), b("b");
  a.fake.FailFrom(FakeLane::kRunGroup, 2, Error(Reason::kDeviceFault, "gone"));
  a.Make();
  b.Make();
  Buffers buffers(1);
  const CancelToken cancel;
  auto job = ContractionJob::Prepare(SlicedSum(1, 4), {a.provider, b.provider}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  Recorder recorder;
  ASSERT_TRUE((*job)->SetCheckpoint(&recorder, {}).ok());
  ASSERT_TRUE((*job)->Start({buffers.left.data(), buffers.right.data()}).ok());
  ASSERT_TRUE((*job)->RunSet({}, buffers.result.data(), nullptr).ok());
  ASSERT_EQ(recorder.points.size(), expected.points.size());
  for (size_t i = 0; i < recorder.points.size(); ++i) {
    EXPECT_EQ(recorder.points[i].next_group, expected.points[i].next_group);
    ASSERT_EQ(recorder.points[i].levels.size(), expected.points[i].levels.size());
    for (size_t l = 0; l < recorder.points[i].levels.size(); ++l) {
      EXPECT_EQ(recorder.points[i].levels[l].data, expected.points[i].levels[l].data);
    }
  }
}

}  // namespace
}  // namespace tenon::schedule
