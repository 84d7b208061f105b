// Work that does not stop when it is told to, and connections that are silent for long.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "server/server.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"
#include "tests/support/fake_provider.h"

namespace tenon::testing {
namespace {

using server::Server;
using Clock = std::chrono::steady_clock;

// A server whose only provider computes while the gate is shut, deaf to its cancellation.
class DeafWorkTest : public ::testing::Test {
 protected:
  DeafWorkTest() {
    fake_.slice_value = [this](int64_t, int64_t, int64_t) {
      if (!std::exchange(told_, true)) begun_.set_value();
      opened_.wait();
      return 1.0;
    };
  }
  ~DeafWorkTest() override { Open(); }

  void Open() {
    if (!std::exchange(open_, true)) gate_.set_value();
  }

  std::unique_ptr<Server> Start(server::Config config) {
    Server::Parts parts;
    parts.providers = {{"cpu", fake_.api(), fake_.options()}};
    config.providers = {"cpu"};
    auto server = StartOrDie(config, std::move(parts));
    EXPECT_TRUE(server->WaitUntilReady());
    return server;
  }

  static v1::ContractRequest Request() {
    v1::ContractRequest frame;
    v1::ContractHeader* header = frame.mutable_header();
    header->set_request_id("deaf");
    for (const char* index : {"a", "b"}) {
      v1::Operand* operand = header->mutable_network()->add_operands();
      operand->add_indices(index);
      operand->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
      operand->mutable_spec()->add_shape(1);
      operand->set_inline_data(std::string(8, '\0'));
    }
    return frame;
  }

  FakeProvider fake_{"cpu"};
  std::promise<void> gate_, begun_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  bool told_ = false, open_ = false;
};

char StatusIn(const std::string& health) {
  return health.size() == 2 && health[0] == 0x08 ? health[1] : 0;
}

TEST_F(DeafWorkTest, TakesTheReadinessUntilItEnds) {
  server::Config config = TestConfigWithHttp();
  config.stuck_work_limit = absl::Milliseconds(40);
  const auto server = Start(config);
  const auto channel = ChannelTo(server->addresses()[0]);
  RawCall watch(channel, "/grpc.health.v1.Health/Watch");
  watch.Write("");
  watch.WritesDone();
  ASSERT_EQ(StatusIn(watch.Read().value_or("")), 1);  // SERVING

  RawCall call(channel, "/tenon.v1.ContractionService/Contract");
  call.Write(Request().SerializeAsString());
  begun_.get_future().wait();
  const auto running = server->state()->work_watch.Running();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].request_id, "deaf");
  EXPECT_EQ(running[0].method, "tenon.v1.ContractionService/Contract");
  EXPECT_EQ(running[0].phase, "executing");
  call.Cancel();
  EXPECT_EQ(StatusIn(watch.Read().value_or("")), 2);  // pushed when it is found
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/readyz").code, 503);
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/livez").code, 200);
  // Who comes all the same is served.
  std::string response;
  EXPECT_TRUE(RawUnary(channel, "/tenon.v1.ProviderService/GetServerInfo", "", &response).ok());
  Open();
  EXPECT_EQ(StatusIn(watch.Read().value_or("")), 1);
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/readyz").code, 200);
}

TEST_F(DeafWorkTest, MakesTheServerExitWithAnErrorAfterTheKillLimit) {
  server::Config config = TestConfig();
  config.grace_period = absl::Milliseconds(10);
  config.kill_limit = absl::Milliseconds(100);
  const auto server = Start(config);
  RawCall call(ChannelTo(server->addresses()[0]), "/tenon.v1.ContractionService/Contract");
  call.Write(Request().SerializeAsString());
  begun_.get_future().wait();
  server->Shutdown();
  EXPECT_FALSE(server->Wait());
  Open();
}

// Seconds until the call fails, or `longest` when it does not.
double SecondsUntilCut(RawCall* call, std::chrono::milliseconds longest) {
  const auto start = Clock::now();
  std::promise<void> cut;
  std::future<void> is_cut = cut.get_future();
  std::thread reader([&] {
    if (!call->Read().has_value()) cut.set_value();
  });
  is_cut.wait_for(longest);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  call->Cancel();
  reader.join();
  return seconds;
}

std::shared_ptr<grpc::Channel> PingingChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 50);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// Ten minutes with pings every 30 s, in small: a silent computation outlives many times the pings
// that would end it at a server that takes them amiss.
TEST_F(DeafWorkTest, ASilentComputationSurvivesAPingingClient) {
  const auto silent_for = [this](absl::Duration least_interval, std::chrono::milliseconds longest) {
    server::Config config = TestConfig();
    config.keepalive_min_client_interval = least_interval;
    config.kill_limit = absl::Seconds(20);
    const auto server = Start(config);
    RawCall call(PingingChannel(server->addresses()[0]), "/tenon.v1.ContractionService/Contract");
    call.Write(Request().SerializeAsString());
    const double seconds = SecondsUntilCut(&call, longest);
    Open();
    return seconds;
  };
  const double strict = silent_for(absl::Hours(1), std::chrono::seconds(20));
  ASSERT_LT(strict, 15) << "such a server cuts the connection";
  gate_ = std::promise<void>();
  opened_ = gate_.get_future().share();
  open_ = false;
  const auto longest = std::chrono::milliseconds(static_cast<int64_t>(4000 * strict) + 1);
  EXPECT_GE(silent_for(absl::Milliseconds(10), longest), 4 * strict);
}

}  // namespace
}  // namespace tenon::testing
