// Chunks that are split without protobuf: protobuf must read the same in them.

#include "server/frames.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/v1/contraction.pb.h"
#include "tenon/v1/measurement.pb.h"
#include "tests/support/chunk_oracle.h"

namespace tenon::server {
namespace {

using tenon::testing::ReadsTheSame;

constexpr int kField = v1::ContractRequest::kChunkFieldNumber;
constexpr int kFields[] = {kField};

v1::ContractRequest Frame(size_t bytes) {
  v1::ContractRequest frame;
  v1::TensorChunk* chunk = frame.mutable_chunk();
  chunk->set_set(1);
  chunk->set_operand(2);
  chunk->set_offset_bytes(300);
  for (size_t i = 0; i < bytes; ++i) *chunk->mutable_data() += static_cast<char>('a' + i % 26);
  chunk->set_crc32c(0x01020304);
  return frame;
}

std::optional<ChunkFrame> SplitWhole(const std::string& bytes) {
  const std::string_view pieces[] = {bytes};
  return SplitChunk(pieces, kFields);
}

// A ByteBuffer of slices of so many bytes.
grpc::ByteBuffer Sliced(const std::string& bytes, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += slice_bytes) {
    slices.emplace_back(bytes.substr(at, slice_bytes));
  }
  return {slices.data(), slices.size()};
}

TEST(SplitChunk, ReadsTheSameWhereverTheFrameIsCut) {
  const v1::ContractRequest frame = Frame(20);
  const std::string bytes = frame.SerializeAsString();
  const std::string_view all = bytes;
  for (size_t first = 0; first <= all.size(); ++first) {
    for (size_t second = first; second <= all.size(); ++second) {
      const std::string_view pieces[] = {all.substr(0, first), all.substr(first, second - first),
                                         all.substr(second)};
      const auto split = SplitChunk(pieces, kFields);
      ASSERT_TRUE(split.has_value()) << first << " " << second;
      EXPECT_TRUE(ReadsTheSame(frame, bytes, *split)) << first << " " << second;
      for (const std::string_view piece : split->chunk.data) EXPECT_FALSE(piece.empty());
    }
  }
  std::vector<std::string_view> single;
  for (size_t i = 0; i < all.size(); ++i) single.push_back(all.substr(i, 1));
  const auto split = SplitChunk(single, kFields);
  ASSERT_TRUE(split.has_value());
  EXPECT_TRUE(ReadsTheSame(frame, bytes, *split));
  EXPECT_EQ(split->chunk.data.size(), 20u);
}

TEST(SplitChunk, ReadsEveryNumber) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t number : {int64_t{0}, int64_t{1}, int64_t{127}, int64_t{128}, int64_t{16384},
                               int64_t{1} << 31, int64_t{1} << 35, int64_t{-1}, kLeast, kMost}) {
    v1::ContractRequest frame = Frame(3);
    v1::TensorChunk* chunk = frame.mutable_chunk();
    chunk->set_set(number);
    chunk->set_offset_bytes(number);
    chunk->set_operand(static_cast<int32_t>(number));
    chunk->set_crc32c(static_cast<uint32_t>(number));
    for (const bool checked : {true, false}) {
      if (!checked) chunk->clear_crc32c();
      const std::string bytes = frame.SerializeAsString();
      const auto split = SplitWhole(bytes);
      ASSERT_TRUE(split.has_value()) << number;
      EXPECT_TRUE(ReadsTheSame(frame, bytes, *split)) << number;
    }
  }
}

TEST(SplitChunk, TellsTheField) {
  constexpr int kOfMeasure[] = {v1::MeasureRequest::kDatasetChunkFieldNumber,
                                v1::MeasureRequest::kProjectionChunkFieldNumber};
  v1::MeasureRequest dataset, projection;
  *dataset.mutable_dataset_chunk() = Frame(5).chunk();
  *projection.mutable_projection_chunk() = Frame(5).chunk();
  for (const auto& frame : {dataset, projection}) {
    const std::string bytes = frame.SerializeAsString();
    const std::string_view pieces[] = {bytes};
    const auto split = SplitChunk(pieces, kOfMeasure);
    ASSERT_TRUE(split.has_value());
    EXPECT_TRUE(ReadsTheSame(frame, bytes, *split));
  }
}

// Puts the chunk's fields, written as they are, into a frame.
std::string InFrame(const std::string& fields, int field = kField) {
  std::string frame(1, static_cast<char>(field << 3 | 2));
  frame += static_cast<char>(fields.size());
  return frame + fields;
}

TEST(SplitChunk, LeavesToProtobufWhatIsUnusual) {
  const std::string whole = Frame(20).SerializeAsString();
  const std::string data =
      "\x22\x03"
      "abc";
  ASSERT_TRUE(SplitWhole(whole).has_value());
  ASSERT_TRUE(SplitWhole(InFrame(data)).has_value());
  v1::ContractRequest header, unknown = Frame(20);
  header.mutable_header()->set_request_id("abc");
  testing::AddUnknownField(unknown.mutable_chunk());
  const std::pair<const char*, std::string> frames[] = {
      {"nothing", ""},
      {"another field", header.SerializeAsString()},
      {"two frames' fields", whole + header.SerializeAsString()},
      {"the chunk twice", whole + whole},
      {"an unknown field of the chunk", unknown.SerializeAsString()},
      {"an unknown field of the frame", whole + std::string("\x78\x01")},
      {"the data twice", InFrame(data + data)},
      {"a number twice", InFrame("\x08\x01\x08\x01" + data)},
      {"a number as bytes", InFrame("\x0A\x01x" + data)},
      {"a number in a longer form", InFrame(std::string("\x08\x81\x00", 3) + data)},
      {"a length in a longer form", InFrame(std::string("\x22\x83\x00", 3) + "abc")},
      {"a tag in a longer form", InFrame(std::string("\xA2\x00\x03", 3) + "abc")},
      {"a number beyond 64 bits", InFrame("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x03" + data)},
      {"a number without end", InFrame("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF" + data)},
      {"an operand beyond 32 bits", InFrame("\x10\x80\x80\x80\x80\x10" + data)},
      {"data past the end", InFrame("\x22\x04"
                                    "abc")},
      {"a group", InFrame("\x0B\x0C" + data)},
      {"a byte more", whole + std::string(1, '\0')},
      {"a checksum that is cut off", InFrame(data + "\x2D\x01\x02\x03")}};
  for (const auto& [what, bytes] : frames) EXPECT_FALSE(SplitWhole(bytes).has_value()) << what;
  for (size_t end = 0; end < whole.size(); ++end) {
    EXPECT_FALSE(SplitWhole(whole.substr(0, end)).has_value()) << end;
  }
}

// One change of a byte, more bytes or fewer.
void Mutate(std::string* bytes, std::minstd_rand* random) {
  const size_t at = (*random)() % bytes->size();
  const auto byte = static_cast<char>((*random)());
  switch ((*random)() % 4) {
    case 0:
      bytes->insert(at, 1, byte);
      return;
    case 1:
      if (bytes->size() > 1) bytes->erase(at, 1);
      return;
    case 2:
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << (*random)() % 8));
      return;
    default:
      (*bytes)[at] = byte;
  }
}

TEST(SplitChunk, NeverTakesWhatProtobufReadsOtherwise) {
  constexpr int kRounds = 200'000, kMostChanges = 4;
  std::minstd_rand random(20240229);
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    const v1::ContractRequest frame = Frame(random() % 12);
    std::string bytes = frame.SerializeAsString();
    for (size_t left = 1 + random() % kMostChanges; left > 0; --left) Mutate(&bytes, &random);
    const size_t cut = random() % (bytes.size() + 1);
    const std::string_view all = bytes;
    const std::string_view pieces[] = {all.substr(0, cut), all.substr(cut)};
    const auto split = SplitChunk(pieces, kFields);
    if (!split.has_value()) continue;
    ++taken;
    ASSERT_TRUE(ReadsTheSame(frame, bytes, *split)) << ::testing::PrintToString(bytes);
  }
  EXPECT_GT(taken, kRounds / 20);  // or the test says little
}

TEST(SplitChunk, KeepsTheSlicesOfABuffer) {
  const v1::ContractRequest frame = Frame(10'000);
  const std::string bytes = frame.SerializeAsString();
  for (const size_t slice_bytes : {7u, 1000u, 20'000u}) {  // the first are held inside the slice
    grpc::ByteBuffer buffer = Sliced(bytes, slice_bytes);
    std::optional<ChunkFrame> split = SplitChunk(&buffer, kFields);
    ASSERT_TRUE(split.has_value());
    EXPECT_EQ(buffer.Length(), 0u);
    const ChunkFrame moved = *std::move(split);
    split.reset();
    EXPECT_TRUE(ReadsTheSame(frame, bytes, moved));
    EXPECT_EQ(moved.chunk.data.size() > 1, slice_bytes < bytes.size());
  }
}

TEST(SplitChunk, LeavesABufferThatItDoesNotTake) {
  v1::ContractRequest unknown = Frame(10'000);
  testing::AddUnknownField(&unknown);
  const v1::ContractRequest small = Frame(1000);
  for (const v1::ContractRequest& frame : {unknown, small}) {
    grpc::ByteBuffer buffer = Sliced(frame.SerializeAsString(), 500);
    EXPECT_FALSE(SplitChunk(&buffer, kFields).has_value());
    v1::ContractRequest parsed;
    ASSERT_TRUE(ParseFrame(1, &buffer, &parsed).ok());
    EXPECT_EQ(parsed.SerializeAsString(), frame.SerializeAsString());
  }
  grpc::ByteBuffer nothing, no_fields = Sliced(Frame(10'000).SerializeAsString(), 500);
  EXPECT_FALSE(SplitChunk(&nothing, kFields).has_value());
  EXPECT_FALSE(SplitChunk(&no_fields, {}).has_value());
}

}  // namespace
}  // namespace tenon::server
