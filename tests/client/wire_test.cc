#include "client/cpp/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "backends/core/error.h"
#include "tenon/call.h"
#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> MakeBytes(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  return bytes;
}

TEST(SendChunksTest, CutsInOrderWithoutGaps) {
  const std::vector<std::byte> bytes = MakeBytes(10000);
  v1::TensorChunk chunk;
  chunk.set_set(2);
  chunk.set_operand(5);
  std::vector<int64_t> offsets;
  std::string joined;
  EXPECT_TRUE(SendChunks(bytes, 4096, false, &chunk, [&] {
    EXPECT_EQ(chunk.set(), 2);
    EXPECT_EQ(chunk.operand(), 5);
    EXPECT_FALSE(chunk.has_crc32c());
    offsets.push_back(chunk.offset_bytes());
    joined += chunk.data();
    return true;
  }));
  EXPECT_THAT(offsets, ElementsAre(0, 4096, 8192));
  EXPECT_EQ(joined, AsText(bytes));
}

TEST(SendChunksTest, EndsWhenSendingFailsAndSendsNothingForNothing) {
  const std::vector<std::byte> bytes = MakeBytes(10000);
  v1::TensorChunk chunk;
  int sent = 0;
  EXPECT_FALSE(SendChunks(bytes, 4096, false, &chunk, [&] { return ++sent < 2; }));
  EXPECT_EQ(sent, 2);
  EXPECT_TRUE(SendChunks({}, 4096, false, &chunk, [&]() -> bool {
    ADD_FAILURE();
    return false;
  }));
}

TEST(SendChunksTest, Checksums) {
  const std::string text = "123456789";
  v1::TensorChunk chunk;
  EXPECT_TRUE(SendChunks(std::as_bytes(std::span(text)), 4096, true, &chunk, [] { return true; }));
  EXPECT_EQ(chunk.crc32c(), 0xE3069283u);  // the check value of CRC-32C
}

v1::TensorChunk Chunk(int64_t offset, const std::string& data) {
  v1::TensorChunk chunk;
  chunk.set_offset_bytes(offset);
  chunk.set_data(data);
  return chunk;
}

TEST(TensorAssemblerTest, PutsChunksTogether) {
  TensorAssembler assembler;
  ASSERT_TRUE(assembler.Begin({DType::kUint8, {5}}).ok());
  EXPECT_TRUE(assembler.Append(Chunk(0, "ab")).ok());
  EXPECT_FALSE(assembler.complete());
  EXPECT_TRUE(assembler.Append(Chunk(2, "cde")).ok());
  EXPECT_TRUE(assembler.complete());
  EXPECT_EQ(AsText(assembler.bytes()), "abcde");
}

TEST(TensorAssemblerTest, RefusesGapsOverlapsAndTooMuch) {
  for (const auto& bad : {Chunk(3, "x"), Chunk(1, "x"), Chunk(-1, "x"), Chunk(2, "wxyz")}) {
    TensorAssembler assembler;
    ASSERT_TRUE(assembler.Begin({DType::kUint8, {5}}).ok());
    ASSERT_TRUE(assembler.Append(Chunk(0, "ab")).ok());
    const absl::Status status = assembler.Append(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << bad.ShortDebugString();
    EXPECT_TRUE(ServerErrorOf(status).has_value());
  }
}

TEST(TensorAssemblerTest, ChecksChecksums) {
  TensorAssembler assembler;
  ASSERT_TRUE(assembler.Begin({DType::kUint8, {9}}).ok());
  v1::TensorChunk chunk = Chunk(0, "123456789");
  chunk.set_crc32c(1);
  const absl::Status status = assembler.Append(chunk);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kChecksumMismatch);
  EXPECT_EQ(ServerErrorOf(status)->reason, "CHECKSUM_MISMATCH");
  chunk.set_crc32c(0xE3069283u);
  EXPECT_TRUE(assembler.Append(chunk).ok());
}

TEST(TensorAssemblerTest, InlineMustBeExact) {
  TensorAssembler assembler;
  ASSERT_TRUE(assembler.Begin({DType::kUint8, {3}}).ok());
  EXPECT_FALSE(assembler.SetInline("ab").ok());
  EXPECT_FALSE(assembler.SetInline("abcd").ok());
  EXPECT_TRUE(assembler.SetInline("abc").ok());
  EXPECT_TRUE(assembler.complete());
}

TEST(SpecTest, RoundTripAndRefusals) {
  const TensorSpec spec{DType::kComplex64, {3, 0, 7}};
  const auto back = FromWire(ToWire(spec));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, spec);
  v1::TensorSpec bad;
  EXPECT_THAT(std::string(FromWire(bad).status().message()), HasSubstr("element type"));
  bad.set_dtype(static_cast<v1::DataType>(77));
  EXPECT_FALSE(FromWire(bad).ok());
  bad = ToWire({DType::kFloat64, {-1}});
  EXPECT_FALSE(FromWire(bad).ok());
  bad = ToWire({DType::kFloat64, {int64_t{1} << 62, 4}});
  EXPECT_FALSE(FromWire(bad).ok());
  bad = ToWire({DType::kFloat64, std::vector<int64_t>(kMaxRank + 1, 1)});
  EXPECT_FALSE(FromWire(bad).ok());
}

TEST(CheckViewTest, BytesMustFitTheShape) {
  const std::vector<std::byte> bytes(24);
  EXPECT_TRUE(CheckView({{DType::kFloat64, {3}}, bytes}, "f").ok());
  const struct {
    TensorSpec spec;
    Reason reason;
    const char* field;
  } kCases[] = {{{DType::kFloat64, {4}}, Reason::kShapeMismatch, "f"},
                {{DType::kFloat64, {-3}}, Reason::kShapeMismatch, "f"},
                {{DType::kFloat64, {int64_t{1} << 62}}, Reason::kOverflow, "f"},
                {{DType::kUnspecified, {3}}, Reason::kMissingField, "f.dtype"}};
  for (const auto& c : kCases) {
    const ErrorDetails details = GetErrorDetails(CheckView({c.spec, bytes}, "f"));
    EXPECT_EQ(details.reason, c.reason);
    ASSERT_EQ(details.fields.size(), 1u);
    EXPECT_EQ(details.fields[0].first, c.field);
  }
}

TEST(PathTest, ToWire) {
  const PathSteps path{PathSteps::Format::kLinear, {{0, 1}, {0}}};
  const std::vector<std::string> sliced = {"a"};
  const v1::ExplicitPlan plan = ToWire(path, sliced);
  EXPECT_EQ(plan.path().format(), v1::PATH_FORMAT_LINEAR);
  ASSERT_EQ(plan.path().steps_size(), 2);
  EXPECT_THAT(plan.path().steps(0).operands(), ElementsAre(0, 1));
  EXPECT_THAT(plan.sliced_indices(), ElementsAre("a"));
}

}  // namespace
}  // namespace tenon::client
