// The state table of measurement.proto, cell by cell.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

const Matrix& Dataset() {
  static const Matrix dataset = MakeMatrix(12, 3, 1);
  return dataset;
}
const Matrix& Points() {
  static const Matrix points = MakeMatrix(12, 2, 2);
  return points;
}

v1::MeasureHeader ChunkedHeader(bool labels) {
  v1::MeasureHeader header = Header(Dataset(), {labels ? "nh" : "stress"}, 3);
  header.mutable_dataset_input()->clear_inline_data();
  header.set_labels_follow(labels);
  // What is in flight stays there while the gate is closed: the stream can't end by itself.
  header.mutable_execution()->set_provider("gated");
  header.mutable_execution()->set_in_flight(4);
  return header;
}

v1::Projection Announced(int64_t index) {
  v1::Projection projection = InlineProjection(index, Points());
  projection.clear_inline_data();
  return projection;
}

// Each leads a fresh call into its state.
void ToStart(MeasureClient*) {}
void ToDataset(MeasureClient* client) { client->Send(ChunkedHeader(false)); }
void ToLabels(MeasureClient* client) {
  client->Send(ChunkedHeader(true));
  client->Send(DatasetChunk(0, Dataset().bytes()));
}
void ToIdle(MeasureClient* client) {
  ToDataset(client);
  client->Send(DatasetChunk(0, Dataset().bytes()));
  client->Send(Frame(InlineProjection(0, Points())));
}
void ToProjection(MeasureClient* client) {
  ToIdle(client);
  client->Send(Frame(Announced(1)));
}
void ToSkipping(MeasureClient* client) {
  ToIdle(client);
  v1::Projection wrong = Announced(1);
  wrong.mutable_spec()->set_shape(0, 13);
  client->Send(Frame(wrong));
}
void ToServing(MeasureClient* client) {
  v1::MeasureHeader header = ChunkedHeader(false);
  *header.mutable_inline_projections()->add_projections() = InlineProjection(0, Points());
  client->Send(header);
  client->Send(DatasetChunk(0, Dataset().bytes()));
}
void ToStopped(MeasureClient* client) {
  ToIdle(client);
  client->Stop();
}

const std::map<std::string, std::function<void(MeasureClient*)>> kStates = {
    {"START", ToStart},     {"DATASET", ToDataset},       {"LABELS", ToLabels},
    {"IDLE", ToIdle},       {"PROJECTION", ToProjection}, {"SKIPPING", ToSkipping},
    {"SERVING", ToServing}, {"STOPPED", ToStopped}};

v1::MeasureRequest FrameOfKind(const std::string& kind, const std::string& state) {
  v1::MeasureRequest frame;
  if (kind == "header") *frame.mutable_header() = ChunkedHeader(false);
  if (kind == "dataset_chunk") return DatasetChunk(0, std::string(8, '\0'));
  if (kind == "labels") frame.mutable_labels()->mutable_int64s()->add_values(1);
  if (kind == "projection") return Frame(Announced(state == "SKIPPING" ? 2 : 1));
  if (kind == "projection_chunk") return ProjectionChunk(1, 0, std::string(8, '\0'));
  if (kind == "stop") frame.mutable_stop();
  return frame;
}

// Legal frames per state; "half-close" where it is no TRUNCATED_UPLOAD.
const std::map<std::string, std::set<std::string>> kLegal = {
    {"START", {"header"}},
    {"DATASET", {"dataset_chunk", "stop"}},
    {"LABELS", {"labels", "stop"}},
    {"IDLE", {"projection", "stop", "half-close"}},
    {"PROJECTION", {"projection_chunk", "stop"}},
    {"SKIPPING", {"projection", "projection_chunk", "stop", "half-close"}},
    {"SERVING", {"stop", "half-close"}},
    {"STOPPED", {"half-close"}}};

class StateTableTest : public ::testing::TestWithParam<std::string> {
 protected:
  StateTableTest() { Gate::Close(); }
  ~StateTableTest() override { Gate::Open(); }

  TestServer server_;
};

TEST_P(StateTableTest, IllegalFramesNameStateAndFrame) {
  const std::string state = GetParam();
  for (const char* kind :
       {"header", "dataset_chunk", "labels", "projection", "projection_chunk", "stop"}) {
    if (kLegal.at(state).contains(kind)) continue;
    MeasureClient client(&server_);
    kStates.at(state)(&client);
    client.Send(FrameOfKind(kind, state));
    client.ReadRest();
    const CallError error = ErrorOf(client.Finish());
    EXPECT_EQ(error.code, grpc::StatusCode::INVALID_ARGUMENT) << state << " " << kind;
    EXPECT_EQ(error.reason, "FRAME_ORDER") << state << " " << kind;
    EXPECT_EQ(error.field, kind) << state;
    EXPECT_EQ(error.metadata.at("state"), state) << kind;
    EXPECT_EQ(error.metadata.at("frame"), kind) << state;
  }
}

TEST_P(StateTableTest, AnEmptyFrameIsAMissingField) {
  MeasureClient client(&server_);
  kStates.at(GetParam())(&client);
  client.Send(v1::MeasureRequest());
  client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "INVALID_ARGUMENT MISSING_FIELD frame");
}

// A legal frame leaves the call alive: it goes on until its own end or an illegal second header.
TEST_P(StateTableTest, LegalFramesAreTaken) {
  const std::string state = GetParam();
  for (const std::string& kind : kLegal.at(state)) {
    if (kind == "half-close") continue;
    MeasureClient client(&server_);
    kStates.at(state)(&client);
    // Before its projection is in flight, a stop would end this call at once.
    if (state == "SERVING") Gate::AwaitInside(1);
    ASSERT_TRUE(client.Send(FrameOfKind(kind, state))) << state << " " << kind;
    const bool ends = kind == "stop" && (state == "DATASET" || state == "LABELS");
    if (ends) {  // nothing is in flight
      const auto frames = client.ReadRest();
      EXPECT_EQ(Summary(client.Finish()), "OK") << state;
      ASSERT_FALSE(frames.empty());
      EXPECT_FALSE(frames.back().summary().stream_complete());
      continue;
    }
    v1::MeasureRequest second;
    *second.mutable_header() = ChunkedHeader(false);
    client.Send(second);
    client.ReadRest();
    const CallError error = ErrorOf(client.Finish());
    EXPECT_EQ(error.reason, "FRAME_ORDER") << state << " " << kind;
    EXPECT_EQ(error.field, "header") << state << " " << kind;
  }
}

TEST_P(StateTableTest, HalfClose) {
  const std::string state = GetParam();
  MeasureClient client(&server_);
  kStates.at(state)(&client);
  client.HalfClose();
  if (!kLegal.at(state).contains("half-close")) {
    client.ReadRest();
    const CallError error = ErrorOf(client.Finish());
    EXPECT_EQ(error.code, grpc::StatusCode::INVALID_ARGUMENT) << state;
    EXPECT_EQ(error.reason, "TRUNCATED_UPLOAD") << state;
    EXPECT_FALSE(error.field.empty()) << state;
    EXPECT_EQ(error.metadata.at("state"), state);
    return;
  }
  Gate::Open();
  const auto frames = client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "OK") << state;
  ASSERT_FALSE(frames.empty());
  ASSERT_TRUE(frames.back().has_summary()) << state;
  EXPECT_EQ(frames.back().summary().stream_complete(), state != "STOPPED");
  EXPECT_EQ(frames.back().summary().scored_count(), 1);
  EXPECT_EQ(frames.back().summary().error_count(), state == "SKIPPING" ? 1 : 0);
}

// It is no half-close: nothing that came before passes for everything.
TEST_P(StateTableTest, AFrameThatDoesNotParseIsMalformed) {
  const std::string state = GetParam();
  MeasureClient client(&server_);
  kStates.at(state)(&client);
  v1::MeasureRequest frame;
  frame.mutable_projection()->set_name("\xff");  // a text that is not UTF-8
  client.Send(frame);
  client.ReadRest();
  const CallError error = ErrorOf(client.Finish());
  EXPECT_EQ(error.code, grpc::StatusCode::INVALID_ARGUMENT) << state;
  EXPECT_EQ(error.reason, "MALFORMED_FRAME") << state;
  const std::string& number = error.metadata.at("frame_number");
  EXPECT_EQ(number == "1", state == "START") << number;
}

INSTANTIATE_TEST_SUITE_P(States, StateTableTest,
                         ::testing::Values("START", "DATASET", "LABELS", "IDLE", "PROJECTION",
                                           "SKIPPING", "SERVING", "STOPPED"),
                         [](const auto& info) { return info.param; });

TEST(StateTest, StopDropsAnUnfinishedProjection) {
  TestServer server;
  MeasureClient client(&server);
  ToProjection(&client);
  client.Send(ProjectionChunk(1, 0, std::string(8, '\0')));
  client.Stop();
  const auto frames = client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 3u);  // accepted, scores of 0, summary
  EXPECT_EQ(frames[1].scores().index(), 0);
  EXPECT_FALSE(frames[2].summary().stream_complete());
  EXPECT_EQ(frames[2].summary().input_consumed_count(), 1);
}

// One rule for every way in which a projection can come.
TEST(StateTest, RefusedProjectionsDoNotCountAsConsumed) {
  for (const char* way : {"inline", "chunked", "header"}) {
    TestServer server;
    MeasureClient client(&server);
    v1::MeasureHeader header = Header(Dataset(), {"stress"});
    std::vector<v1::MeasureRequest> frames(1);
    for (int64_t i = 0; i < 4; ++i) {
      v1::Projection projection = InlineProjection(i, i == 2 ? MakeMatrix(11, 2, 1) : Points());
      if (way == std::string("header")) {
        *header.mutable_inline_projections()->add_projections() = projection;
        continue;
      }
      const std::string bytes = projection.inline_data();
      if (way == std::string("chunked")) projection.clear_inline_data();
      frames.push_back(Frame(projection));
      if (way == std::string("chunked")) frames.push_back(ProjectionChunk(i, 0, bytes));
    }
    *frames[0].mutable_header() = header;
    const auto answers = client.Exchange(frames);
    EXPECT_EQ(Summary(client.Finish()), "OK") << way;
    const v1::MeasureSummary& summary =
        answers.back().has_single() ? answers.back().single().summary() : answers.back().summary();
    EXPECT_EQ(summary.input_consumed_count(), 3) << way;
    EXPECT_EQ(summary.error_count(), 1) << way;
  }
}

TEST(StateTest, ProjectionsComeInOrderOfTheirIndex) {
  TestServer server;
  MeasureClient client(&server);
  client.Send(Header(Dataset(), {"stress"}));
  client.Send(Frame(InlineProjection(1, Points())));
  client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "INVALID_ARGUMENT FRAME_ORDER projection.index");
}

TEST(StateTest, DatasetChunksAreChecked) {
  TestServer server;
  struct Bad {
    std::function<void(v1::TensorChunk*)> change;
    const char* summary;
  };
  const Bad bad[] = {
      {[](auto* c) { c->set_offset_bytes(8); },
       "INVALID_ARGUMENT CHUNK_ORDER dataset_chunk.offset_bytes"},
      {[](auto* c) { c->set_set(1); }, "INVALID_ARGUMENT CHUNK_ORDER dataset_chunk.set"},
      {[](auto* c) { c->set_operand(1); }, "INVALID_ARGUMENT CHUNK_ORDER dataset_chunk.operand"},
      {[](auto* c) { c->set_data(std::string(12 * 3 * 8 + 1, '\0')); },
       "INVALID_ARGUMENT CHUNK_OVERFLOW dataset_chunk.data"},
      {[](auto* c) { c->clear_data(); }, "INVALID_ARGUMENT MISSING_FIELD dataset_chunk.data"},
      {[](auto* c) { c->set_crc32c(1); }, "DATA_LOSS CHECKSUM_MISMATCH dataset_chunk.crc32c"}};
  for (const Bad& entry : bad) {
    MeasureClient client(&server);
    ToDataset(&client);
    v1::MeasureRequest frame = DatasetChunk(0, std::string(8, 'x'));
    entry.change(frame.mutable_dataset_chunk());
    client.Send(frame);
    client.ReadRest();
    EXPECT_EQ(Summary(client.Finish()), entry.summary);
  }
  EXPECT_TRUE(server.AllReleased());
}

TEST(StateTest, LabelsComeInParts) {
  TestServer server;
  MeasureClient client(&server);
  ToLabels(&client);
  for (int part = 0; part < 3; ++part) {
    v1::MeasureRequest frame;
    for (int i = 0; i < 4; ++i) {
      frame.mutable_labels()->mutable_strings()->add_values(i % 2 == 0 ? "ä" : "b");
    }
    ASSERT_TRUE(client.Send(frame));
  }
  client.Send(Frame(InlineProjection(0, Points())));
  const auto frames = client.ReadAll();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1].scores().specs(0).values().count("neighborhood_hit"), 1u);
}

TEST(StateTest, LabelsAreChecked) {
  TestServer server;
  const auto result = [&](const std::function<void(v1::Labels*)>& first,
                          const std::function<void(v1::Labels*)>& second) {
    MeasureClient client(&server);
    ToLabels(&client);
    for (const auto& fill : {first, second}) {
      v1::MeasureRequest frame;
      fill(frame.mutable_labels());
      client.Send(frame);
    }
    client.ReadRest();
    return Summary(client.Finish());
  };
  const auto one = [](v1::Labels* labels) { labels->mutable_int64s()->add_values(1); };
  EXPECT_EQ(result(one, [](auto* l) { l->mutable_doubles()->add_values(1); }),
            "INVALID_ARGUMENT BAD_LABELS labels");
  EXPECT_EQ(result(one,
                   [](auto* l) {
                     for (int i = 0; i < 12; ++i) l->mutable_int64s()->add_values(i);
                   }),
            "INVALID_ARGUMENT BAD_LABELS labels");
  EXPECT_EQ(result(one, [](auto*) {}), "INVALID_ARGUMENT MISSING_FIELD labels");
}

}  // namespace
}  // namespace tenon::server
