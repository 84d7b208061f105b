// R2 beyond contractions: whoever does not read what a stream answers costs little and is cut.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/process_stats.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tests/load/long_calls.h"

namespace tenon::testing {
namespace {

constexpr double kStallSeconds = 1;
constexpr int kSmallWindow = 1024;  // for streams of small frames

class SlowReaderTest : public LongCallsTest {
 protected:
  void StartWithShortPatience() {
    server::Config config = ConfigWithJobs();
    config.write_stall_timeout = absl::Seconds(kStallSeconds);
    Start(config);
    before_ = server::ReadProcessStats().resident_bytes;
  }
  // Returns when the server is done with the one call that there is, and prints what it took.
  void WaitUntilCut(const char* what, int64_t most_bytes) {
    const Clock::time_point start = Clock::now();
    int64_t most = 0;
    while (server_->state()->metrics.in_flight() > 0 && SecondsSince(start) < 100) {
      most = std::max(most, server::ReadProcessStats().resident_bytes - before_);
      std::this_thread::sleep_for(milliseconds(5));
    }
    std::printf("slow reader of %s: %.1f MiB, cut after %.2f s\n", what,
                static_cast<double>(most) / kMiB, SecondsSince(start));
    EXPECT_EQ(server_->state()->metrics.in_flight(), 0);
    EXPECT_LT(most, most_bytes);
  }
  static void ExpectSlowReader(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
    EXPECT_EQ(status.error_message(), "SLOW_READER: the client did not read for too long");
  }
  template <typename Reader, typename Frame>
  static grpc::Status Drain(Reader* reader, Frame frame) {
    while (reader->Read(&frame)) {
    }
    return reader->Finish();
  }

  int64_t before_ = 0;
};

TEST_F(SlowReaderTest, OfLocalScores) {
  StartWithShortPatience();
  constexpr int64_t kRows = 2000, kProjections = 4000;
  const auto stub = v1::MeasurementService::NewStub(ConnectWithWindow(kSmallWindow));
  grpc::ClientContext context;
  const auto stream = stub->Measure(&context);
  v1::MeasureRequest header = MeasureHeader(kRows);
  header.mutable_header()->set_return_local(true);
  ASSERT_TRUE(stream->Write(header));
  ASSERT_TRUE(SendDataset(kRows, stream.get()));
  v1::MeasureResponse accepted;
  ASSERT_TRUE(stream->Read(&accepted));
  int64_t sent = 0;
  std::thread writer([&] {
    while (sent < kProjections && stream->Write(ProjectionOf(kRows, sent))) ++sent;
  });
  // Neither are all 128 MB of projections taken from it, nor do answers pile up.
  WaitUntilCut("local scores", 64 * kMiB);
  writer.join();
  std::printf("projections sent: %lld\n", static_cast<long long>(sent));
  EXPECT_LT(sent, kProjections);
  ExpectSlowReader(Drain(stream.get(), accepted));
  EXPECT_TRUE(WaitUntilIdle());
}

TEST_F(SlowReaderTest, OfAJobsResult) {
  StartWithShortPatience();
  const std::string name = SubmitJob(Header("i,j->ij", {{4096}, {4096}}));
  ASSERT_EQ(WaitForJob(name), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(WaitUntilIdle());
  before_ = server::ReadProcessStats().resident_bytes;
  const auto stub = v1::JobService::NewStub(ConnectWithWindow(kSmallWindow));
  grpc::ClientContext context;
  v1::ReadResultRequest request;
  request.set_name(name);
  const auto reader = stub->ReadResult(&context, request);
  v1::ReadResultResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  WaitUntilCut("a job's result of 64 MiB", 32 * kMiB);
  ExpectSlowReader(Drain(reader.get(), frame));
  EXPECT_TRUE(WaitUntilIdle());
}

// The job goes on.
TEST_F(SlowReaderTest, OfAJobsProgress) {
  StartWithShortPatience();
  const std::string name = SubmitLongJob();
  const auto stub = v1::JobService::NewStub(ConnectWithWindow(kSmallWindow));
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_progress_interval_seconds(0.001);
  const auto reader = stub->WatchJob(&context, request);
  v1::WatchJobResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  WaitUntilCut("a job's progress", 256 * kMiB);  // most of it is the job's
  ExpectSlowReader(Drain(reader.get(), frame));
  EXPECT_EQ(JobState(name), v1::JOB_STATE_RUNNING);
  CancelJob(name);
  EXPECT_TRUE(WaitUntilIdle());
}

// The search ends, too.
TEST_F(SlowReaderTest, OfASearch) {
  StartWithShortPatience();
  const auto stub = v1::ContractionService::NewStub(ConnectWithWindow(kSmallWindow));
  grpc::ClientContext context;
  const auto reader = stub->PlanContraction(&context, LongSearch(0.001));
  v1::PlanContractionResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  WaitUntilCut("a search", 64 * kMiB);
  EXPECT_TRUE(WaitUntilIdle());
  ExpectSlowReader(Drain(reader.get(), frame));
}

}  // namespace
}  // namespace tenon::testing
