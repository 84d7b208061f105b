// A whole server in the test's process and what the tests of load do with it.

#ifndef TENON_TESTS_LOAD_LOAD_FIXTURE_H_
#define TENON_TESTS_LOAD_LOAD_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/job_board.h"
#include "server/logging.h"
#include "server/state.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Stream = grpc::ClientReaderWriter<v1::ContractRequest, v1::ContractResponse>;

inline constexpr int64_t kMiB = 1 << 20;
inline constexpr double kSlack = 10;  // other work on the machine
inline constexpr double kPromisedCancelSeconds = 0.1;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

inline void Print(const char* what, const std::vector<double>& seconds) {
  std::printf("%s: %zu, median %.2f ms, p99 %.2f ms, longest %.2f ms\n", what, seconds.size(),
              1e3 * Percentile(seconds, 0.5), 1e3 * Percentile(seconds, 0.99),
              1e3 * Percentile(seconds, 1));
}

// A header whose operands come in chunks, by einsum and extents per operand.
inline v1::ContractRequest Header(const std::string& einsum,
                                  const std::vector<std::vector<int64_t>>& shapes) {
  v1::ContractRequest request;
  request.mutable_header()->mutable_einsum()->set_subscripts(einsum);
  for (const std::vector<int64_t>& shape : shapes) {
    v1::TensorSpec* spec =
        request.mutable_header()->mutable_einsum()->add_operands()->mutable_spec();
    spec->set_dtype(v1::DATA_TYPE_FLOAT32);
    for (const int64_t extent : shape) spec->add_shape(extent);
  }
  return request;
}

// One contraction, from outside.
class Contraction {
 public:
  Contraction(const std::shared_ptr<grpc::Channel>& channel, const v1::ContractRequest& header)
      : stub_(v1::ContractionService::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    stream_ = stub_->Contract(&context_);
    stream_->Write(header);
  }
  ~Contraction() {
    context_.TryCancel();
    if (!finished_) Finish();
  }

  void Upload(int32_t operand, int64_t bytes) {
    v1::ContractRequest request;
    v1::TensorChunk* chunk = request.mutable_chunk();
    chunk->set_operand(operand);
    for (int64_t offset = 0; offset < bytes; offset += kMiB) {
      chunk->set_offset_bytes(offset);
      chunk->mutable_data()->resize(static_cast<size_t>(std::min(kMiB, bytes - offset)));
      if (!stream_->Write(request)) return;
    }
  }
  // The kind of the next frame; FRAME_NOT_SET at the end.
  v1::ContractResponse::FrameCase Read() {
    v1::ContractResponse frame;
    return stream_->Read(&frame) ? frame.frame_case() : v1::ContractResponse::FRAME_NOT_SET;
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() {
    v1::ContractResponse frame;
    while (stream_->Read(&frame)) {
    }
    finished_ = true;
    return stream_->Finish();
  }

 private:
  std::unique_ptr<v1::ContractionService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  bool finished_ = false;
};

// Seconds of work, in four slices.
inline constexpr int64_t kExtent = 3000;
inline v1::ContractRequest LongProduct() {
  v1::ContractRequest request =
      Header("sij,sjk->ik", {{4, kExtent, kExtent}, {4, kExtent, kExtent}});
  v1::ExplicitPlan* path = request.mutable_header()->mutable_path();
  v1::PathStep* step = path->mutable_path()->add_steps();
  step->add_operands(0);
  step->add_operands(1);
  path->mutable_path()->set_format(v1::PATH_FORMAT_SSA);
  path->add_sliced_indices("s");
  return request;
}

class LoadServerTest : public ::testing::Test {
 protected:
  void Start(const server::Config& config, server::Server::Parts parts = {}) {
    server::InitLogging("error", /*json=*/false);
    server_ = StartOrDie(config, std::move(parts));
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = Connect();
    provider_ = v1::ProviderService::NewStub(channel_);
  }
  std::shared_ptr<grpc::Channel> Connect() const { return ChannelTo(server_->addresses()[0]); }

  // Its streams take so much that nobody has read, and not more as the connection proves fast.
  std::shared_ptr<grpc::Channel> ConnectWithWindow(int bytes) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, bytes);
    return grpc::CreateCustomChannel(server_->addresses()[0], grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  int64_t AdmittedBytes() {
    grpc::ClientContext context;
    v1::GetStatisticsResponse statistics;
    EXPECT_TRUE(provider_->GetStatistics(&context, {}, &statistics).ok());
    return statistics.memory().admitted_bytes();
  }
  bool WaitForAdmitted(bool some) {
    const Clock::time_point start = Clock::now();
    while (SecondsSince(start) < 60) {
      if ((AdmittedBytes() > 0) == some) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }

  // Whether everything of all calls and jobs is over within a minute: workers, memory, and the
  // calls themselves.
  bool WaitUntilIdle() const {
    const server::ServerState& state = *server_->state();
    const Clock::time_point start = Clock::now();
    while (SecondsSince(start) < 60) {
      if (state.metrics.in_flight() == 0 && state.running() == 0 &&
          (state.jobs == nullptr || state.jobs->running() == 0) &&
          state.budget.reserved_bytes() == 0) {
        return true;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }

  // Seconds of `count` health checks on a connection of their own.
  std::vector<double> CheckHealth(int count) const {
    const auto channel = Connect();
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      std::string answer;
      const Clock::time_point start = Clock::now();
      const grpc::Status status =
          RawUnary(channel, "/grpc.health.v1.Health/Check", std::string("\x0A\x00", 2), &answer);
      seconds.push_back(SecondsSince(start));
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(answer, std::string("\x08\x01"));  // SERVING
      std::this_thread::sleep_for(milliseconds(5));
    }
    return seconds;
  }

  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ProviderService::Stub> provider_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_LOAD_LOAD_FIXTURE_H_
