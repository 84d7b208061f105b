// Jobs that are interrupted, and what goes wrong with them.

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>
#include <vector>

#include "backends/core/crc32c.h"
#include "tests/server/job_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using Entry = testing::FakeProvider::Entry;

class JobResumeTest : public ::testing::Test {
 protected:
  // A process that lives until the job has stored a state and is then stopped in the middle of it;
  // the folder is as a kill would leave it, but for the state of the job.
  std::string Interrupt(const v1::SubmitContractionHeader& header, JobServerOptions options = {}) {
    JobTestServer server(folder_.path(), options);
    JobGate gate;
    gate.CloseAfter(&server.fake(), 7);
    const auto submitted = server.Submit(header);
    EXPECT_EQ(Summary(submitted.status), "OK");
    planned_peak_bytes_ = submitted.response.planned_peak_bytes();
    gate.WaitUntilReached();
    server.board().Stop();
    gate.Open();
    server.StopRunner();
    v1::Job job;
    EXPECT_TRUE(server.Get(submitted.response.job().name(), &job).ok());
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUSPENDED);
    EXPECT_GT(job.groups_done(), 0);
    EXPECT_LT(job.groups_done(), job.groups_total());
    return job.name();
  }
  // The bytes of the same contraction without a job.
  static std::string Uninterrupted(JobTestServer* server,
                                   const v1::SubmitContractionHeader& header) {
    const Answer answer = Contract(&server->contraction(), header.contraction());
    EXPECT_EQ(Summary(answer.status), "OK");
    return answer.results.empty() ? "" : answer.results[0].bytes;
  }
  void Execute(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((folder_.path() + "/jobs.db").c_str(), &database), SQLITE_OK);
    sqlite3_busy_timeout(database, 10'000);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    EXPECT_GT(sqlite3_changes(database), 0) << sql;
    sqlite3_close(database);
  }

  TestFolder folder_;
  int64_t planned_peak_bytes_ = 0;  // of the job that was interrupted
};

TEST_F(JobResumeTest, AnInterruptedJobGoesOnWithTheSameBits) {
  const v1::SubmitContractionHeader header = SlicedJob("one", "fake");
  const std::string name = Interrupt(header);
  JobTestServer server(folder_.path());
  const v1::Job job = server.Wait(name);
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(job.resume_count(), 1);
  EXPECT_EQ(job.groups_done(), job.groups_total());
  // What was stored is not computed again.
  EXPECT_LT(server.fake().groups().size(), static_cast<size_t>(job.groups_total()));
  const auto read = server.ReadAll(name);
  EXPECT_EQ(Summary(read.status), "OK");
  EXPECT_EQ(read.bytes, Uninterrupted(&server, header));
  EXPECT_EQ(job.stored_bytes(),
            static_cast<int64_t>(read.bytes.size() + read.result->ByteSizeLong()));
}

TEST_F(JobResumeTest, BlocksOfASlicedOutputAreKept) {
  v1::SubmitContractionHeader header = SlicedJob("one", "fake", 4, 8);
  header.mutable_contraction()->mutable_path()->add_sliced_indices("k");
  const std::string name = Interrupt(header);
  JobTestServer server(folder_.path());
  const v1::Job job = server.Wait(name);
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(server.ReadAll(name).bytes, Uninterrupted(&server, header));
}

TEST_F(JobResumeTest, AJobOfRealArithmeticHasTheBitsOfACall) {
  for (const bool normalize : {false, true}) {
    for (const char* provider : {"cpu", "reference"}) {
      v1::SubmitContractionHeader header =
          SlicedJob(std::string(provider) + (normalize ? "n" : ""), provider, 64, 5);
      header.mutable_contraction()->mutable_execution()->set_normalize(normalize);
      JobTestServer server(folder_.path());
      const auto submitted = server.Submit(header);
      ASSERT_EQ(Summary(submitted.status), "OK");
      const v1::Job job = server.Wait(submitted.response.job().name());
      ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
      const auto read = server.ReadAll(job.name());
      const Answer answer = Contract(&server.contraction(), header.contraction());
      ASSERT_EQ(answer.results.size(), 1u);
      EXPECT_EQ(read.bytes, answer.results[0].bytes);
      EXPECT_EQ(read.result->has_log10_scale(), normalize);
      if (normalize) {
        EXPECT_EQ(read.result->log10_scale(), *answer.results[0].log10_scale);
      }
      EXPECT_EQ(job.plan().program_fingerprint(), answer.accepted->plan().program_fingerprint());
      EXPECT_EQ(read.result->report().result_crc32c(), Crc32c(read.bytes));
    }
  }
}

TEST_F(JobResumeTest, APlanOfTheServersOwnIsKeptWithTheJob) {
  // No path is given: what the planner found at the submission is stored.
  v1::SubmitContractionHeader header = SlicedJob("one", "cpu", 64, 5);
  header.mutable_contraction()->clear_path();
  header.mutable_contraction()->mutable_search()->set_target_size(4);
  header.mutable_contraction()->mutable_search()->set_max_trials(8);
  header.mutable_contraction()->mutable_search()->set_allow_output_slicing(true);
  std::string name;
  {
    JobTestServer server(folder_.path(), {.run = false});
    const auto submitted = server.Submit(header);
    ASSERT_EQ(Summary(submitted.status), "OK");
    EXPECT_GT(submitted.response.job().plan().slices(), 1);
    name = submitted.response.job().name();
  }
  JobTestServer server(folder_.path());
  const v1::Job job = server.Wait(name);
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(server.state().plan_cache.counters().misses, 0);
  EXPECT_EQ(server.ReadAll(name).bytes, Uninterrupted(&server, header));
}

TEST_F(JobResumeTest, AnotherProgramIsNotRun) {
  std::string name;
  {
    JobTestServer server(folder_.path(), {.run = false});
    name = server.Submit(SlicedJob("one", "fake")).response.job().name();
    // As another version of a provider would: the program has another fingerprint there.
    v1::SubmitContractionHeader header;
    ASSERT_TRUE(header.ParseFromString(*server.board().store().ReadAll(1, JobData::kHeader)));
    EXPECT_EQ(header.contraction().execution().required_fingerprint(),
              server.board().Get("", name)->plan().program_fingerprint());
    header.mutable_contraction()->mutable_execution()->set_required_fingerprint("other");
    ASSERT_TRUE(server.board().store().Put(1, {JobData::kHeader}, header.SerializeAsString()).ok());
  }
  JobTestServer server(folder_.path());
  const v1::Job job = server.Wait(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "FINGERPRINT_MISMATCH");
}

TEST_F(JobResumeTest, DamagedOperandsFailThatJobAlone) {
  std::string damaged, sound;
  {
    JobTestServer server(folder_.path(), {.run = false});
    damaged = server.Submit(SlicedJob("damaged", "fake")).response.job().name();
    sound = server.Submit(SlicedJob("sound", "fake")).response.job().name();
  }
  Execute(
      "UPDATE pieces SET bytes = zeroblob(length(bytes)) WHERE job = 1 AND data = 1"
      " AND part = 1");
  JobTestServer server(folder_.path());
  const v1::Job job = server.Wait(damaged);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "CHECKSUM_MISMATCH");
  EXPECT_EQ(server.Wait(sound).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobResumeTest, DamagedSumsFailTheJob) {
  for (const char* sql : {"UPDATE pieces SET bytes = zeroblob(length(bytes)) WHERE data = 3",
                          "DELETE FROM pieces WHERE data = 3"}) {
    const std::string name = Interrupt(SlicedJob(sql, "fake"));
    Execute(sql);
    JobTestServer server(folder_.path());
    const v1::Job job = server.Wait(name);
    EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED) << sql;
    EXPECT_EQ(job.error().reason(), "CHECKSUM_MISMATCH") << sql;
  }
}

TEST_F(JobResumeTest, ADamagedResultIsNotRead) {
  JobTestServer server(folder_.path());
  const std::string name = server.Submit(ProductJob("one")).response.job().name();
  ASSERT_EQ(server.Wait(name).state(), v1::JOB_STATE_SUCCEEDED);
  Execute("UPDATE pieces SET bytes = zeroblob(length(bytes)) WHERE data = 5");
  EXPECT_EQ(Summary(server.ReadAll(name).status), "DATA_LOSS CHECKSUM_MISMATCH ");
}

TEST_F(JobResumeTest, WithoutMemoryAJobWaitsAndAtLastFails) {
  JobTestServer server(folder_.path());
  // Each try gets one group further than the one before.
  server.fake().FailNth(Entry::kRunGroup, 3, Error(Reason::kDeviceMemory, "full"));
  const std::string name = server.Submit(SlicedJob("one", "fake")).response.job().name();
  const v1::Job job = server.Wait(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(job.resume_count(), 1);
  server.fake().FailNth(Entry::kRunGroup, 0, Error(Reason::kDeviceMemory, "full"));
  const std::string hopeless = server.Submit(SlicedJob("two", "fake")).response.job().name();
  const v1::Job failed = server.Wait(hopeless);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.error().reason(), "DEVICE_MEMORY");
  EXPECT_GT(failed.resume_count(), 1);
}

TEST_F(JobResumeTest, AJobOutlivesItsDevice) {
  std::string name;
  {
    JobTestServer server(folder_.path());
    server.fake().FailNth(Entry::kRunGroup, 5, Error(Reason::kDeviceFault, "gone"));
    name = server.Submit(SlicedJob("one", "fake")).response.job().name();
    ASSERT_EQ(server.WaitFor(name, v1::JOB_STATE_SUSPENDED).state(), v1::JOB_STATE_SUSPENDED);
    // The device does not come back in this process.
    const auto another = server.Submit(SlicedJob("two", "fake"));
    EXPECT_EQ(another.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  JobTestServer server(folder_.path());
  const v1::Job job = server.Wait(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(server.fake().groups().size(), 12u);
}

TEST_F(JobResumeTest, ADefectOfTheWorkFailsAtOnce) {
  JobTestServer server(folder_.path());
  server.fake().FailNth(Entry::kRunGroup, 3, Error(Reason::kInternal, "broken"));
  const v1::Job job = server.Wait(server.Submit(SlicedJob("one", "fake")).response.job().name());
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "INTERNAL");
  EXPECT_EQ(job.resume_count(), 0);
  EXPECT_FALSE(job.has_report());
}

TEST_F(JobResumeTest, AJobThatRunsTooLongFails) {
  JobTestServer server(folder_.path());
  server.fake().StallNth(Entry::kRunGroup, 2);
  v1::SubmitContractionHeader header = SlicedJob("one", "fake");
  header.set_max_run_seconds(0.01);
  const v1::Job job = server.Wait(server.Submit(header).response.job().name());
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "DEADLINE");
  EXPECT_EQ(job.error().field(), "header.max_run_seconds");
  EXPECT_EQ(job.error().metadata().at("limit_seconds"), "0.01");
  EXPECT_NE(job.error().message().find("limit of 0.01"), std::string::npos);
}

TEST_F(JobResumeTest, AGroupThatDoesNotEndIsCancelledOnTheWayOut) {
  std::string name;
  {
    JobServerOptions options;
    options.runner.stop_limit = std::chrono::milliseconds(10);
    JobTestServer server(folder_.path(), options);
    server.fake().StallNth(Entry::kRunGroup, 4);
    name = server.Submit(SlicedJob("one", "fake")).response.job().name();
    server.fake().WaitUntilStalled();
    server.StopRunner();
    v1::Job job;
    ASSERT_TRUE(server.Get(name, &job).ok());
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUSPENDED);
    EXPECT_EQ(job.groups_done(), 3);
  }
  JobTestServer server(folder_.path());
  EXPECT_EQ(server.Wait(name).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobResumeTest, AJobThatComputesIsWatchedLikeOtherWork) {
  JobTestServer server(folder_.path());
  WorkWatch& watch = server.state().work_watch;
  watch.Configure({.stuck = std::chrono::milliseconds(1)}, nullptr);
  JobGate gate;  // deaf to cancellation
  gate.CloseAfter(&server.fake(), 3);
  const std::string name = server.Submit(SlicedJob("one", "fake")).response.job().name();
  gate.WaitUntilReached();
  const std::vector<WorkWatch::Task> running = watch.Running();
  EXPECT_FALSE(watch.stuck());
  EXPECT_EQ(Summary(server.Cancel(name)), "OK");
  while (!running.empty() && !watch.stuck()) watch.Look();
  gate.Open();
  EXPECT_EQ(server.Wait(name).state(), v1::JOB_STATE_CANCELLED);
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].method, "tenon.v1.JobService");
  EXPECT_EQ("jobs/" + running[0].request_id, name);
  EXPECT_EQ(running[0].phase, "executing");
  EXPECT_TRUE(watch.Running().empty());
}

TEST_F(JobResumeTest, AFullDiskFailsTheJobAndNotTheServer) {
  JobServerOptions options;
  options.store.max_bytes = int64_t{4} << 20;
  JobTestServer server(folder_.path(), options);
  // The result is of 8 MiB.
  v1::SubmitContractionHeader header;
  v1::ContractHeader* contraction = header.mutable_contraction();
  const std::vector<std::complex<double>> ones(1024, 1.0);
  AddOperand(contraction, {"i"}, v1::DATA_TYPE_FLOAT64, {1024}, ones);
  AddOperand(contraction, {"j"}, v1::DATA_TYPE_FLOAT64, {1024}, ones);
  SetOutput(contraction, {"i", "j"});
  const auto large = server.Submit(header);
  ASSERT_EQ(Summary(large.status), "OK");
  const v1::Job failed = server.Wait(large.response.job().name());
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.error().reason(), "STORAGE_FULL");
  EXPECT_EQ(failed.stored_bytes(), 0);
  const auto small = server.Submit(ProductJob("two"));
  ASSERT_EQ(Summary(small.status), "OK");
  EXPECT_EQ(server.Wait(small.response.job().name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobResumeTest, AFullDiskEndsTheSubmission) {
  JobServerOptions options;
  options.store.max_bytes = int64_t{2} << 20;
  JobTestServer server(folder_.path(), options);
  v1::SubmitContractionHeader header;
  v1::ContractHeader* contraction = header.mutable_contraction();
  AddOperand(contraction, {"i"}, v1::DATA_TYPE_FLOAT64, {1 << 19});
  SetOutput(contraction, {});
  const std::string operand(size_t{4} << 20, '\0');
  EXPECT_EQ(Summary(server.Submit(header, {operand}).status), "RESOURCE_EXHAUSTED STORAGE_FULL ");
  EXPECT_EQ(Summary(server.Submit(ProductJob("two")).status), "OK");
}

TEST_F(JobResumeTest, AJobWaitsWhileOthersHoldTheMemory) {
  JobTestServer server(folder_.path(), {.run = false});
  MemoryBudget& budget = server.state().budget;
  auto all = budget.Reserve(budget.limit_bytes() - (int64_t{1} << 20));
  ASSERT_TRUE(all.ok());
  const std::string name = server.Submit(ProductJob("one")).response.job().name();
  auto rest = budget.Reserve(budget.limit_bytes() - budget.reserved_bytes());
  ASSERT_TRUE(rest.ok());
  server.StartRunner();
  EXPECT_EQ(server.WaitFor(name, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  all->Release();
  rest->Release();
  EXPECT_EQ(server.Wait(name).state(), v1::JOB_STATE_SUCCEEDED);
}

// Its plan has room, the sums that it goes on from have none yet.
TEST_F(JobResumeTest, AJobWaitsForTheMemoryOfItsSums) {
  const std::string name = Interrupt(SlicedJob("one", "fake"));
  JobTestServer server(folder_.path(), {.run = false});
  MemoryBudget& budget = server.state().budget;
  auto others =
      budget.Reserve(budget.limit_bytes() - budget.reserved_bytes() - planned_peak_bytes_);
  ASSERT_TRUE(others.ok());
  server.StartRunner();
  while (budget.waiting(Priority::kBulk) == 0) std::this_thread::yield();
  others->Release();
  const v1::Job job = server.Wait(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(job.resume_count(), 1);
  EXPECT_LT(server.fake().groups().size(), static_cast<size_t>(job.groups_total()));
}

}  // namespace
}  // namespace tenon::server
