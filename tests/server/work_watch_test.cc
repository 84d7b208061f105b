#include "server/work_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace tenon::server {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class WorkWatchTest : public ::testing::Test {
 protected:
  WorkWatchTest() {
    watch_.Configure({.stuck = seconds(10), .slow = seconds(600)}, [this] { ++changes_; });
  }
  std::unique_ptr<WorkWatch::Entry> Begin(const CancelToken* cancel, std::string id) {
    return std::make_unique<WorkWatch::Entry>(&watch_, cancel, "test/Work", "testing",
                                              std::move(id));
  }
  void After(seconds duration) {
    now_ += duration;
    watch_.Look();
  }
  // The lines that are logged meanwhile.
  std::string LogAfter(seconds duration) {
    ::testing::internal::CaptureStderr();
    After(duration);
    return ::testing::internal::GetCapturedStderr();
  }

  WorkWatch::Clock::time_point now_ = WorkWatch::Clock::now();
  WorkWatch watch_{[this] { return now_; }};
  CancelToken cancel_, other_;
  int changes_ = 0;
};

TEST_F(WorkWatchTest, LongWorkIsNotStuck) {
  const auto work = Begin(&cancel_, "a");
  After(seconds(100'000));
  EXPECT_FALSE(watch_.stuck());
  EXPECT_EQ(changes_, 0);
}

TEST_F(WorkWatchTest, CancelledWorkThatEndsInTimeIsNotStuck) {
  auto work = Begin(&cancel_, "a");
  cancel_.Cancel();
  After(seconds(1));
  After(seconds(9));
  work.reset();
  After(seconds(100));
  EXPECT_FALSE(watch_.stuck());
  EXPECT_EQ(changes_, 0);
}

TEST_F(WorkWatchTest, CancelledWorkThatGoesOnIsStuckUntilItHasBeenGoneForTheLimit) {
  auto work = Begin(&cancel_, "a");
  const auto honest = Begin(&other_, "b");
  cancel_.Cancel();
  After(seconds(1));
  EXPECT_FALSE(watch_.stuck());
  After(seconds(10));
  EXPECT_TRUE(watch_.stuck());
  EXPECT_EQ(changes_, 1);
  After(seconds(10));
  EXPECT_EQ(changes_, 1) << "told once";
  work.reset();
  After(seconds(9));
  EXPECT_TRUE(watch_.stuck()) << "it does not flap";
  After(seconds(1));
  EXPECT_FALSE(watch_.stuck());
  EXPECT_EQ(changes_, 2);
}

TEST_F(WorkWatchTest, APassedDeadlineCountsAsCancelled) {
  const CancelToken expired(WorkWatch::Clock::now() - seconds(1));
  const auto work = Begin(&expired, "a");
  After(seconds(0));
  After(seconds(10));
  EXPECT_TRUE(watch_.stuck());
}

TEST_F(WorkWatchTest, WorkThatNobodyToldToStopIsLoggedOnceWhenItIsSlow) {
  const auto slow = Begin(&cancel_, "slow");
  now_ += seconds(100);
  const auto later = Begin(&other_, "later");
  EXPECT_EQ(LogAfter(seconds(499)), "");
  const std::string line = LogAfter(seconds(1));
  EXPECT_THAT(line, HasSubstr(" WARNING slow work method=test/Work request_id=slow phase=testing "
                              "running_seconds=600"));
  EXPECT_THAT(line, Not(HasSubstr("later")));
  EXPECT_EQ(LogAfter(seconds(99)), "") << "told once";
  EXPECT_THAT(LogAfter(seconds(1)), HasSubstr("request_id=later"));
  EXPECT_FALSE(watch_.stuck());
  cancel_.Cancel();
  After(seconds(0));
  EXPECT_THAT(LogAfter(seconds(10)), HasSubstr(" ERROR stuck work"));
}

TEST_F(WorkWatchTest, ListsWhatRunsLongestFirst) {
  const auto first = Begin(&cancel_, "first");
  now_ += seconds(5);
  auto second = Begin(&other_, "second");
  const auto third = Begin(&other_, "third");
  now_ += seconds(2);
  ASSERT_EQ(watch_.Running().size(), 3u);
  EXPECT_EQ(watch_.Running()[0].request_id, "first");
  EXPECT_EQ(watch_.Running()[0].method, "test/Work");
  EXPECT_EQ(watch_.Running()[0].phase, "testing");
  EXPECT_EQ(watch_.Running()[0].running_seconds, 7);
  EXPECT_FALSE(watch_.Running()[0].stuck);
  second.reset();
  ASSERT_EQ(watch_.Running().size(), 2u);
  EXPECT_EQ(watch_.Running()[1].request_id, "third");
}

TEST(WorkWatch, SlowWorkIsLoggedWithoutALimitForStuckWork) {
  WorkWatch::Clock::time_point now;
  WorkWatch watch([&] { return now; });
  watch.Configure({.slow = seconds(1)}, [] { FAIL(); });
  CancelToken cancel;
  const WorkWatch::Entry entry(&watch, &cancel, "test/Work", "testing", "a");
  cancel.Cancel();
  now += seconds(2);
  ::testing::internal::CaptureStderr();
  watch.Look();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("slow work"));
}

TEST(WorkWatch, ALimitOfZeroFindsNothing) {
  WorkWatch::Clock::time_point now;
  WorkWatch watch([&] { return now; });
  watch.Configure({}, [] { FAIL(); });
  CancelToken cancel;
  const WorkWatch::Entry entry(&watch, &cancel, "test/Work", "testing", "a");
  cancel.Cancel();
  watch.Look();
  now += std::chrono::hours(1);
  watch.Look();
  EXPECT_FALSE(watch.stuck());
}

}  // namespace
}  // namespace tenon::server
