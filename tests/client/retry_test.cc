// Calls that are sent again, and those that are not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "tenon/tenon.h"
#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using namespace tenon::testing;  // NOLINT(build/namespaces): the fake server and its frames

const TensorSpec kPair{DType::kFloat64, {2}};

grpc::Status NotNow() {
  return MakeStatus({.code = grpc::StatusCode::UNAVAILABLE,
                     .reason = "STARTING",
                     .message = "later",
                     .field = "",
                     .metadata = {},
                     .retry_seconds = 0.002});
}

Client ConnectTo(const std::string& address, std::vector<absl::Duration>* pauses = nullptr) {
  ClientOptions options;
  options.default_timeout = absl::Minutes(2);
  options.retry = {.patience = absl::Minutes(1), .pause = absl::Milliseconds(1)};
  if (pauses != nullptr) {
    options.retry.on_break = [pauses](const absl::Status&, absl::Duration pause) {
      pauses->push_back(pause);
    };
  }
  return *Client::Connect(address, options);
}

// Refuses the first `refusals` contractions and answers the others.
struct Refuser {
  int refusals = 1;
  int calls = 0;
  std::set<std::string> ids = {};
  grpc::Status refusal = NotNow();
  bool after_result = false;  // refuses only when a result is out

  grpc::Status operator()(ContractServerStream* stream) {
    v1::ContractRequest header;
    EXPECT_TRUE(stream->Read(&header));
    ids.insert(header.header().request_id());
    const bool refuse = calls++ < refusals;
    if (refuse && !after_result) return refusal;
    stream->Write(AcceptedFrame());
    v1::ContractRequest rest;
    while (stream->Read(&rest)) {
    }
    v1::ContractResponse frame;
    *frame.mutable_result() = InlineResult(0, kPair, BytesOf<double>({5, 6}));
    stream->Write(frame);
    if (refuse) return refusal;
    stream->Write(ReportFrame(1));
    return grpc::Status::OK;
  }
};

class RetryTest : public ::testing::Test {
 protected:
  Refuser refuser_;
  FakeServer server_{{.contract = [this](grpc::ServerContext*, ContractServerStream* stream) {
    return refuser_(stream);
  }}};
  const Tensor tensor_ = MakeTensor({2}, {1, 2});

  ContractRequest Request() const {
    ContractRequest request;
    request.einsum = "a->a";
    request.operands.emplace_back(tensor_);
    return request;
  }
};

TEST_F(RetryTest, TheSameRequestIsSentAgainAfterTheServersPause) {
  refuser_.refusals = 2;
  std::vector<absl::Duration> pauses;
  const auto outcome = ConnectTo(server_.address(), &pauses).Contract(Request());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->results[0].tensor.buffer.as<double>()[1], 6);
  EXPECT_EQ(refuser_.calls, 3);
  ASSERT_EQ(refuser_.ids.size(), 1u);
  EXPECT_EQ(refuser_.ids.begin()->size(), 36u);
  ASSERT_EQ(pauses.size(), 2u);
  for (const absl::Duration pause : pauses) EXPECT_GE(pause, absl::Milliseconds(2));
}

TEST_F(RetryTest, AGivenIdStays) {
  ContractRequest request = Request();
  request.request_id = "mine";
  ASSERT_TRUE(ConnectTo(server_.address()).Contract(request).ok());
  EXPECT_EQ(refuser_.ids, std::set<std::string>{"mine"});
}

TEST_F(RetryTest, EveryRequestHasAnIdOfItsOwn) {
  refuser_.refusals = 0;
  Client client = ConnectTo(server_.address());
  ASSERT_TRUE(client.Contract(Request()).ok());
  ASSERT_TRUE(client.Contract(Request()).ok());
  EXPECT_EQ(refuser_.ids.size(), 2u);
}

TEST_F(RetryTest, WaitingIsForRefusalsThatItHelps) {
  Client client = ConnectTo(server_.address());
  refuser_.refusal =
      MakeStatus({grpc::StatusCode::RESOURCE_EXHAUSTED, "OVERLOADED", "full", "", {}, 0.001});
  ASSERT_TRUE(client.Contract(Request()).ok());
  EXPECT_EQ(refuser_.calls, 2);
  refuser_.calls = 0;
  refuser_.refusal =
      MakeStatus({grpc::StatusCode::INVALID_ARGUMENT, "SHAPE_MISMATCH", "wrong", "", {}, 0});
  EXPECT_EQ(client.Contract(Request()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuser_.calls, 1);
}

TEST_F(RetryTest, ACallMaySwitchItOff) {
  const CallOptions options{.retry = RetryPolicy{.patience = absl::ZeroDuration()}};
  const auto outcome = ConnectTo(server_.address()).Contract(Request(), options);
  EXPECT_EQ(ServerErrorOf(outcome.status())->reason, "STARTING");
  EXPECT_EQ(refuser_.calls, 1);
}

TEST_F(RetryTest, ResultsThatAreNotOutYetAreMadeAgain) {
  refuser_.after_result = true;
  const auto outcome = ConnectTo(server_.address()).Contract(Request());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->results.size(), 1u);
  EXPECT_EQ(refuser_.calls, 2);
}

TEST_F(RetryTest, NothingIsHandedOutTwice) {
  refuser_.after_result = true;
  int results = 0;
  const auto outcome =
      ConnectTo(server_.address())
          .Contract(
              Request(), {},
              {.on_accepted = nullptr, .on_progress = nullptr, .on_result = [&](ContractResult) {
                 ++results;
                 return absl::OkStatus();
               }});
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(results, 1);
  EXPECT_EQ(refuser_.calls, 1);
}

TEST_F(RetryTest, SetsOfAGeneratorDoNotComeAgain) {
  refuser_.after_result = true;
  ContractRequest request = Request();
  request.operands[0].varying = true;
  request.next_set = [&](int64_t set, std::vector<TensorView>* views) -> absl::StatusOr<bool> {
    views->assign(1, TensorView(tensor_));
    return set == 0;
  };
  Client client = ConnectTo(server_.address());
  EXPECT_EQ(client.Contract(request).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refuser_.calls, 1);
  // Before the first one is asked for they do.
  refuser_ = Refuser();
  EXPECT_TRUE(client.Contract(request).ok());
  EXPECT_EQ(refuser_.calls, 2);
}

TEST_F(RetryTest, CancellingEndsThePause) {
  refuser_.refusals = 1000;
  Canceller canceller;
  RetryPolicy policy{.patience = absl::InfiniteDuration(), .pause = absl::Hours(1)};
  policy.on_break = [&](const absl::Status&, absl::Duration) { canceller.Cancel(); };
  const auto outcome =
      ConnectTo(server_.address())
          .Contract(Request(),
                    {.timeout = absl::Hours(24), .canceller = &canceller, .retry = policy});
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(refuser_.calls, 1);
}

TEST_F(RetryTest, ThereIsNoPauseBeyondTheDeadline) {
  RetryPolicy policy{.patience = absl::InfiniteDuration(), .pause = absl::Hours(1)};
  const auto outcome = ConnectTo(server_.address())
                           .Contract(Request(), {.timeout = absl::Minutes(1), .retry = policy});
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
}

TEST(RetryOfOthersTest, AnAddressThatNobodyAnswersFailsAtOnce) {
  std::vector<absl::Duration> pauses;
  Client client = ConnectTo("unix:/nowhere/tenon.sock", &pauses);
  EXPECT_TRUE(IsUnreachable(client.GetServerInfo().status()));
  EXPECT_TRUE(pauses.empty());
}

TEST(RetryOfOthersTest, QuestionsAreAskedAgain) {
  int calls = 0;
  FakeServer server({.server_info = [&](v1::GetServerInfoResponse* info) {
    info->set_version("v");
    return calls++ < 2 ? NotNow() : grpc::Status::OK;
  }});
  const auto info = ConnectTo(server.address()).GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version(), "v");
  EXPECT_EQ(calls, 3);
}

// A measurement of one small projection, refused before or after its scores.
struct MeasureRefuser {
  bool after_scores = false;
  int calls = 0;
  std::set<std::string> ids = {};

  grpc::Status operator()(MeasureServerStream* stream) {
    v1::MeasureRequest frame;
    EXPECT_TRUE(stream->Read(&frame));
    ids.insert(frame.header().request_id());
    if (calls++ == 0 && !after_scores) return NotNow();
    v1::MeasureResponse answer;
    answer.mutable_accepted()->set_request_id("r");
    stream->Write(answer);
    answer.Clear();
    answer.mutable_scores()->set_index(0);
    stream->Write(answer);
    if (after_scores) return NotNow();
    answer.Clear();
    answer.mutable_summary()->set_scored_count(1);
    stream->Write(answer);
    return grpc::Status::OK;
  }
};

TEST(RetryOfOthersTest, AMeasurementBeginsAnewUntilItsFirstAnswerIsOut) {
  const Tensor points = MakeRange({4, 2});
  for (const bool after_scores : {false, true}) {
    MeasureRefuser refuser{.after_scores = after_scores};
    FakeServer server({.measure = [&](grpc::ServerContext*, MeasureServerStream* stream) {
      return refuser(stream);
    }});
    MeasureRequest request;
    request.specs = {*ParseMeasureSpec("stress")};
    request.dataset = points;
    request.inline_projections = {{"p", points}};
    auto stream = ConnectTo(server.address()).Measure(request);
    ASSERT_TRUE(stream.ok()) << stream.status();
    const auto item = stream->Next();
    ASSERT_TRUE(item.ok()) << item.status();
    EXPECT_TRUE(item->has_value());
    const auto end = stream->Next();
    EXPECT_EQ(end.ok(), !after_scores) << end.status();
    EXPECT_EQ(refuser.calls, after_scores ? 1 : 2);
    EXPECT_EQ(refuser.ids.size(), 1u);
  }
}

}  // namespace
}  // namespace tenon::client
