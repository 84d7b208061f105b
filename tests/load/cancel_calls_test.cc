// R5 beyond contractions: from cancelling a measurement, a search or a job to idle workers. Seen
// from outside, as load_server_test.cc does it for contractions.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/load/long_calls.h"

namespace tenon::testing {
namespace {

class CancelCallsTest : public LongCallsTest {
 protected:
  // Cancels what has begun at some moment in its work, and waits until nothing of it is left.
  void CancelSomewhere(const std::function<void()>& cancel) {
    std::this_thread::sleep_for(milliseconds(10 + random_() % 300));
    EXPECT_GT(Working(), 0) << "it was over already";
    const Clock::time_point start = Clock::now();
    cancel();
    ASSERT_TRUE(WaitUntilIdle());
    seconds_.push_back(SecondsSince(start));
  }
  int Working() const {
    const server::ServerState& state = *server_->state();
    return state.running() + (state.jobs == nullptr ? 0 : state.jobs->running());
  }
  void ExpectSoon(const char* what) const {
    Print(what, seconds_);
    EXPECT_LT(Percentile(seconds_, 0.99), kSlack * kPromisedCancelSeconds);
  }

  std::minstd_rand random_{5};
  std::vector<double> seconds_;
};

// While it builds what it needs of the data set, or scores a projection.
TEST_F(CancelCallsTest, AMeasurement) {
  Start(TestConfig());
  constexpr int64_t kRows = 4000;
  const auto stub = v1::MeasurementService::NewStub(channel_);
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    const auto stream = stub->Measure(&context);
    v1::MeasureRequest header = MeasureHeader(kRows);
    header.mutable_header()->add_specs()->set_id("srho");
    ASSERT_TRUE(stream->Write(header));
    ASSERT_TRUE(SendDataset(kRows, stream.get()));
    // As many as it takes: it is held back when the server has enough of them.
    std::thread writer([&] {
      int64_t index = 0;
      while (stream->Write(ProjectionOf(kRows, index))) ++index;
    });
    v1::MeasureResponse answer;
    const bool accepted = stream->Read(&answer);
    EXPECT_TRUE(accepted);
    while (accepted && Working() == 0) std::this_thread::yield();
    CancelSomewhere([&] { context.TryCancel(); });
    writer.join();
    while (stream->Read(&answer)) {
    }
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ExpectSoon("cancelled measurement to idle");
}

TEST_F(CancelCallsTest, ASearch) {
  Start(TestConfig());
  const auto stub = v1::ContractionService::NewStub(channel_);
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    const auto reader = stub->PlanContraction(&context, LongSearch(0.01));
    v1::PlanContractionResponse frame;
    ASSERT_TRUE(reader->Read(&frame));
    CancelSomewhere([&] { context.TryCancel(); });
    while (reader->Read(&frame)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ExpectSoon("cancelled search to idle");
}

TEST_F(CancelCallsTest, AJob) {
  Start(ConfigWithJobs());
  for (int round = 0; round < 10; ++round) {
    const std::string name = SubmitLongJob();
    CancelSomewhere([&] { CancelJob(name); });
    EXPECT_EQ(JobState(name), v1::JOB_STATE_CANCELLED);
    v1::DeleteJobRequest request;
    request.set_name(name);
    v1::DeleteJobResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::JobService::NewStub(channel_)->DeleteJob(&context, request, &response).ok());
  }
  ExpectSoon("cancelled job to idle");
}

}  // namespace
}  // namespace tenon::testing
