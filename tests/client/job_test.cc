// Watching a job and reading its result over connections that break.

#include "tenon/job.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/core/crc32c.h"
#include "tenon/client.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tests/client/fake_server.h"
#include "tests/client/tool_fixture.h"
#include "tests/support/status_matchers.h"

namespace tenon::client {
namespace {

using ::tenon::testing::Fails;

// Sends so many chunks of a result and then breaks the call.
class BreakingJobs final : public v1::JobService::Service {
 public:
  BreakingJobs() {
    for (int i = 0; i < 100; ++i) bytes_.append(8, static_cast<char>(i));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
  }
  ~BreakingJobs() override { server_->Shutdown(); }

  std::string address;
  // What each watch sends before it ends, in turn; the last one ends well, the others with `end`.
  std::vector<std::vector<v1::JobState>> watches;
  size_t watched = 0;
  int chunks_per_read = 3;  // of 80 bytes
  bool progress = true;     // else the first read gives nothing, and so does every other
  grpc::Status end = grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  uint32_t wrong = 0;  // in the checksum of the whole
  std::vector<int64_t> offsets;

 private:
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    EXPECT_EQ(request->name(), "jobs/1");
    const size_t i = std::min(watched++, watches.size() - 1);
    for (const v1::JobState state : watches[i]) {
      v1::WatchJobResponse frame;
      frame.mutable_job()->set_name("jobs/1");
      frame.mutable_job()->set_state(state);
      writer->Write(frame);
    }
    return i + 1 < watches.size() ? end : grpc::Status::OK;
  }

  grpc::Status ReadResult(grpc::ServerContext*, const v1::ReadResultRequest* request,
                          grpc::ServerWriter<v1::ReadResultResponse>* writer) override {
    offsets.push_back(request->offset_bytes());
    EXPECT_EQ(request->name(), "jobs/1");
    if (!progress) return end;
    v1::ReadResultResponse frame;
    v1::ContractResult* result = frame.mutable_result();
    result->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
    result->mutable_spec()->add_shape(100);
    result->set_log10_scale(3);
    result->mutable_report()->set_result_crc32c(Crc32c(bytes_) + wrong);
    writer->Write(frame);
    auto offset = static_cast<size_t>(request->offset_bytes());
    for (int i = 0; i < chunks_per_read && offset < bytes_.size(); ++i, offset += 80) {
      v1::TensorChunk* chunk = frame.mutable_chunk();
      chunk->set_offset_bytes(static_cast<int64_t>(offset));
      chunk->set_data(bytes_.substr(offset, 80));
      chunk->set_crc32c(Crc32c(chunk->data()));
      writer->Write(frame);
    }
    return offset < bytes_.size() ? end : grpc::Status::OK;
  }

  std::string bytes_;
  std::unique_ptr<grpc::Server> server_;
};

absl::StatusOr<JobResult> Read(BreakingJobs* server,
                               absl::Duration patience = absl::InfiniteDuration()) {
  auto client = Client::Connect(server->address);
  if (!client.ok()) return client.status();
  return client->ReadJobResult("jobs/1", {}, {patience, absl::Milliseconds(1)});
}

TEST(JobReadTest, GoesOnWhereItBroke) {
  BreakingJobs server;
  const auto result = Read(&server);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tensor.spec.shape, (std::vector<int64_t>{100}));
  EXPECT_EQ(result->log10_scale, 3.0);
  EXPECT_EQ(server.offsets, (std::vector<int64_t>{0, 240, 480, 720}));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(result->tensor.buffer.as<char>()[i * 8 + 3], static_cast<char>(i));
  }
}

TEST(JobReadTest, GivesUpWhenNothingComes) {
  BreakingJobs server;
  server.progress = false;
  server.end = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  EXPECT_EQ(Read(&server, absl::Milliseconds(5)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_GE(server.offsets.size(), 2u);
}

TEST(JobReadTest, WhereNothingWasHeardNothingIsRepeated) {
  BreakingJobs server;
  server.progress = false;  // and "gone" without details is the transport's word
  EXPECT_TRUE(IsUnreachable(Read(&server).status()));
  EXPECT_EQ(server.offsets.size(), 1u);
}

TEST(JobReadTest, ARefusalIsNotRepeated) {
  BreakingJobs server;
  server.end = grpc::Status(grpc::StatusCode::NOT_FOUND, "deleted");
  EXPECT_EQ(Read(&server).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server.offsets.size(), 1u);
}

TEST(JobReadTest, TheWholeIsChecked) {
  BreakingJobs server;
  server.wrong = 1;
  EXPECT_TRUE(Fails(Read(&server), Reason::kChecksumMismatch));
  BreakingJobs shorter;
  shorter.end = grpc::Status::OK;
  EXPECT_TRUE(Fails(Read(&shorter), Reason::kInternal));
}

TEST(JobWatchTest, GoesOnAfterABreak) {
  BreakingJobs server;
  server.watches = {{v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING},
                    {},
                    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}};
  auto client = Client::Connect(server.address);
  ASSERT_TRUE(client.ok());
  std::vector<v1::JobState> states;
  JobCallbacks callbacks;
  callbacks.on_job = [&](const v1::Job& job) { states.push_back(job.state()); };
  std::vector<absl::Duration> pauses;
  JobWatchOptions watch;
  watch.retry.pause = absl::Milliseconds(1);
  watch.retry.on_break = [&](const absl::Status& error, absl::Duration pause) {
    EXPECT_TRUE(IsUnreachable(error)) << error;
    pauses.push_back(pause);
  };
  const auto job = client->WatchJob("jobs/1", {}, callbacks, watch);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(states, (std::vector<v1::JobState>{v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING,
                                               v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}));
  EXPECT_EQ(pauses, (std::vector<absl::Duration>{absl::Milliseconds(1), absl::Milliseconds(2)}));
}

TEST(JobWatchTest, GivesUp) {
  BreakingJobs server;
  server.watches = {{v1::JOB_STATE_RUNNING}, {v1::JOB_STATE_SUCCEEDED}};
  auto client = Client::Connect(server.address);
  ASSERT_TRUE(client.ok());
  JobWatchOptions watch;
  watch.retry.patience = absl::ZeroDuration();
  EXPECT_TRUE(IsUnreachable(client->WatchJob("jobs/1", {}, {}, watch).status()));
  EXPECT_EQ(server.watched, 1u);
  // Nor is a refusal repeated, whatever the patience.
  server.watched = 0;
  server.end = grpc::Status(grpc::StatusCode::NOT_FOUND, "deleted");
  EXPECT_EQ(client->WatchJob("jobs/1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server.watched, 1u);
}

TEST(JobWatchTest, TheCommandSaysThatItTriesAgain) {
  BreakingJobs server;
  server.watches = {{v1::JOB_STATE_RUNNING}, {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}};
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"job", "watch", "1", "--server", server.address};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tool::RunWith(arguments);
  };
  tool::Result result = run({});
  EXPECT_EQ(result.code, tool::kExitOk) << result.err;
  EXPECT_TRUE(result.out.starts_with("running\nsucceeded\n")) << result.out;
  EXPECT_NE(result.err.find("gone; trying again in 250 ms\n"), std::string::npos) << result.err;
  server.watched = 0;
  result = run({"--reconnect", "0"});
  EXPECT_EQ(result.code, tool::kExitUnreachable);
  EXPECT_EQ(result.err.find("trying again"), std::string::npos) << result.err;
  EXPECT_EQ(run({"--reconnect", "-1"}).code, tool::kExitUsage);
}

TEST(JobSubmitTest, OneSetOnly) {
  BreakingJobs server;
  auto client = Client::Connect(server.address);
  ASSERT_TRUE(client.ok());
  JobRequest request;
  request.contraction.einsum = "ab->a";
  request.contraction.next_set = [](int64_t, std::vector<TensorView>*) { return false; };
  EXPECT_TRUE(Fails(client->SubmitJob(request), Reason::kBadParameter, "next_set"));
}

}  // namespace
}  // namespace tenon::client
