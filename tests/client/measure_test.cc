// Measure streams, through a real channel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "backends/core/error.h"
#include "tenon/client.h"
#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using ::testing::ElementsAre;
using namespace tenon::testing;  // NOLINT(build/namespaces): the fake server

v1::MeasureResponse AcceptedMeasure() {
  v1::MeasureResponse frame;
  frame.mutable_accepted()->set_request_id("r");
  return frame;
}

v1::MeasureResponse ScoresFor(int64_t index, const std::string& name) {
  v1::MeasureResponse frame;
  frame.mutable_scores()->set_index(index);
  frame.mutable_scores()->set_name(name);
  return frame;
}

v1::MeasureResponse SummaryFrame(int64_t scored, bool complete) {
  v1::MeasureResponse frame;
  frame.mutable_summary()->set_scored_count(scored);
  frame.mutable_summary()->set_stream_complete(complete);
  return frame;
}

// What a client sent, and answers for each complete projection.
struct Transcript {
  v1::MeasureHeader header;
  std::string dataset;
  std::vector<double> labels;
  int label_frames = 0;
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  bool stopped = false;
};

// A server that answers every projection with its name and writes down what came.
FakeServer::Script EchoServer(Transcript* transcript) {
  return {.measure = [transcript](grpc::ServerContext*, MeasureServerStream* stream) {
    v1::MeasureRequest frame;
    EXPECT_TRUE(stream->Read(&frame));
    transcript->header = frame.header();
    stream->Write(AcceptedMeasure());
    int64_t left = 0;
    const auto answer = [&] {
      const auto index = static_cast<int64_t>(transcript->names.size()) - 1;
      stream->Write(ScoresFor(index, transcript->names.back()));
    };
    while (stream->Read(&frame)) {
      if (frame.has_dataset_chunk()) transcript->dataset += frame.dataset_chunk().data();
      if (frame.has_labels()) {
        ++transcript->label_frames;
        const auto& values = frame.labels().doubles().values();
        transcript->labels.insert(transcript->labels.end(), values.begin(), values.end());
      }
      if (frame.has_stop()) transcript->stopped = true;
      if (frame.has_projection()) {
        const v1::Projection& projection = frame.projection();
        transcript->names.push_back(projection.name());
        left = projection.spec().shape(0) * projection.spec().shape(1) * 8;
        transcript->sizes.push_back(left);
        if (projection.has_inline_data()) {
          EXPECT_EQ(static_cast<int64_t>(projection.inline_data().size()), left);
          answer();
        }
      }
      if (frame.has_projection_chunk()) {
        left -= static_cast<int64_t>(frame.projection_chunk().data().size());
        if (left == 0) answer();
      }
    }
    stream->Write(
        SummaryFrame(static_cast<int64_t>(transcript->names.size()), !transcript->stopped));
    return grpc::Status::OK;
  }};
}

Client ConnectTo(const FakeServer& server) {
  ClientOptions options;
  options.default_timeout = absl::Minutes(2);
  return *Client::Connect(server.address(), options);
}

// Projections named p0, p1, ... of the given rows.
MeasureRequest RequestWith(const Tensor& dataset, const Tensor& projection, int count) {
  MeasureRequest request;
  request.dataset = dataset;
  request.next_projection = [&projection, count,
                             next = 0](ProjectionInput* input) mutable -> absl::StatusOr<bool> {
    if (next == count) return false;
    input->name = "p" + std::to_string(next++);
    input->tensor = projection;
    return true;
  };
  return request;
}

std::vector<std::string> NamesUntilEnd(MeasureStream* stream, absl::Status* end) {
  std::vector<std::string> names;
  for (;;) {
    auto item = stream->Next();
    *end = item.status();
    if (!item.ok() || !item->has_value()) return names;
    names.push_back((*item)->name);
  }
}

TEST(MeasureTest, SmallProjectionsInOrder) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const Tensor dataset = MakeRange({4, 3});
  const Tensor projection = MakeRange({4, 2});
  MeasureRequest request = RequestWith(dataset, projection, 3);
  request.specs = {*ParseMeasureSpec("tnc:k=1")};
  request.expected_projections = 3;
  const std::vector<int64_t> labels = {1, 2, 1, 2};
  request.labels = std::span<const int64_t>(labels);
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(stream->summary(), nullptr);
  absl::Status end;
  EXPECT_THAT(NamesUntilEnd(&*stream, &end), ElementsAre("p0", "p1", "p2"));
  EXPECT_TRUE(end.ok()) << end;
  ASSERT_NE(stream->summary(), nullptr);
  EXPECT_TRUE(stream->summary()->stream_complete());
  EXPECT_EQ(stream->accepted()->request_id(), "r");
  // The end stays the end.
  EXPECT_FALSE(stream->Next()->has_value());
  EXPECT_TRUE(transcript.header.dataset_input().has_inline_data());
  EXPECT_THAT(transcript.header.labels().int64s().values(), ElementsAre(1, 2, 1, 2));
  EXPECT_EQ(transcript.header.client_stream().expected_projections(), 3);
  EXPECT_EQ(transcript.header.specs(0).trustworthiness_continuity().k(), 1);
}

TEST(MeasureTest, LargeDataTravelsInFrames) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const int64_t rows = 200000;
  const Tensor dataset = MakeRange({rows, 2});
  const Tensor projection = MakeRange({rows, 2});
  MeasureRequest request = RequestWith(dataset, projection, 2);
  std::vector<double> labels;
  for (int64_t i = 0; i < rows; ++i) labels.push_back(static_cast<double>(i % 7));
  request.labels = std::span<const double>(labels);
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok());
  absl::Status end;
  EXPECT_THAT(NamesUntilEnd(&*stream, &end), ElementsAre("p0", "p1"));
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(transcript.dataset.size(), static_cast<size_t>(rows) * 16);
  EXPECT_TRUE(transcript.header.labels_follow());
  EXPECT_EQ(transcript.label_frames, 2);
  EXPECT_EQ(transcript.labels, labels);
  EXPECT_THAT(transcript.sizes, ElementsAre(rows * 16, rows * 16));
}

TEST(MeasureTest, TextLabelsOfAnyLength) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const Tensor dataset = MakeRange({3, 1});
  MeasureRequest request = RequestWith(dataset, dataset, 1);
  const std::vector<std::string> labels = {"a", std::string(200000, 'b'), "\xFF"};
  request.labels = std::span<const std::string>(labels);
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok());
  absl::Status end;
  NamesUntilEnd(&*stream, &end);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(transcript.header.labels_follow());
  EXPECT_EQ(transcript.label_frames, 1);
}

TEST(MeasureTest, StopFinishesWhatIsInFlight) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const Tensor dataset = MakeRange({4, 3});
  MeasureRequest request = RequestWith(dataset, dataset, 1000000000);
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(stream->Next().ok());
  stream->Stop();
  absl::Status end;
  NamesUntilEnd(&*stream, &end);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(transcript.stopped);
  EXPECT_FALSE(stream->summary()->stream_complete());
}

// HTTP/2 would hold all of them at once.
TEST(MeasureTest, TheGeneratorIsNeverFarAheadOfTheAnswers) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const Tensor dataset = MakeRange({4, 3});
  MeasureRequest request = RequestWith(dataset, dataset, 1000);
  std::atomic<int> asked_for{0}, made{0}, furthest{0};
  request.next_projection = [&, next = request.next_projection](ProjectionInput* input) {
    furthest = std::max(furthest.load(), ++made - asked_for);
    return next(input);
  };
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok());
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(stream->Next().ok());
    ++asked_for;  // late: what Next() has let pass may be made already
  }
  stream->Stop();
  const int made_before = made;
  absl::Status end;
  const size_t late = NamesUntilEnd(&*stream, &end).size();
  EXPECT_TRUE(end.ok()) << end;
  constexpr int kWindow = 3;  // an in_flight of 1, and 2
  EXPECT_LE(furthest, kWindow + 1);
  EXPECT_LE(late, static_cast<size_t>(kWindow));
  EXPECT_LE(made, made_before + 1);
}

TEST(MeasureTest, AnErrorOfTheGeneratorComesAfterTheResults) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const Tensor dataset = MakeRange({4, 3});
  MeasureRequest request;
  request.dataset = dataset;
  request.next_projection = [&, next = 0](ProjectionInput* input) mutable -> absl::StatusOr<bool> {
    if (next == 2) return Error(Reason::kNotFound, "no such file");
    input->name = "p" + std::to_string(next++);
    input->tensor = dataset;
    return true;
  };
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok());
  absl::Status end;
  EXPECT_THAT(NamesUntilEnd(&*stream, &end), ElementsAre("p0", "p1"));
  EXPECT_EQ(GetErrorDetails(end).reason, Reason::kNotFound);
  EXPECT_TRUE(transcript.stopped);
  EXPECT_EQ(stream->Next().status(), end);
}

TEST(MeasureTest, BadProjectionsOfTheGeneratorAreFoundHere) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const Tensor dataset = MakeRange({4, 3});
  MeasureRequest request;
  request.dataset = dataset;
  request.next_projection = [](ProjectionInput* input) -> absl::StatusOr<bool> {
    input->tensor.spec = {DType::kFloat64, {4, 2}};  // and no bytes
    return true;
  };
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok());
  const absl::Status status = stream->Next().status();
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kShapeMismatch);
  EXPECT_EQ(GetErrorDetails(status).fields[0].first, "projections[0]");
}

TEST(MeasureTest, RefusalsComeFromNext) {
  FakeServer server({.measure = [](grpc::ServerContext*, MeasureServerStream* stream) {
    v1::MeasureRequest frame;
    stream->Read(&frame);
    return MakeStatus(
        {grpc::StatusCode::INVALID_ARGUMENT, "K_OUT_OF_RANGE", "k is 9", "header.specs[0]", {}, 0});
  }});
  const Tensor dataset = MakeRange({100000, 2});
  auto stream = ConnectTo(server).Measure(RequestWith(dataset, dataset, 1000));
  ASSERT_TRUE(stream.ok());
  const absl::Status status = stream->Next().status();
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kKOutOfRange);
  EXPECT_EQ(GetErrorDetails(status).fields[0].first, "header.specs[0]");
}

TEST(MeasureTest, BrokenFramesEndTheStreamAfterTheGoodItems) {
  FakeServer server({.measure = [](grpc::ServerContext*, MeasureServerStream* stream) {
    v1::MeasureRequest frame;
    stream->Read(&frame);
    stream->Write(AcceptedMeasure());
    stream->Write(ScoresFor(0, "good"));
    stream->Write(ScoresFor(7, "bad"));
    while (stream->Read(&frame)) {
    }
    return grpc::Status::OK;
  }});
  const Tensor dataset = MakeRange({4, 3});
  auto stream = ConnectTo(server).Measure(RequestWith(dataset, dataset, 1000000000));
  ASSERT_TRUE(stream.ok());
  absl::Status end;
  EXPECT_THAT(NamesUntilEnd(&*stream, &end), ElementsAre("good"));
  EXPECT_EQ(end.code(), absl::StatusCode::kInternal);
}

TEST(MeasureTest, CancelAndDestructionEndTheCall) {
  Transcript transcript;
  FakeServer server(EchoServer(&transcript));
  const Tensor dataset = MakeRange({4, 3});
  {
    auto stream = ConnectTo(server).Measure(RequestWith(dataset, dataset, 1000000000));
    ASSERT_TRUE(stream.ok());
    ASSERT_TRUE(stream->Next().ok());
    stream->Cancel();
    absl::Status end;
    NamesUntilEnd(&*stream, &end);
    EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
  }
  Transcript other_transcript;
  FakeServer other(EchoServer(&other_transcript));
  auto forgotten = ConnectTo(other).Measure(RequestWith(dataset, dataset, 1000000000));
  ASSERT_TRUE(forgotten.ok());
  ASSERT_TRUE(forgotten->Next().ok());
}

TEST(MeasureTest, InlineProjectionsGetASingleFrame) {
  FakeServer server({.measure = [](grpc::ServerContext*, MeasureServerStream* stream) {
    v1::MeasureRequest frame;
    stream->Read(&frame);
    EXPECT_EQ(frame.header().inline_projections().projections_size(), 2);
    EXPECT_EQ(frame.header().inline_projections().projections(1).index(), 1);
    EXPECT_EQ(frame.header().dataset_handle(), "datasets/x");
    v1::MeasureResponse answer;
    answer.mutable_single()->mutable_accepted();
    *answer.mutable_single()->add_items()->mutable_scores() = ScoresFor(0, "a").scores();
    *answer.mutable_single()->add_items()->mutable_scores() = ScoresFor(1, "b").scores();
    answer.mutable_single()->mutable_summary()->set_scored_count(2);
    stream->Write(answer);
    return grpc::Status::OK;
  }});
  const Tensor projection = MakeRange({4, 2});
  MeasureRequest request;
  request.dataset_handle = "datasets/x";
  request.inline_projections = {{"a", projection}, {"b", projection}};
  auto stream = ConnectTo(server).Measure(std::move(request));
  ASSERT_TRUE(stream.ok()) << stream.status();
  absl::Status end;
  EXPECT_THAT(NamesUntilEnd(&*stream, &end), ElementsAre("a", "b"));
  EXPECT_TRUE(end.ok()) << end;
}

TEST(MeasureTest, ServerFilesEndByThemselvesOrByStop) {
  FakeServer server({.measure = [](grpc::ServerContext*, MeasureServerStream* stream) {
    v1::MeasureRequest frame;
    stream->Read(&frame);
    const bool endless = frame.header().server_files().glob() == "endless";
    stream->Write(AcceptedMeasure());
    stream->Write(ScoresFor(0, "run1.npy"));
    // The write side of the client stays open, so that it can stop.
    if (endless) {
      EXPECT_TRUE(stream->Read(&frame));
      EXPECT_TRUE(frame.has_stop());
    }
    stream->Write(SummaryFrame(1, !endless));
    return grpc::Status::OK;
  }});
  for (const char* glob : {"*.npy", "endless"}) {
    MeasureRequest request;
    request.dataset_handle = "datasets/x";
    request.server_files.emplace().set_glob(glob);
    auto stream = ConnectTo(server).Measure(std::move(request));
    ASSERT_TRUE(stream.ok());
    ASSERT_TRUE(stream->Next()->has_value());
    if (std::string(glob) == "endless") stream->Stop();
    const auto end = stream->Next();
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_FALSE(end->has_value());
  }
}

TEST(MeasureTest, RefusesWhatCanNotBeRight) {
  FakeServer server({});
  Client client = ConnectTo(server);
  const Tensor dataset = MakeRange({4, 3});
  const Tensor large = MakeRange({5000, 2});
  const struct {
    std::function<void(MeasureRequest*)> change;
    Reason reason;
    const char* field;
  } kCases[] = {
      {[](auto* r) { r->next_projection = nullptr; }, Reason::kBadHeader, "header.source"},
      {[](auto* r) { r->server_files.emplace(); }, Reason::kBadHeader, "header.source"},
      {[](auto* r) {
         r->dataset = TensorView({DType::kFloat64, {4, 3}}, {});
       },
       Reason::kShapeMismatch, "header.dataset_input.spec"},
      {[&](auto* r) {
         r->next_projection = nullptr;
         r->inline_projections = {{"x", large}};
       },
       Reason::kBadHeader, "header.inline_projections.projections[0]"},
  };
  for (const auto& c : kCases) {
    MeasureRequest request = RequestWith(dataset, dataset, 1);
    c.change(&request);
    const auto stream = client.Measure(std::move(request));
    ASSERT_FALSE(stream.ok()) << c.field;
    EXPECT_EQ(GetErrorDetails(stream.status()).reason, c.reason);
    EXPECT_EQ(GetErrorDetails(stream.status()).fields[0].first, c.field);
  }
}

}  // namespace
}  // namespace tenon::client
