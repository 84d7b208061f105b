// Reading the result of a job over connections that break.

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
  int chunks_per_read = 3;  // of 80 bytes
  bool progress = true;     // else the first read gives nothing, and so does every other
  grpc::Status end = grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  uint32_t wrong = 0;  // in the checksum of the whole
  std::vector<int64_t> offsets;

 private:
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

absl::StatusOr<JobResult> Read(BreakingJobs* server, int tries = 2) {
  auto client = Client::Connect(server->address);
  if (!client.ok()) return client.status();
  return client->ReadJobResult("jobs/1", {}, {tries, absl::Milliseconds(1)});
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
  EXPECT_EQ(Read(&server, 3).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.offsets.size(), 3u);
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
