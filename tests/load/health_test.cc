// Probes are answered at once, however busy the machine's compute threads are.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/strings.h"
#include "server/server.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPromisedSeconds = 0.05;
constexpr double kSlack = 10;  // other work on the machine
constexpr int kProbes = 200;

// Five small tensors, each bound to every other one: some ten million multiply-adds and a scalar.
v1::ContractRequest Heavy() {
  constexpr int kTensors = 5;
  constexpr int64_t kBond = 9;
  v1::ContractRequest frame;
  v1::Network* network = frame.mutable_header()->mutable_network();
  for (int k = 0; k < kTensors; ++k) {
    v1::Operand* operand = network->add_operands();
    int64_t count = 1;
    for (int other = 0; other < kTensors; ++other) {
      if (other == k) continue;
      operand->add_indices(StrCat("b", std::min(k, other), std::max(k, other)));
      operand->mutable_spec()->add_shape(kBond);
      count *= kBond;
    }
    operand->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
    operand->set_inline_data(std::string(static_cast<size_t>(count) * sizeof(double), '\0'));
  }
  return frame;
}

TEST(Health, IsAnsweredWhileAllThreadsCompute) {
  const auto server = StartOrDie(TestConfigWithHttp());
  ASSERT_TRUE(server->WaitUntilReady());
  const std::string address = server->addresses()[0];
  std::atomic<bool> stop{false};
  std::atomic<int> contractions{0};
  std::vector<std::thread> load;
  for (int client = 0; client < 4; ++client) {
    load.emplace_back([&] {
      const auto stub = v1::ContractionService::NewStub(ChannelTo(address));
      const v1::ContractRequest request = Heavy();
      while (!stop) {
        grpc::ClientContext context;
        const auto stream = stub->Contract(&context);
        stream->Write(request);
        stream->WritesDone();
        for (v1::ContractResponse frame; stream->Read(&frame);) {
        }
        if (stream->Finish().ok()) ++contractions;
      }
    });
  }
  while (contractions < 8) std::this_thread::yield();
  const auto channel = ChannelTo(address);
  std::vector<double> seconds;
  for (int i = 0; i < kProbes; ++i) {
    const auto start = Clock::now();
    std::string response;
    EXPECT_TRUE(RawUnary(channel, "/grpc.health.v1.Health/Check", "", &response).ok());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  const auto http_start = Clock::now();
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/readyz").code, 200);
  const double http = std::chrono::duration<double>(Clock::now() - http_start).count();
  stop = true;
  for (std::thread& thread : load) thread.join();
  std::sort(seconds.begin(), seconds.end());
  std::printf("health under load: median %.2f ms, longest %.2f ms; /readyz %.2f ms; %d calls\n",
              1e3 * seconds[seconds.size() / 2], 1e3 * seconds.back(), 1e3 * http,
              contractions.load());
  EXPECT_LT(seconds.back(), kSlack * kPromisedSeconds);
  EXPECT_LT(http, kSlack * kPromisedSeconds);
}

}  // namespace
}  // namespace tenon::testing
