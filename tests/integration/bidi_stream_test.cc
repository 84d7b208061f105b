#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tenon/v1/contraction.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/stream_service.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

using ::testing::ElementsAre;

class BidiStreamTest : public ::testing::Test {
 protected:
  void Start(const server::Config& config) {
    server::Server::Parts parts;
    parts.extend = [this](grpc::ServerBuilder* builder) {
      builder->RegisterCallbackGenericService(&service_);
    };
    server_ = StartOrDie(config, std::move(parts));
    service_.set_state(server_->state());
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = ChannelTo(server_->addresses()[0]);
  }

  StreamService service_;
  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(BidiStreamTest, EchoesInOrderAndEndsWithOk) {
  Start(TestConfig());
  RawCall call(channel_, "/test/echo");
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(call.Write(std::to_string(i)));
  ASSERT_TRUE(call.WritesDone());
  for (int i = 0; i < 200; ++i) ASSERT_EQ(call.Read(), std::to_string(i));
  EXPECT_EQ(call.Read(), std::nullopt);
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(service_.WaitForEnds(1).size(), 1u);
}

TEST_F(BidiStreamTest, ChunksComeWithoutBeingParsed) {
  Start(TestConfig());
  RawCall call(channel_, "/test/chunk");
  std::vector<std::string> expected;
  for (const size_t bytes : {1u << 20, 100u, 300'001u, 5000u}) {
    v1::ContractRequest frame;
    std::string* data = frame.mutable_chunk()->mutable_data();
    for (size_t i = 0; i < bytes; ++i) *data += static_cast<char>(i * i % 251);
    expected.push_back(bytes < 4096 ? "parsed" : StrCat("2:", *data));
    ASSERT_TRUE(call.Write(frame.SerializeAsString()));
  }
  ASSERT_TRUE(call.WritesDone());
  for (const std::string& answer : expected) EXPECT_TRUE(call.Read() == answer) << answer.size();
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(BidiStreamTest, ManyStreamsAtOnce) {
  Start(TestConfig());
  std::vector<std::unique_ptr<RawCall>> calls;
  for (int i = 0; i < 60; ++i) {
    calls.push_back(std::make_unique<RawCall>(channel_, "/test/echo"));
    ASSERT_TRUE(calls.back()->Write(StrCat("call ", i)));
  }
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(calls[i]->Read(), StrCat("call ", i));
    ASSERT_TRUE(calls[i]->WritesDone());
    EXPECT_TRUE(calls[i]->Finish().ok());
  }
  EXPECT_EQ(service_.WaitForEnds(60).size(), 60u);
  EXPECT_EQ(server_->state()->metrics.in_flight(), 0);
}

TEST_F(BidiStreamTest, FailureOvertakesWhatIsQueued) {
  Start(TestConfig());
  RawCall call(channel_, "/test/fail");
  ASSERT_TRUE(call.Write("x"));
  int messages = 0;
  while (call.Read().has_value()) ++messages;
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "BAD_PATH");
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("BAD_PATH"));
  // The flood has no end; what had not been produced when the call failed was never sent.
  EXPECT_LE(messages, service_.produced_at_failure());
}

// As when a call is cancelled while one thread makes a frame and another one has the next.
TEST_F(BidiStreamTest, WhatIsSentWhileItFailsIsDropped) {
  Start(TestConfig());
  RawCall call(channel_, "/test/fail_while_producing");
  ASSERT_TRUE(call.Write("x"));
  EXPECT_EQ(call.Read(), std::nullopt);
  EXPECT_EQ(ReasonOf(call.Finish()), "BAD_PATH");
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("BAD_PATH"));
}

TEST_F(BidiStreamTest, CancellationReachesTheToken) {
  Start(TestConfig());
  RawCall call(channel_, "/test/wait");
  ASSERT_TRUE(call.Write("x"));
  ASSERT_EQ(call.Read(), "x");
  call.Cancel();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("CLIENT_CANCELLED"));
}

TEST_F(BidiStreamTest, DeadlineReachesTheTokenAsDeadline) {
  Start(TestConfig());
  RawCall call(channel_, "/test/wait", std::chrono::milliseconds(300));
  call.Write("x");
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("DEADLINE"));
}

TEST_F(BidiStreamTest, AClientThatDoesNotReadIsCut) {
  server::Config config = TestConfig();
  config.write_stall_timeout = absl::Milliseconds(100);
  Start(config);
  RawCall flood(channel_, "/test/flood");
  ASSERT_TRUE(flood.Write("x"));
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("SLOW_READER"));
  while (flood.Read().has_value()) {
  }
  const grpc::Status status = flood.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "SLOW_READER: the client did not read for too long");

  RawCall echo(ChannelTo(server_->addresses()[0]), "/test/echo");  // others are not touched
  ASSERT_TRUE(echo.Write("y"));
  EXPECT_EQ(echo.Read(), "y");
}

// Everything is queued and the end is OK, but the client never takes it: that is no success.
TEST_F(BidiStreamTest, AnAnswerThatNobodyReadsEndsAsSlowReader) {
  server::Config config = TestConfig();
  config.write_stall_timeout = absl::Milliseconds(100);
  Start(config);
  RawCall flood(channel_, "/test/flood_and_finish");
  ASSERT_TRUE(flood.Write("x"));
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("SLOW_READER"));
  while (flood.Read().has_value()) {
  }
  EXPECT_EQ(flood.Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(BidiStreamTest, AClientThatStopsInAnUploadIsCut) {
  server::Config config = TestConfig();
  config.read_stall_timeout = absl::Milliseconds(100);
  Start(config);
  RawCall idle(channel_, "/test/idle");
  ASSERT_TRUE(idle.Write("x"));
  RawCall upload(channel_, "/test/upload");
  ASSERT_TRUE(upload.Write("x"));
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("SLOW_WRITER"));
  EXPECT_EQ(upload.Read(), "x");
  EXPECT_EQ(upload.Read(), std::nullopt);
  const grpc::Status status = upload.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ReasonOf(status), "SLOW_WRITER");
  EXPECT_EQ(idle.Read(), "x");
  ASSERT_TRUE(idle.Write("y"));  // it may stand idle for longer
  EXPECT_EQ(idle.Read(), "y");
}

TEST_F(BidiStreamTest, AStreamThatStandsIdleIsCut) {
  server::Config config = TestConfig();
  config.idle_stream_timeout = absl::Milliseconds(100);
  Start(config);
  RawCall echo(channel_, "/test/echo"), busy(channel_, "/test/busy"),
      silent(channel_, "/test/idle");
  for (RawCall* call : {&echo, &busy}) ASSERT_TRUE(call->Write("x"));  // both wait for no client
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("SLOW_WRITER"));    // not even a header came
  EXPECT_EQ(ReasonOf(silent.Finish()), "SLOW_WRITER");
  RawCall idle(channel_, "/test/idle");
  ASSERT_TRUE(idle.Write("x"));
  EXPECT_THAT(service_.WaitForEnds(2), ElementsAre("SLOW_WRITER", "SLOW_WRITER"));
  EXPECT_EQ(idle.Read(), "x");
  EXPECT_EQ(ReasonOf(idle.Finish()), "SLOW_WRITER");
  for (RawCall* call : {&echo, &busy}) EXPECT_EQ(call->Read(), "x");
}

TEST_F(BidiStreamTest, AReaderThatKeepsUpIsNotCut) {
  server::Config config = TestConfig();
  config.write_stall_timeout = absl::Seconds(20);
  Start(config);
  RawCall flood(channel_, "/test/flood");
  ASSERT_TRUE(flood.Write("x"));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(flood.Read()->size(), size_t{1} << 20);
  flood.Cancel();
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("CLIENT_CANCELLED"));
}

TEST_F(BidiStreamTest, TooLargeAMessageEndsTheCallOnly) {
  Start(TestConfig());
  RawCall call(channel_, "/test/echo");
  const auto limit = static_cast<size_t>(server_->state()->limits.max_message_bytes);
  call.Write(std::string(limit + 1, 'x'));
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  RawCall next(channel_, "/test/echo");
  ASSERT_TRUE(next.Write(std::string(limit, 'y')));
  EXPECT_EQ(next.Read()->size(), limit);
}

// Drain with work in flight.

TEST_F(BidiStreamTest, WorkInFlightEndsByItselfWithinTheGracePeriod) {
  Start(TestConfig());
  RawCall call(channel_, "/test/echo");
  ASSERT_TRUE(call.Write("a"));
  ASSERT_EQ(call.Read(), "a");
  server_->Shutdown();
  ASSERT_TRUE(call.Write("b"));
  EXPECT_EQ(call.Read(), "b");
  ASSERT_TRUE(call.WritesDone());
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_TRUE(server_->Wait());
}

TEST_F(BidiStreamTest, WorkEndsAsDrainingWhenTheGracePeriodEnds) {
  server::Config config = TestConfig();
  config.grace_period = absl::Milliseconds(100);
  Start(config);
  RawCall call(channel_, "/test/wait");
  ASSERT_TRUE(call.Write("a"));
  ASSERT_EQ(call.Read(), "a");
  server_->Shutdown();
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  EXPECT_TRUE(server_->Wait());
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("DRAINING"));
}

// Nothing can be told to who does not read, but logs and metrics know.
TEST_F(BidiStreamTest, AClientThatDoesNotReadAtTheEndOfTheGracePeriodLosesTheConnection) {
  server::Config config = TestConfig();
  config.grace_period = absl::Milliseconds(100);
  Start(config);
  RawCall flood(channel_, "/test/flood");
  ASSERT_TRUE(flood.Write("x"));
  ASSERT_TRUE(flood.Read().has_value());
  server_->Shutdown();
  EXPECT_THAT(service_.WaitForEnds(1), ElementsAre("DRAINING"));
  while (flood.Read().has_value()) {
  }
  EXPECT_EQ(flood.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(server_->Wait());
}

// The same for uploads.
TEST_F(BidiStreamTest, AnUploadEndsAsDrainingWhenTheGracePeriodEnds) {
  server::Config config = TestConfig();
  config.grace_period = absl::Milliseconds(100);
  Start(config);
  RawCall upload(channel_, "/tenon.v1.DatasetService/CreateTensor");
  while (server_->state()->metrics.in_flight() == 0) std::this_thread::yield();
  server_->Shutdown();
  const grpc::Status status = upload.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  EXPECT_TRUE(server_->Wait());
}

TEST_F(BidiStreamTest, ASecondShutdownCancelsAtOnce) {
  server::Config config = TestConfig();
  config.drain_delay = absl::Hours(1);
  config.grace_period = absl::Hours(1);
  Start(config);
  RawCall call(channel_, "/test/wait");
  ASSERT_TRUE(call.Write("a"));
  ASSERT_EQ(call.Read(), "a");
  server_->Shutdown();
  server_->Shutdown();
  EXPECT_FALSE(call.Finish().ok());
  EXPECT_TRUE(server_->Wait());
}

TEST_F(BidiStreamTest, StuckWorkIsReportedAfterTheKillLimit) {
  server::Config config = TestConfig();
  config.grace_period = absl::Milliseconds(50);
  config.kill_limit = absl::Milliseconds(100);
  Start(config);
  RawCall call(channel_, "/test/stuck");
  ASSERT_TRUE(call.Write("a"));
  ASSERT_EQ(call.Read(), "a");
  server_->Shutdown();
  EXPECT_FALSE(server_->Wait());
  service_.Release();
  EXPECT_EQ(service_.WaitForEnds(1).size(), 1u);
}

}  // namespace
}  // namespace tenon::testing
