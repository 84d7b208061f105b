// The table of a job's life: what may be done in each state, and where it leads.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/job_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

constexpr char kWrongState[] = "FAILED_PRECONDITION WRONG_JOB_STATE name";

struct Row {
  v1::JobState state;
  const char* read;
  v1::JobState after_cancel;
  const char* remove;
};

class JobLife : public ::testing::Test {
 protected:
  // Job "one", in the state.
  std::string Enter(v1::JobState state) {
    JobTestServer& server = *server_;
    const v1::SubmitContractionHeader header = SlicedJob("one", "fake");
    switch (state) {
      case v1::JOB_STATE_QUEUED: {
        return server.Submit(header).response.job().name();
      }
      case v1::JOB_STATE_RUNNING:
      case v1::JOB_STATE_CANCELLING: {
        gate_.CloseAfter(&server.fake(), 5);
        const std::string name = Run(header);
        gate_.WaitUntilReached();
        if (state == v1::JOB_STATE_CANCELLING) server.Cancel(name);
        return name;
      }
      case v1::JOB_STATE_SUSPENDED: {
        gate_.CloseAfter(&server.fake(), 5);
        const std::string name = Run(header);
        gate_.WaitUntilReached();
        server.board().Stop();
        gate_.Open();
        server.StopRunner();
        return name;
      }
      case v1::JOB_STATE_FAILED:
        server.fake().FailNth(testing::FakeProvider::Entry::kRunGroup, 2,
                              Error(Reason::kInternal, "broken"));
        break;
      case v1::JOB_STATE_CANCELLED: {
        const std::string name = server.Submit(header).response.job().name();
        server.Cancel(name);
        return name;
      }
      default:
        break;
    }
    const std::string name = Run(header);
    server.Wait(name);
    return name;
  }
  std::string Run(const v1::SubmitContractionHeader& header) {
    const auto submitted = server_->Submit(header);
    EXPECT_EQ(Summary(submitted.status), "OK");
    server_->StartRunner();
    return submitted.response.job().name();
  }

  TestFolder folder_;
  JobGate gate_;
  std::unique_ptr<JobTestServer> server_ =
      std::make_unique<JobTestServer>(folder_.path(), JobServerOptions{.run = false});
};

class JobLifeTest : public JobLife, public ::testing::WithParamInterface<Row> {};

TEST_P(JobLifeTest, ReadResult) {
  const std::string name = Enter(GetParam().state);
  v1::Job job;
  ASSERT_TRUE(server_->Get(name, &job).ok());
  ASSERT_EQ(job.state(), GetParam().state);
  EXPECT_EQ(Summary(server_->ReadAll(name).status), GetParam().read);
  gate_.Open();
}

TEST_P(JobLifeTest, Cancel) {
  const std::string name = Enter(GetParam().state);
  v1::Job job;
  EXPECT_EQ(Summary(server_->Cancel(name, &job)), "OK");
  EXPECT_EQ(job.state(), GetParam().after_cancel);
  gate_.Open();
  if (job.state() == v1::JOB_STATE_CANCELLING) {
    EXPECT_EQ(server_->Wait(name).state(), v1::JOB_STATE_CANCELLED);
  }
}

TEST_P(JobLifeTest, Delete) {
  const std::string name = Enter(GetParam().state);
  EXPECT_EQ(Summary(server_->Delete(name)), GetParam().remove);
  v1::Job job;
  EXPECT_EQ(Summary(server_->Get(name, &job)),
            GetParam().remove == std::string("OK") ? "NOT_FOUND NOT_FOUND name" : "OK");
  gate_.Open();
}

INSTANTIATE_TEST_SUITE_P(
    All, JobLifeTest,
    ::testing::Values(
        Row{v1::JOB_STATE_QUEUED, kWrongState, v1::JOB_STATE_CANCELLED, kWrongState},
        Row{v1::JOB_STATE_RUNNING, kWrongState, v1::JOB_STATE_CANCELLING, kWrongState},
        Row{v1::JOB_STATE_SUSPENDED, kWrongState, v1::JOB_STATE_CANCELLED, kWrongState},
        Row{v1::JOB_STATE_CANCELLING, kWrongState, v1::JOB_STATE_CANCELLING, kWrongState},
        Row{v1::JOB_STATE_SUCCEEDED, "OK", v1::JOB_STATE_SUCCEEDED, "OK"},
        Row{v1::JOB_STATE_FAILED, kWrongState, v1::JOB_STATE_FAILED, "OK"},
        Row{v1::JOB_STATE_CANCELLED, kWrongState, v1::JOB_STATE_CANCELLED, "OK"}),
    [](const auto& info) { return JobStateLabel(info.param.state); });

using JobWatchTest = JobLife;

TEST_F(JobWatchTest, EveryChangeIsTold) {
  gate_.CloseAfter(&server_->fake(), 5);
  const std::string name = server_->Submit(SlicedJob("one", "fake")).response.job().name();
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_progress_interval_seconds(0.01);
  const auto stream = server_->stub().WatchJob(&context, request);
  v1::WatchJobResponse frame;
  ASSERT_TRUE(stream->Read(&frame));
  EXPECT_EQ(frame.job().state(), v1::JOB_STATE_QUEUED);
  server_->StartRunner();
  gate_.WaitUntilReached();
  gate_.Open();
  std::vector<v1::JobState> states;
  while (stream->Read(&frame)) {
    if (frame.has_job()) states.push_back(frame.job().state());
  }
  EXPECT_EQ(Summary(stream->Finish()), "OK");
  EXPECT_EQ(states, (std::vector<v1::JobState>{v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}));
  EXPECT_TRUE(frame.job().has_report());
}

TEST_F(JobWatchTest, AnEndedJobIsToldOnceAndABadIntervalIsRefused) {
  const std::string name = Enter(v1::JOB_STATE_CANCELLED);
  for (const double interval : {1.0, 0.0, -1.0}) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_name(name);
    request.set_progress_interval_seconds(interval);
    const auto stream = server_->stub().WatchJob(&context, request);
    v1::WatchJobResponse frame;
    int frames = 0;
    while (stream->Read(&frame)) ++frames;
    EXPECT_EQ(frames, interval > 0 ? 1 : 0);
    EXPECT_EQ(Summary(stream->Finish()),
              interval > 0 ? "OK" : "INVALID_ARGUMENT BAD_PARAMETER progress_interval_seconds");
  }
}

TEST_F(JobWatchTest, LeavingDoesNotTouchTheJob) {
  gate_.CloseAfter(&server_->fake(), 5);
  const std::string name = Run(SlicedJob("one", "fake"));
  server_->WaitFor(name, v1::JOB_STATE_RUNNING);  // cancels the watch
  gate_.Open();
  EXPECT_EQ(server_->Wait(name).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobWatchTest, AServerThatStopsTellsItsWatchers) {
  const std::string name = server_->Submit(SlicedJob("one", "fake")).response.job().name();
  grpc::ClientContext contexts[2];
  v1::WatchJobRequest request;
  request.set_name(name);
  const auto before = server_->stub().WatchJob(&contexts[0], request);
  v1::WatchJobResponse frame;
  ASSERT_TRUE(before->Read(&frame));
  server_->board().Stop();
  EXPECT_FALSE(before->Read(&frame));
  EXPECT_EQ(Summary(before->Finish()), "UNAVAILABLE DRAINING ");
  EXPECT_EQ(Summary(server_->stub().WatchJob(&contexts[1], request)->Finish()),
            "UNAVAILABLE DRAINING ");
}

}  // namespace
}  // namespace tenon::server
