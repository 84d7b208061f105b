#include "client/cpp/measure_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/core/error.h"
#include "tenon/call.h"
#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using testing::BytesOf;
using ::testing::HasSubstr;

v1::MeasureResponse Accepted() {
  v1::MeasureResponse frame;
  frame.mutable_accepted()->set_request_id("r");
  return frame;
}

v1::MeasureResponse Scores(int64_t index) {
  v1::MeasureResponse frame;
  frame.mutable_scores()->set_index(index);
  frame.mutable_scores()->set_name("p" + std::to_string(index));
  auto* spec = frame.mutable_scores()->add_specs();
  spec->set_id("stress");
  (*spec->mutable_values())["stress"] = 0.5;
  return frame;
}

v1::MeasureResponse WithLocal(v1::MeasureResponse frame, const std::string& key, int64_t rows,
                              const std::string& bytes) {
  auto* array = frame.mutable_scores()->add_local_arrays();
  array->set_key(key);
  *array->mutable_tensor() = ToWire({DType::kFloat64, {rows}});
  if (!bytes.empty()) array->set_inline_data(bytes);
  return frame;
}

v1::MeasureResponse LocalChunk(int64_t index, int operand, int64_t offset,
                               const std::string& bytes) {
  v1::MeasureResponse frame;
  frame.mutable_local_chunk()->set_set(index);
  frame.mutable_local_chunk()->set_operand(operand);
  frame.mutable_local_chunk()->set_offset_bytes(offset);
  frame.mutable_local_chunk()->set_data(bytes);
  return frame;
}

v1::MeasureResponse ItemError(int64_t index) {
  v1::MeasureResponse frame;
  frame.mutable_item_error()->set_index(index);
  frame.mutable_item_error()->mutable_error()->set_code(3);
  frame.mutable_item_error()->mutable_error()->set_reason("NOT_FINITE");
  frame.mutable_item_error()->mutable_error()->set_field("projection");
  return frame;
}

v1::MeasureResponse Summary(int64_t scored, int64_t failed) {
  v1::MeasureResponse frame;
  frame.mutable_summary()->set_scored_count(scored);
  frame.mutable_summary()->set_error_count(failed);
  return frame;
}

absl::Status AddAll(const std::vector<v1::MeasureResponse>& frames, MeasureReader* reader) {
  for (const auto& frame : frames) TENON_RETURN_IF_ERROR(reader->Add(frame));
  return reader->CheckEnd();
}

TEST(MeasureReaderTest, ItemsInOrder) {
  MeasureReader reader(nullptr);
  ASSERT_TRUE(
      AddAll({Accepted(), Scores(0), ItemError(1), Scores(2), Summary(2, 1)}, &reader).ok());
  const auto first = reader.PopItem();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->index, 0);
  EXPECT_EQ(first->name, "p0");
  EXPECT_TRUE(first->status.ok());
  EXPECT_EQ(first->scores.specs(0).values().at("stress"), 0.5);
  const auto second = reader.PopItem();
  EXPECT_EQ(GetErrorDetails(second->status).reason, Reason::kNotFinite);
  EXPECT_EQ(GetErrorDetails(second->status).fields[0].first, "projection");
  EXPECT_EQ(reader.PopItem()->index, 2);
  EXPECT_FALSE(reader.PopItem().has_value());
  EXPECT_EQ(reader.summary()->scored_count(), 2);
  EXPECT_EQ(reader.accepted()->request_id(), "r");
}

TEST(MeasureReaderTest, LocalArraysInlineAndInChunks) {
  MeasureReader reader(nullptr);
  const std::string bytes = BytesOf<double>({1, 2});
  auto scores = WithLocal(WithLocal(Scores(0), "a", 2, ""), "b", 2, bytes);
  scores = WithLocal(scores, "c", 2, "");
  ASSERT_TRUE(reader.Add(Accepted()).ok());
  ASSERT_TRUE(reader.Add(scores).ok());
  EXPECT_FALSE(reader.PopItem().has_value());
  ASSERT_TRUE(reader.Add(LocalChunk(0, 0, 0, bytes.substr(0, 3))).ok());
  ASSERT_TRUE(reader.Add(LocalChunk(0, 0, 3, bytes.substr(3))).ok());
  EXPECT_FALSE(reader.PopItem().has_value());
  ASSERT_TRUE(reader.Add(LocalChunk(0, 2, 0, bytes)).ok());
  const auto item = reader.PopItem();
  ASSERT_TRUE(item.has_value());
  ASSERT_EQ(item->local.size(), 3u);
  for (const LocalScores& local : item->local) EXPECT_EQ(local.tensor.buffer.as<double>()[1], 2);
  EXPECT_EQ(item->local[2].key, "c");
}

TEST(MeasureReaderTest, SingleFrame) {
  v1::MeasureResponse frame;
  frame.mutable_single()->mutable_accepted()->set_request_id("r");
  *frame.mutable_single()->add_items()->mutable_scores() = Scores(0).scores();
  *frame.mutable_single()->add_items()->mutable_error() = ItemError(1).item_error();
  *frame.mutable_single()->mutable_summary() = Summary(1, 1).summary();
  MeasureReader reader(nullptr);
  ASSERT_TRUE(AddAll({frame}, &reader).ok());
  EXPECT_TRUE(reader.PopItem()->status.ok());
  EXPECT_FALSE(reader.PopItem()->status.ok());
}

TEST(MeasureReaderTest, FramesOutOfOrderAreRefused) {
  const auto open = WithLocal(Scores(0), "a", 2, "");
  const std::string bytes = BytesOf<double>({1, 2});
  const struct {
    const char* message;
    std::vector<v1::MeasureResponse> frames;
  } kCases[] = {
      {"before the request is accepted", {Scores(0)}},
      {"accepted twice", {Accepted(), Accepted()}},
      {"unknown kind", {Accepted(), v1::MeasureResponse()}},
      {"1 is answered in the place of 0", {Accepted(), Scores(1)}},
      {"0 is answered in the place of 1", {Accepted(), Scores(0), ItemError(0)}},
      {"belongs to no scores", {Accepted(), LocalChunk(0, 0, 0, bytes)}},
      {"belongs to no scores", {Accepted(), Scores(0), LocalChunk(0, 0, 0, bytes)}},
      {"array 1", {Accepted(), open, LocalChunk(0, 1, 0, bytes)}},
      {"projection 1", {Accepted(), open, LocalChunk(1, 0, 0, bytes)}},
      {"instead of 0", {Accepted(), open, LocalChunk(0, 0, 8, bytes)}},
      {"before the local arrays of 0", {Accepted(), open, Scores(1)}},
      {"before the local arrays are complete", {Accepted(), open, Summary(1, 0)}},
      {"tells 2 scores", {Accepted(), Scores(0), Summary(2, 0)}},
      {"follows the summary", {Accepted(), Summary(0, 0), Scores(0)}},
      {"before the summary", {Accepted(), Scores(0)}},
      {"instead of 16", {Accepted(), WithLocal(Scores(0), "a", 2, "short")}},
  };
  for (const auto& c : kCases) {
    MeasureReader reader(nullptr);
    const absl::Status status = AddAll(c.frames, &reader);
    ASSERT_FALSE(status.ok()) << c.message;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace tenon::client
