// No message is larger than a client takes that was not told otherwise: gRPC's 4 MiB.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/state.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

constexpr size_t kMostBytes = 4 << 20;

class MessageSizeTest : public ::testing::Test {
 protected:
  void Start(server::Config config = TestConfig()) {
    server_ = StartOrDie(config);
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
  }

  // Everything that comes; a message that is too large would fail the call.
  template <typename Response, typename Stream>
  std::vector<Response> ReadAll(Stream* stream) {
    std::vector<Response> all;
    Response frame;
    while (stream->Read(&frame)) {
      largest_ = std::max(largest_, frame.ByteSizeLong());
      all.push_back(frame);
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return all;
  }

  // An outer product of two vectors of that many float64; bytes come in one frame each.
  static v1::ContractHeader Outer(int64_t rows, int64_t columns) {
    v1::ContractHeader header;
    header.mutable_einsum()->set_subscripts("i,j->ij");
    for (const int64_t extent : {rows, columns}) {
      v1::TensorSpec* spec = header.mutable_einsum()->add_operands()->mutable_spec();
      spec->set_dtype(v1::DATA_TYPE_FLOAT64);
      spec->add_shape(extent);
    }
    return header;
  }
  template <typename Request, typename Stream>
  static void SendVectors(int64_t rows, int64_t columns, Stream* stream) {
    for (int operand = 0; operand < 2; ++operand) {
      Request request;
      request.mutable_chunk()->set_operand(operand);
      const int64_t extent = operand == 0 ? rows : columns;
      request.mutable_chunk()->set_data(std::string(static_cast<size_t>(extent) * 8, '\0'));
      ASSERT_TRUE(stream->Write(request));
    }
  }

  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::mt19937 random_{7};
  size_t largest_ = 0;
};

TEST_F(MessageSizeTest, OfContractions) {
  Start();
  auto stub = v1::ContractionService::NewStub(channel_);
  for (int i = 0; i < 25; ++i) {
    const auto rows = static_cast<int64_t>(std::exp2(random_() % 1300 / 100.0));
    const auto columns = static_cast<int64_t>(std::exp2(random_() % 900 / 100.0));
    grpc::ClientContext context;
    auto stream = stub->Contract(&context);
    v1::ContractRequest request;
    *request.mutable_header() = Outer(rows, columns);
    v1::ContractResultOptions* result = request.mutable_header()->mutable_result();
    result->set_checksums(random_() % 2 == 0);
    // From the least to the most that are allowed.
    if (random_() % 3 != 0) result->set_chunk_bytes(4096 + random_() % 4'189'185);
    ASSERT_TRUE(stream->Write(request));
    SendVectors<v1::ContractRequest>(rows, columns, stream.get());
    stream->WritesDone();
    size_t bytes = 0;
    for (const auto& frame : ReadAll<v1::ContractResponse>(stream.get())) {
      bytes += frame.chunk().data().size() + frame.result().inline_data().size();
    }
    EXPECT_EQ(bytes, static_cast<size_t>(rows * columns) * 8);
  }
  EXPECT_LE(largest_, kMostBytes);
  EXPECT_GT(largest_, kMostBytes / 2);  // the sizes drawn come near
}

// Answers in one frame, whose plans may be long, too.
TEST_F(MessageSizeTest, OfSmallContractionsAndTheirPlans) {
  Start();
  auto stub = v1::ContractionService::NewStub(channel_);
  for (const int operands : {1, 40, 2000, 30'000}) {
    v1::Network network;
    for (int k = 0; k < operands; ++k) {
      v1::Operand* operand = network.add_operands();
      operand->add_indices(StrCat("an index with a long name ", k));
      operand->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
      operand->mutable_spec()->add_shape(1);
      operand->set_inline_data(std::string(4, '\0'));
    }
    grpc::ClientContext context, plan_context;
    v1::PlanContractionRequest plan;
    *plan.mutable_network() = network;
    plan.mutable_search()->add_methods(v1::SEARCH_METHOD_GREEDY);
    auto planned = stub->PlanContraction(&plan_context, plan);
    EXPECT_FALSE(ReadAll<v1::PlanContractionResponse>(planned.get()).empty());
    auto stream = stub->Contract(&context);
    v1::ContractRequest request;
    *request.mutable_header()->mutable_network() = network;
    *request.mutable_header()->mutable_search() = plan.search();
    ASSERT_TRUE(stream->Write(request));
    stream->WritesDone();
    EXPECT_FALSE(ReadAll<v1::ContractResponse>(stream.get()).empty());
  }
  EXPECT_LE(largest_, kMostBytes);
}

TEST_F(MessageSizeTest, OfLocalScores) {
  Start();
  auto stub = v1::MeasurementService::NewStub(channel_);
  constexpr int kRows = 700, kColumns = 3;
  std::string points;
  for (int i = 0; i < kRows * kColumns; ++i) {
    const double value = static_cast<double>(random_()) / 1e9;
    points.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  for (const int projections : {1, 20, 400}) {
    grpc::ClientContext context;
    auto stream = stub->Measure(&context);
    v1::MeasureRequest request, frame;
    v1::MeasureHeader* header = request.mutable_header();
    v1::TensorSpec* spec = header->mutable_dataset_input()->mutable_spec();
    spec->set_dtype(v1::DATA_TYPE_FLOAT64);
    spec->add_shape(kRows);
    spec->add_shape(kColumns);
    header->mutable_dataset_input()->set_inline_data(points);
    header->add_specs()->set_id("tnc");
    header->set_return_local(true);
    ASSERT_TRUE(stream->Write(request));
    std::vector<v1::MeasureResponse> answers;
    std::thread sender([&] {
      for (int index = 0; index < projections; ++index) {
        v1::Projection* projection = frame.mutable_projection();
        projection->set_index(index);
        *projection->mutable_spec() = *spec;
        projection->set_inline_data(points);
        if (!stream->Write(frame)) break;
      }
      stream->WritesDone();
    });
    answers = ReadAll<v1::MeasureResponse>(stream.get());
    sender.join();
    EXPECT_GE(answers.size(), 1u);
  }
  EXPECT_LE(largest_, kMostBytes);
}

TEST_F(MessageSizeTest, OfJobs) {
  server::Config config = TestConfig();
  config.state_dir = ::testing::TempDir() + StrCat("message_size.", getpid());
  config.state_budget_bytes = int64_t{1} << 30;
  Start(config);
  auto stub = v1::JobService::NewStub(channel_);
  constexpr int64_t kRows = 3000, kColumns = 700;
  v1::SubmitContractionResponse submitted;
  grpc::ClientContext context;
  auto writer = stub->SubmitContraction(&context, &submitted);
  v1::SubmitContractionRequest request;
  *request.mutable_header()->mutable_contraction() = Outer(kRows, kColumns);
  ASSERT_TRUE(writer->Write(request));
  SendVectors<v1::SubmitContractionRequest>(kRows, kColumns, writer.get());
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::WatchJobRequest watch;
  watch.set_name(submitted.job().name());
  grpc::ClientContext watch_context;
  auto watched = stub->WatchJob(&watch_context, watch);
  ReadAll<v1::WatchJobResponse>(watched.get());
  for (int i = 0; i < 8; ++i) {
    v1::ReadResultRequest read;
    read.set_name(submitted.job().name());
    if (i > 0) read.set_chunk_bytes(static_cast<int32_t>(4096 + random_() % 4'189'185));
    read.set_offset_bytes(random_() % (kRows * kColumns * 8));
    grpc::ClientContext read_context;
    auto chunks = stub->ReadResult(&read_context, read);
    size_t bytes = 0;
    for (const auto& frame : ReadAll<v1::ReadResultResponse>(chunks.get())) {
      bytes += frame.chunk().data().size();
    }
    EXPECT_EQ(bytes, static_cast<size_t>(kRows * kColumns * 8 - read.offset_bytes()));
  }
  EXPECT_LE(largest_, kMostBytes);
}

}  // namespace
}  // namespace tenon::testing
