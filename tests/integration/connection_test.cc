// What the settings of connections do: how many calls one carries, and how old it gets.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "server/state.h"
#include "tenon/v1/provider.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/stream_service.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
constexpr std::chrono::seconds kPatience(60);

class ConnectionTest : public ::testing::Test {
 protected:
  void Start(const server::Config& config) {
    server::Server::Parts parts;
    parts.extend = [this](grpc::ServerBuilder* builder) {
      builder->RegisterCallbackGenericService(&service_);
    };
    server_ = StartOrDie(config, std::move(parts));
    service_.set_state(server_->state());
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = NewChannel();
  }
  std::shared_ptr<grpc::Channel> NewChannel() const { return ChannelTo(server_->addresses()[0]); }

  // Calls until the connection under the channel has been closed so often; every call succeeds,
  // but for those that gRPC's client of 1.51 loses when it begins them as the connection goes
  // (github.com/grpc/grpc/issues/31733).
  void CallUntilClosed(int times) const {
    const auto limit = Clock::now() + kPatience;
    for (int closed = 0; closed < times && Clock::now() < limit;) {
      std::string answer;
      const grpc::Status status = RawUnary(channel_, kHealth, "", &answer);
      const bool lost = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                        status.error_message() == "GOAWAY received";
      ASSERT_TRUE(status.ok() || lost) << status.error_message();
      if (channel_->GetState(false) == GRPC_CHANNEL_IDLE) ++closed;
    }
    ASSERT_LT(Clock::now(), limit) << "connections do not age";
  }

  StreamService service_;
  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ConnectionTest, AgeEndsConnectionsAndNoCall) {
  server::Config config = TestConfig();
  config.max_connection_age = absl::Milliseconds(100);
  Start(config);
  RawCall old(channel_, "/test/echo");  // stays on the first connection
  ASSERT_TRUE(old.Write("a"));
  ASSERT_EQ(old.Read(), "a");
  CallUntilClosed(3);
  ASSERT_TRUE(old.Write("b"));
  EXPECT_EQ(old.Read(), "b");
  ASSERT_TRUE(old.WritesDone());
  EXPECT_EQ(old.Read(), std::nullopt);
  EXPECT_TRUE(old.Finish().ok());
}

TEST_F(ConnectionTest, GraceBoundsTheCallsOfAnOldConnection) {
  server::Config config = TestConfig();
  config.max_connection_age = absl::Milliseconds(100);
  config.max_connection_age_grace = absl::Milliseconds(100);
  Start(config);
  RawCall old(channel_, "/test/wait");
  ASSERT_TRUE(old.Write("a"));
  ASSERT_EQ(old.Read(), "a");
  EXPECT_EQ(old.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.WaitForEnds(1).size(), 1u);  // its work is told to stop
  CallUntilClosed(1);
}

TEST_F(ConnectionTest, CallsBeyondTheLimitOfAConnectionWait) {
  server::Config config = TestConfig();
  config.max_concurrent_streams = 2;
  Start(config);
  v1::GetServerInfoResponse info;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::ProviderService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.limits().max_streams_per_connection(), 2);

  RawCall first(channel_, "/test/echo"), second(channel_, "/test/echo");
  for (RawCall* call : {&first, &second}) {
    ASSERT_TRUE(call->Write("a"));
    ASSERT_EQ(call->Read(), "a");
  }
  RawCall third(channel_, "/test/echo", std::chrono::milliseconds(300));
  third.Write("a");
  EXPECT_EQ(third.Read(), std::nullopt);
  EXPECT_EQ(third.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(server_->state()->metrics.in_flight(), 2);  // and it has never been there
  std::string answer;
  EXPECT_TRUE(RawUnary(NewChannel(), kHealth, "", &answer).ok());  // the others' is their own

  // One that waits goes on when there is room.
  auto waiting = std::async(std::launch::async, [this] {
    RawCall call(channel_, "/test/echo");
    call.Write("late");
    return call.Read();
  });
  ASSERT_TRUE(first.Write("still"));
  EXPECT_EQ(first.Read(), "still");
  ASSERT_TRUE(first.WritesDone());
  EXPECT_TRUE(first.Finish().ok());
  EXPECT_EQ(waiting.get(), "late");
}

}  // namespace
}  // namespace tenon::testing
