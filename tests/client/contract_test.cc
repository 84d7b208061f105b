// Contract and the unary calls, through a real channel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <stdexcept>

#include "backends/core/error.h"
#include "tenon/client.h"
#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace tenon::testing;  // NOLINT(build/namespaces): the fake server and its frames

const TensorSpec kPair{DType::kFloat64, {2}};

Client ConnectTo(const FakeServer& server, ClientOptions options = {}) {
  options.default_timeout = absl::Minutes(2);
  return *Client::Connect(server.address(), options);
}

ContractRequest RequestFor(const std::vector<Tensor>& tensors, const std::string& einsum) {
  ContractRequest request;
  request.einsum = einsum;
  for (const Tensor& tensor : tensors) request.operands.emplace_back(tensor);
  return request;
}

v1::ContractResponse PairFrame(int64_t set, double a, double b) {
  v1::ContractResponse frame;
  *frame.mutable_result() = InlineResult(set, kPair, BytesOf<double>({a, b}));
  return frame;
}

std::vector<Tensor> One(Tensor tensor) {
  std::vector<Tensor> tensors;
  tensors.push_back(std::move(tensor));
  return tensors;
}

// Takes all chunks of operand 0 and puts them together.
std::string Collect(ContractServerStream* stream, std::vector<size_t>* sizes) {
  std::string bytes;
  v1::ContractRequest frame;
  while (stream->Read(&frame)) {
    EXPECT_TRUE(frame.has_chunk());
    EXPECT_EQ(frame.chunk().offset_bytes(), static_cast<int64_t>(bytes.size()));
    bytes += frame.chunk().data();
    sizes->push_back(frame.chunk().data().size());
  }
  return bytes;
}

TEST(ContractTest, SmallCallIsOneFrameEachWay) {
  std::vector<v1::ContractRequest> frames;
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    while (stream->Read(&frame)) frames.push_back(frame);
    v1::ContractResponse answer;
    *answer.mutable_single()->mutable_accepted() = AcceptedFrame().accepted();
    *answer.mutable_single()->add_results() = InlineResult(0, kPair, BytesOf<double>({5, 6}));
    answer.mutable_single()->mutable_report()->set_sets(1);
    answer.mutable_single()->mutable_report()->set_flops(12);
    stream->Write(answer);
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  const std::vector<Tensor> tensors = One(MakeTensor({2}, {1, 2}));
  ContractRequest request = RequestFor(tensors, "a->a");
  request.request_id = "mine";
  const auto outcome = client.Contract(request);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->results[0].tensor.buffer.as<double>()[1], 6);
  EXPECT_EQ(outcome->report.flops(), 12);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].header().request_id(), "mine");
  EXPECT_EQ(frames[0].header().einsum().operands(0).inline_data(), BytesOf<double>({1, 2}));
}

TEST(ContractTest, LargeOperandsAndResultsTravelInChunks) {
  const int64_t count = 500000;  // 4 MB
  std::vector<size_t> sizes;
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest header;
    EXPECT_TRUE(stream->Read(&header));
    EXPECT_FALSE(header.header().einsum().operands(0).has_inline_data());
    stream->Write(AcceptedFrame());
    const std::string bytes = Collect(stream, &sizes);
    stream->Write(ResultFrame(0, {DType::kFloat64, {count}}));
    const size_t step = 1000001;  // no multiple of an element
    for (size_t offset = 0; offset < bytes.size(); offset += step) {
      stream->Write(ChunkFrame(0, static_cast<int64_t>(offset), bytes.substr(offset, step)));
    }
    stream->Write(SetReportFrame(0, static_cast<int64_t>(bytes.size())));
    stream->Write(ReportFrame(1));
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  const std::vector<Tensor> tensors = One(MakeRange({count}));
  const auto outcome = client.Contract(RequestFor(tensors, "a->a"));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(std::memcmp(outcome->results[0].tensor.buffer.data(), tensors[0].buffer.data(),
                        static_cast<size_t>(count) * sizeof(double)),
            0);
  EXPECT_THAT(sizes, ElementsAre(1 << 20, 1 << 20, 1 << 20, 4000000 - 3 * (1 << 20)));
}

TEST(ContractTest, ChunksAreNoLargerThanGranted) {
  std::vector<size_t> sizes;
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest header;
    stream->Read(&header);
    v1::ContractResponse accepted = AcceptedFrame();
    accepted.mutable_accepted()->mutable_granted()->set_max_chunk_bytes(50000);
    stream->Write(accepted);
    Collect(stream, &sizes);
    stream->Write(PairFrame(0, 1, 2));
    stream->Write(ReportFrame(1));
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  const std::vector<Tensor> tensors = One(MakeRange({20000}));
  ASSERT_TRUE(client.Contract(RequestFor(tensors, "a->a")).ok());
  EXPECT_THAT(sizes, ElementsAre(50000, 50000, 50000, 10000));
}

TEST(ContractTest, RefusalCarriesItsDetailsAndSavesTheUpload) {
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest header;
    stream->Read(&header);
    return MakeStatus({grpc::StatusCode::FAILED_PRECONDITION,
                       "EXCEEDS_MEMORY_BUDGET",
                       "too large",
                       "header.execution.memory_budget_bytes",
                       {{"smallest_budget_bytes", "4096"}},
                       0});
  }});
  Client client = ConnectTo(server);
  const Tensor tensor = MakeRange({10});
  ContractRequest request;
  request.einsum = "a->a";
  request.operands.emplace_back(tensor);
  request.operands[0].varying = true;
  std::atomic<int> pulled = 0;
  request.next_set = [&](int64_t, std::vector<TensorView>*) -> absl::StatusOr<bool> {
    ++pulled;
    return false;
  };
  const auto outcome = client.Contract(request);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  const ErrorDetails details = GetErrorDetails(outcome.status());
  EXPECT_EQ(details.reason, Reason::kExceedsMemoryBudget);
  EXPECT_EQ(details.fields[0].first, "header.execution.memory_budget_bytes");
  EXPECT_EQ(details.metadata.at("smallest_budget_bytes"), "4096");
  EXPECT_EQ(pulled, 0);
}

TEST(ContractTest, FailureInTheMiddleOfAnUploadEndsIt) {
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    stream->Write(AcceptedFrame());
    stream->Read(&frame);
    return MakeStatus({grpc::StatusCode::UNAVAILABLE, "DEVICE_FAULT", "it died", "", {}, 0});
  }});
  Client client = ConnectTo(server, {.retry = {.patience = absl::ZeroDuration()}});
  const std::vector<Tensor> tensors = One(MakeRange({8 << 20}));  // 64 MiB
  const auto outcome = client.Contract(RequestFor(tensors, "a->a"));
  EXPECT_EQ(GetErrorDetails(outcome.status()).reason, Reason::kDeviceFault);
  EXPECT_FALSE(IsUnreachable(outcome.status()));
}

TEST(ContractTest, AServerThatStopsReadingBlocksNobody) {
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    stream->Write(AcceptedFrame());
    stream->Write(PairFrame(0, 7, 8));
    stream->Write(ReportFrame(1));
    return grpc::Status::OK;  // with most of the upload unread
  }});
  Client client = ConnectTo(server);
  const std::vector<Tensor> tensors = One(MakeRange({8 << 20}));
  const auto outcome = client.Contract(RequestFor(tensors, "a->a"));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->results[0].tensor.buffer.as<double>()[0], 7);
}

TEST(ContractTest, ManySetsComeThroughTheCallback) {
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    stream->Write(AcceptedFrame());
    int64_t sets = 0;
    while (stream->Read(&frame)) {
      EXPECT_EQ(frame.operand_set().set(), sets);
      double values[2];
      std::memcpy(values, frame.operand_set().operands(0).data().data(), sizeof(values));
      stream->Write(PairFrame(sets++, 10 * values[0], 10 * values[1]));
    }
    stream->Write(ReportFrame(sets));
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  Tensor current = MakeTensor({2}, {0, 0});
  ContractRequest request;
  request.einsum = "a->a";
  request.operands.emplace_back(current);
  request.operands[0].varying = true;
  request.next_set = [&](int64_t set, std::vector<TensorView>* views) -> absl::StatusOr<bool> {
    if (set == 5) return false;
    current.buffer.as<double>()[0] = static_cast<double>(set);
    views->push_back(current);
    return true;
  };
  std::vector<double> firsts;
  ContractCallbacks callbacks;
  callbacks.on_result = [&](ContractResult result) {
    firsts.push_back(result.tensor.buffer.as<double>()[0]);
    return absl::OkStatus();
  };
  const auto outcome = client.Contract(request, {}, callbacks);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(firsts, ElementsAre(0, 10, 20, 30, 40));
  EXPECT_TRUE(outcome->results.empty());
}

// A server that accepts and then waits for the end of the client's frames, in vain.
FakeServer::Script WaitingServer() {
  return {.contract = [](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    stream->Write(AcceptedFrame());
    while (stream->Read(&frame)) {
    }
    return grpc::Status(grpc::StatusCode::ABORTED, "the client is gone");
  }};
}

TEST(ContractTest, ErrorsOfTheGeneratorAreReturned) {
  FakeServer server(WaitingServer());
  Client client = ConnectTo(server);
  const Tensor tensor = MakeRange({10});
  ContractRequest request;
  request.einsum = "a->a";
  request.operands.emplace_back(tensor);
  request.operands[0].varying = true;
  request.next_set = [](int64_t, std::vector<TensorView>*) -> absl::StatusOr<bool> {
    return Error(Reason::kNotFound, "no further file");
  };
  EXPECT_EQ(client.Contract(request).status().message(), "no further file");
  request.next_set = [](int64_t, std::vector<TensorView>*) -> absl::StatusOr<bool> {
    throw std::runtime_error("thrown");
  };
  EXPECT_THAT(std::string(client.Contract(request).status().message()), HasSubstr("thrown"));
}

TEST(ContractTest, BrokenFramesEndTheCall) {
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    stream->Write(AcceptedFrame());
    stream->Write(ResultFrame(0, {DType::kFloat64, {100000}}));
    stream->Write(ChunkFrame(0, 8, "xxxxxxxx"));
    stream->Write(ReportFrame(1));
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  const std::vector<Tensor> tensors = One(MakeRange({8 << 20}));
  const auto outcome = client.Contract(RequestFor(tensors, "a->a"));
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("byte 8 instead of 0"));
}

TEST(ContractTest, AnAnswerWithoutResultIsNoAnswer) {
  FakeServer server({.contract = [&](grpc::ServerContext*, ContractServerStream* stream) {
    stream->Write(AcceptedFrame());
    stream->Write(ReportFrame(0));
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  const std::vector<Tensor> tensors = One(MakeRange({2}));
  EXPECT_EQ(client.Contract(RequestFor(tensors, "a->a")).status().code(),
            absl::StatusCode::kInternal);
}

TEST(ContractTest, CancellingEndsTheCallOnBothSides) {
  std::promise<void> server_saw_it;
  FakeServer server({.contract = [&](grpc::ServerContext* context, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    stream->Write(AcceptedFrame());
    while (stream->Read(&frame)) {
    }
    EXPECT_TRUE(context->IsCancelled());
    server_saw_it.set_value();
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  Canceller canceller;
  const Tensor tensor = MakeRange({10});
  ContractRequest request;
  request.einsum = "a->a";
  request.operands.emplace_back(tensor);
  request.operands[0].varying = true;
  request.next_set = [&](int64_t, std::vector<TensorView>* views) -> absl::StatusOr<bool> {
    canceller.Cancel();
    views->push_back(tensor);
    return true;
  };
  EXPECT_EQ(client.Contract(request, {std::nullopt, &canceller}).status().code(),
            absl::StatusCode::kCancelled);
  server_saw_it.get_future().wait();
  // Later calls end at once.
  EXPECT_EQ(client.GetServerInfo({std::nullopt, &canceller}).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(ContractTest, TheDeadlineHolds) {
  std::promise<void> done;
  auto finished = done.get_future().share();
  FakeServer server({.contract = [finished](grpc::ServerContext*, ContractServerStream*) {
    finished.wait();
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  const std::vector<Tensor> tensors = One(MakeRange({2}));
  const auto outcome =
      client.Contract(RequestFor(tensors, "a->a"), {absl::Milliseconds(50), nullptr});
  done.set_value();
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ContractTest, UnreachableServersAreToldApart) {
  std::string address;
  {
    FakeServer server({});
    address = server.address();
  }
  const absl::StatusOr<Client> connected = Client::Connect(address);
  ASSERT_TRUE(connected.ok());
  Client client = *connected;
  const std::vector<Tensor> tensors = One(MakeRange({2}));
  const auto outcome = client.Contract(RequestFor(tensors, "a->a"));
  EXPECT_TRUE(IsUnreachable(outcome.status())) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr(address));
  EXPECT_TRUE(IsUnreachable(client.GetServerInfo().status()));
}

TEST(ClientTest, ConnectChecksItsArguments) {
  EXPECT_EQ(GetErrorDetails(Client::Connect("").status()).reason, Reason::kBadParameter);
  for (const int32_t bytes : {0, 4095, 4193281}) {
    ClientOptions options;
    options.chunk_bytes = bytes;
    EXPECT_EQ(GetErrorDetails(Client::Connect("x:1", options).status()).fields[0].first,
              "chunk_bytes");
  }
}

TEST(ClientTest, UnaryCalls) {
  FakeServer server(
      {.estimate =
           [](const v1::EstimateRequest& request, v1::EstimateResponse* response) {
             EXPECT_EQ(request.header().einsum().subscripts(), "ab->a");
             EXPECT_FALSE(request.header().einsum().operands(0).has_inline_data());
             response->set_planned_peak_bytes(77);
             return grpc::Status::OK;
           },
       .list_measures =
           [](const v1::ListMeasuresRequest& request, v1::ListMeasuresResponse* response) {
             response->add_measures()->set_id("found " + request.id());
             return grpc::Status::OK;
           },
       .server_info =
           [](v1::GetServerInfoResponse* response) {
             response->set_version("9");
             return grpc::Status::OK;
           },
       .list_providers =
           [](const v1::ListProvidersRequest& request, v1::ListProvidersResponse* response) {
             response->add_providers()->set_name("got " + request.name());
             return grpc::Status::OK;
           }});
  Client client = ConnectTo(server);
  ContractRequest request;
  request.einsum = "ab->a";
  request.operands.emplace_back(TensorView({DType::kFloat32, {2, 3}}, {}));
  EXPECT_EQ(client.Estimate(request)->planned_peak_bytes(), 77);
  EXPECT_EQ(client.ListMeasures("tnc")->measures(0).id(), "found tnc");
  EXPECT_EQ(client.GetServerInfo()->version(), "9");
  EXPECT_EQ(client.ListProviders("cpu")->providers(0).name(), "got cpu");
}

TEST(ClientTest, WaitsUntilTheServerIsReady) {
  std::atomic<int> asked = 0;
  FakeServer server({.server_info = [&](v1::GetServerInfoResponse* response) {
    response->set_state(++asked < 3 ? v1::SERVER_STATE_STARTING : v1::SERVER_STATE_READY);
    return grpc::Status::OK;
  }});
  Client client = ConnectTo(server);
  const auto info = client.WaitUntilReady(absl::Minutes(1));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(asked, 3);
}

TEST(ClientTest, WaitingEndsWithTheStateOrTheError) {
  FakeServer server({.server_info = [&](v1::GetServerInfoResponse* response) {
    response->set_state(v1::SERVER_STATE_DRAINING);
    return grpc::Status::OK;
  }});
  const absl::Status status = ConnectTo(server).WaitUntilReady(absl::ZeroDuration()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("DRAINING"));
  FakeServer other({});
  EXPECT_EQ(ConnectTo(other).WaitUntilReady(absl::Minutes(1)).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tenon::client
