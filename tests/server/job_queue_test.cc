// Submissions and jobs that wait: for a search, for memory; and those that wait no more.

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/sqlite.h"
#include "tests/server/job_test_server.h"
#include "tests/server/measurement_test_server.h"
#include "tests/server/plan_service_fixture.h"
#include "tests/server/waiting_support.h"

namespace tenon::server {
namespace {

// A network whose plan takes a search that is not brief.
v1::SubmitContractionHeader SearchedJob(const std::string& request_id) {
  v1::SubmitContractionHeader header;
  *header.mutable_contraction() = Ring(20, request_id, true);
  header.mutable_contraction()->set_request_id(request_id);
  header.mutable_contraction()->mutable_search()->set_max_trials(16);
  return header;
}

class JobQueueTest : public ::testing::Test {
 protected:
  JobTestServer& server() {
    if (server_ == nullptr) server_ = std::make_unique<JobTestServer>(folder_.path(), options_);
    return *server_;
  }
  ServerState& state() { return server().state(); }
  std::future<JobTestServer::Submitted> Begin(const v1::SubmitContractionHeader& header,
                                              const std::string& caller = "") {
    return std::async(std::launch::async,
                      [this, header, caller] { return server_->Submit(header, {}, caller); });
  }
  // Everything but so many bytes.
  Reservation AllBut(int64_t bytes) {
    auto held = state().budget.Reserve(state().budget.free_bytes() - bytes);
    EXPECT_TRUE(held.ok()) << held.status();
    return held.ok() ? *std::move(held) : Reservation();
  }

  TestFolder folder_;
  JobServerOptions options_{.run = false};
  std::unique_ptr<JobTestServer> server_;
};

// As many as the server has threads.
TEST_F(JobQueueTest, SubmissionsWaitForASearchAndContractionsGoOn) {
  BusyExecutor busy(&state().searches, 1);
  auto one = Begin(SearchedJob("one")), two = Begin(SearchedJob("two"));
  Await([&] { return state().searches.queued() == 2 && state().executor.running() == 0; });
  EXPECT_GT(state().budget.reserved_bytes(), 0);  // what the searches will need
  EXPECT_TRUE(Contract(&server().contraction(), MatrixProduct()).status.ok());
  EXPECT_EQ(state().searches.queued(), 2u);
  EXPECT_EQ(Summary(server().Submit(ProductJob("three")).status), "OK");  // it takes no search
  busy.Release();
  EXPECT_EQ(Summary(one.get().status), "OK");
  const auto submitted = two.get();
  EXPECT_EQ(Summary(submitted.status), "OK");
  EXPECT_EQ(submitted.response.job().plan().provenance().source(), v1::PLAN_SOURCE_SEARCH);
  EXPECT_TRUE(server().contraction().AllReleased());
}

TEST_F(JobQueueTest, ASearchThatASubmissionMakesIsWatched) {
  v1::SubmitContractionHeader header = SearchedJob("one");
  *header.mutable_contraction()->mutable_search() = Endless();
  grpc::ClientContext context;
  v1::SubmitContractionResponse response;
  const auto stream = server().stub().SubmitContraction(&context, &response);
  v1::SubmitContractionRequest frame;
  *frame.mutable_header() = header;
  ASSERT_TRUE(stream->Write(frame));
  Await([&] { return state().searches.running() == 1; });
  Await([&] { return !state().work_watch.Running().empty(); });
  const auto running = state().work_watch.Running();
  EXPECT_EQ(running[0].method, "tenon.v1.JobService/SubmitContraction");
  EXPECT_EQ(running[0].phase, "planning");
  EXPECT_EQ(running[0].request_id, "one");
  context.TryCancel();
  stream->Finish();
  EXPECT_TRUE(server().contraction().AllReleased());
}

TEST_F(JobQueueTest, TheWaitForASearchEnds) {
  BusyExecutor busy(&state().searches, 1);
  v1::SubmitContractionHeader header = SearchedJob("one");
  header.mutable_contraction()->mutable_execution()->set_max_queue_seconds(0.02);
  EXPECT_EQ(Summary(server().Submit(header).status),
            "DEADLINE_EXCEEDED DEADLINE header.contraction.execution.max_queue_seconds");
  grpc::ClientContext context;
  v1::SubmitContractionResponse response;
  const auto stream = server().stub().SubmitContraction(&context, &response);
  v1::SubmitContractionRequest frame;
  *frame.mutable_header() = SearchedJob("two");
  ASSERT_TRUE(stream->Write(frame));
  Await([&] { return state().searches.queued() == 1; });
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  Await([&] { return state().searches.queued() == 0; });
  EXPECT_TRUE(server().contraction().AllReleased());
  Await([&] { return server().board().Reserve("", options_.settings.budget_bytes).ok(); });
}

TEST_F(JobQueueTest, AnUploadWaitsForItsMemory) {
  const v1::SubmitContractionHeader header = ProductJob("one");
  v1::SubmitContractionHeader bulk = ProductJob("two");
  bulk.mutable_contraction()->mutable_execution()->set_priority(v1::PRIORITY_CLASS_BULK);
  Reservation others = AllBut(63);  // the operands have 64
  auto one = Begin(header), two = Begin(bulk);
  Await([&] { return state().budget.waiting(Priority::kDefault) == 1; });
  Await([&] { return state().budget.waiting(Priority::kBulk) == 1; });
  EXPECT_EQ(state().executor.running(), 0);
  others.Release();
  EXPECT_EQ(Summary(one.get().status), "OK");
  EXPECT_EQ(Summary(two.get().status), "OK");
  EXPECT_TRUE(server().contraction().AllReleased());
}

TEST_F(JobQueueTest, TheWaitForAnUploadsMemoryEnds) {
  Reservation others = AllBut(63);
  v1::SubmitContractionHeader header = ProductJob("one");
  header.mutable_contraction()->mutable_execution()->set_max_queue_seconds(0.02);
  EXPECT_EQ(Summary(server().Submit(header).status),
            "DEADLINE_EXCEEDED DEADLINE header.contraction.execution.max_queue_seconds");
  grpc::ClientContext context;
  v1::SubmitContractionResponse response;
  const auto stream = server().stub().SubmitContraction(&context, &response);
  v1::SubmitContractionRequest frame;
  *frame.mutable_header() = ProductJob("two");
  ASSERT_TRUE(stream->Write(frame));
  Await([&] { return state().budget.waiting(Priority::kDefault) == 1; });
  context.TryCancel();
  stream->Finish();
  Await([&] { return state().budget.waiting(Priority::kDefault) == 0; });
  others.Release();
  EXPECT_TRUE(server().contraction().AllReleased());
  Await([&] { return server().board().Reserve("", options_.settings.budget_bytes).ok(); });
}

// Jobs of two owners, of which the first does not fit now.
class JobMemoryTest : public JobQueueTest {
 protected:
  void Start(v1::PriorityClass priority = v1::PRIORITY_CLASS_UNSPECIFIED) {
    v1::SubmitContractionHeader header = SlicedJob("large", "reference", 512);
    header.mutable_contraction()->mutable_execution()->set_priority(priority);
    const auto large = server().Submit(header);
    ASSERT_EQ(Summary(large.status), "OK");
    large_ = large.response.job().name();
    behind_ = server().Submit(ProductJob("behind")).response.job().name();
    ASSERT_TRUE(server().contraction().AllReleased());  // the submissions'
    others_ = AllBut(large.response.planned_peak_bytes() - 1);
    server().StartRunner();
  }
  v1::Job Job(const std::string& name, const std::string& caller = "") {
    v1::Job job;
    EXPECT_EQ(Summary(server().Get(name, &job, caller)), "OK");
    return job;
  }

  std::string large_, behind_;
  Reservation others_;
};

TEST_F(JobMemoryTest, AJobStandsInLineAsBulkWorkAndOtherOwnersJobsRun) {
  Start();
  Await([&] { return state().budget.waiting(Priority::kBulk) == 1; });
  const auto other = server().Submit(ProductJob("other"), {}, "other");
  ASSERT_EQ(Summary(other.status), "OK");
  const std::string name = other.response.job().name();
  Await([&] { return Job(name, "other").state() == v1::JOB_STATE_SUCCEEDED; });
  EXPECT_EQ(state().budget.waiting(Priority::kBulk), 1u);
  EXPECT_EQ(Job(behind_).state(), v1::JOB_STATE_QUEUED);  // of the same owner
  others_.Release();
  EXPECT_EQ(server().Wait(large_).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(server().Wait(behind_).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(server().contraction().AllReleased());
}

TEST_F(JobMemoryTest, TheSubmissionTellsTheClass) {
  Start(v1::PRIORITY_CLASS_INTERACTIVE);
  Await([&] { return state().budget.waiting(Priority::kInteractive) == 1; });
  others_.Release();
  EXPECT_EQ(server().Wait(large_).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobMemoryTest, ACancelledJobLeavesTheLine) {
  Start();
  Await([&] { return state().budget.waiting(Priority::kBulk) == 1; });
  EXPECT_EQ(Summary(server().Cancel(large_)), "OK");
  EXPECT_EQ(server().Wait(large_).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(state().budget.waiting(Priority::kBulk), 0u);
  EXPECT_EQ(server().Wait(behind_).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobMemoryTest, ARunnerThatStopsTakesItsJobsOutOfTheLine) {
  Start();
  Await([&] { return state().budget.waiting(Priority::kBulk) == 1; });
  server().StopRunner();
  EXPECT_EQ(state().budget.waiting(Priority::kBulk), 0u);
  EXPECT_EQ(Job(large_).state(), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(Job(behind_).state(), v1::JOB_STATE_QUEUED);
}

TEST_F(JobQueueTest, ResultsAreReadWhileNothingCanBeStored) {
  options_.run = true;
  const std::string done = server().Submit(ProductJob("one")).response.job().name();
  ASSERT_EQ(server().Wait(done).state(), v1::JOB_STATE_SUCCEEDED);
  auto writer = Database::Open(folder_.path() + "/jobs.db", /*read_only=*/false);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Execute("BEGIN IMMEDIATE").ok());
  auto submitted = Begin(ProductJob("two"));
  Await([&] { return state().storing.running() == 1; });
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, server().ReadAll(done).bytes), kProduct);
  v1::Job job;
  EXPECT_EQ(Summary(server().Get(done, &job)), "OK");
  EXPECT_EQ(state().storing.running(), 1);
  ASSERT_TRUE(writer->Execute("ROLLBACK").ok());
  EXPECT_EQ(Summary(submitted.get().status), "OK");
}

TEST_F(JobQueueTest, JobsAreCancelledAndDeletedWhileAnotherIsStored) {
  const std::string one = server().Submit(ProductJob("one")).response.job().name();
  std::promise<void> stored;
  state().storing.Continue([gate = stored.get_future().share()] { gate.wait(); }, Priority::kBulk);
  auto submitted = Begin(ProductJob("two"));
  Await([&] { return state().storing.continuing() == 1; });  // new jobs wait for each other
  EXPECT_EQ(Summary(server().Cancel(one)), "OK");
  EXPECT_EQ(Summary(server().Delete(one)), "OK");
  EXPECT_EQ(state().storing.continuing(), 1u);
  stored.set_value();
  EXPECT_EQ(Summary(submitted.get().status), "OK");
}

}  // namespace
}  // namespace tenon::server
