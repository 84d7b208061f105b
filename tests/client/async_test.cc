// Calls in the background.

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "tenon/tenon.h"
#include "tests/client/fake_server.h"
#include "tests/support/status_matchers.h"

namespace tenon::client {
namespace {

using namespace tenon::testing;  // NOLINT(build/namespaces): the fake server and its frames

const TensorSpec kPair{DType::kFloat64, {2}};

// Contractions that wait for each other: none is answered before `wanted` are there.
class AsyncTest : public ::testing::Test {
 protected:
  int wanted_ = 1;
  std::vector<std::string> order_;

  Client Connect(int threads) {
    ClientOptions options;
    options.default_timeout = absl::Minutes(2);
    options.async_threads = threads;
    return *Client::Connect(server_.address(), options);
  }

  ContractRequest Request(const std::string& id) const {
    ContractRequest request;
    request.request_id = id;
    request.einsum = "a->a";
    request.operands.emplace_back(tensor_);
    return request;
  }

 private:
  grpc::Status Answer(grpc::ServerContext* context, ContractServerStream* stream) {
    v1::ContractRequest header;
    if (!stream->Read(&header)) return grpc::Status::CANCELLED;  // before its header came
    {
      std::unique_lock lock(mutex_);
      order_.push_back(header.header().request_id());
      changed_.notify_all();
      while (static_cast<int>(order_.size()) < wanted_) {
        if (context->IsCancelled()) return grpc::Status::CANCELLED;
        changed_.wait_for(lock, std::chrono::milliseconds(1));
      }
    }
    v1::ContractResponse frame;
    stream->Write(AcceptedFrame());
    *frame.mutable_result() = InlineResult(0, kPair, BytesOf<double>({5, 6}));
    stream->Write(frame);
    stream->Write(ReportFrame(1));
    return grpc::Status::OK;
  }

  const Tensor tensor_ = MakeTensor({2}, {1, 2});
  std::mutex mutex_;
  std::condition_variable changed_;
  FakeServer server_{
      {.contract = [this](grpc::ServerContext* context, ContractServerStream* stream) {
        return Answer(context, stream);
      }}};
};

TEST_F(AsyncTest, CallsRunAtOnce) {
  wanted_ = 3;
  Client client = Connect(3);
  std::vector<Pending<ContractOutcome>> pending;
  for (const char* id : {"a", "b", "c"}) pending.push_back(client.ContractAsync(Request(id)));
  for (auto& one : pending) {
    const auto outcome = one.Get();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->results[0].tensor.buffer.as<double>()[1], 6);
  }
}

TEST_F(AsyncTest, WithoutAFreeThreadTheyWaitInOrder) {
  Client client = Connect(1);
  std::vector<Pending<ContractOutcome>> pending;
  for (const char* id : {"a", "b", "c"}) pending.push_back(client.ContractAsync(Request(id)));
  for (auto& one : pending) EXPECT_TRUE(one.Get().ok());
  EXPECT_EQ(order_, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(AsyncTest, EachIsCancelledByItself) {
  wanted_ = 3;
  Client client = Connect(2);
  auto stays = client.ContractAsync(Request("a"));
  auto goes = client.ContractAsync(Request("b"));
  goes.Cancel();
  EXPECT_EQ(goes.Get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_NE(stays.future().wait_for(std::chrono::seconds(0)), std::future_status::ready);
  // What waits for a thread is, too, and what is not wanted any more.
  { const auto dropped = client.ContractAsync(Request("c")); }
  stays.Cancel();
  EXPECT_EQ(stays.Get().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(AsyncTest, TheCallersCancellerHoldsToo) {
  wanted_ = 2;
  Client client = Connect(1);
  Canceller canceller;
  auto pending = client.ContractAsync(Request("a"), {.canceller = &canceller});
  auto behind = client.ContractAsync(Request("b"), {.canceller = &canceller});
  canceller.Cancel();
  EXPECT_EQ(pending.Get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(behind.Get().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(AsyncTest, TheClientMayGoFirst) {
  auto pending = Connect(1).ContractAsync(Request("a"));
  EXPECT_TRUE(pending.Get().ok());
}

TEST_F(AsyncTest, AnyOtherCallMayRunSo) {
  auto pending = Connect(1).Async([](Client& client, const CallOptions& options) {
    EXPECT_NE(options.canceller, nullptr);
    EXPECT_LE(*options.timeout, absl::Minutes(2));
    return client.GetServerInfo(options);
  });
  EXPECT_EQ(pending.Get().status().code(), absl::StatusCode::kUnimplemented);
}

TEST(AsyncOptionsTest, ThreadsAreBounded) {
  for (const int threads : {0, 1025}) {
    ClientOptions options;
    options.async_threads = threads;
    EXPECT_TRUE(
        Fails(Client::Connect("127.0.0.1:1", options), Reason::kBadParameter, "async_threads"));
  }
}

}  // namespace
}  // namespace tenon::client
