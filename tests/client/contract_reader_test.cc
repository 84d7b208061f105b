#include "client/cpp/contract_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/call.h"
#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using ::testing::HasSubstr;
using namespace tenon::testing;  // NOLINT(build/namespaces): the frames

const TensorSpec kSpec{DType::kFloat64, {3}};
const std::string kBytes = BytesOf<double>({1, 2, 3});

v1::ContractResponse InlineFrame(int64_t set) {
  v1::ContractResponse frame;
  *frame.mutable_result() = InlineResult(set, kSpec, kBytes);
  return frame;
}

v1::ContractResponse WithCrc(v1::ContractResponse frame, uint32_t crc) {
  if (frame.has_chunk()) frame.mutable_chunk()->set_crc32c(crc);
  if (frame.has_set_report()) frame.mutable_set_report()->set_result_crc32c(crc);
  return frame;
}

// The outcome of all frames, or the first error.
absl::StatusOr<ContractOutcome> ReadAll(const std::vector<v1::ContractResponse>& frames,
                                        const ContractCallbacks& callbacks = {}) {
  ContractReader reader(callbacks);
  for (const auto& frame : frames) TENON_RETURN_IF_ERROR(reader.Add(frame));
  return reader.Take();
}

TEST(ContractReaderTest, InlineResult) {
  const auto outcome = ReadAll({AcceptedFrame(), InlineFrame(0), ReportFrame(1)});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->results.size(), 1u);
  EXPECT_EQ(outcome->results[0].tensor.spec, kSpec);
  EXPECT_EQ(outcome->results[0].tensor.buffer.as<double>()[2], 3);
  EXPECT_EQ(outcome->results[0].log10_scale, std::nullopt);
  EXPECT_EQ(outcome->accepted.request_id(), "r");
}

TEST(ContractReaderTest, StreamedResultsOfManySets) {
  const auto outcome =
      ReadAll({AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 0, kBytes.substr(0, 10)),
               ChunkFrame(0, 10, kBytes.substr(10)), SetReportFrame(0, 24), InlineFrame(1),
               ReportFrame(2)});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->results.size(), 2u);
  for (const ContractResult& result : outcome->results) {
    EXPECT_EQ(result.tensor.buffer.as<double>()[1], 2);
    EXPECT_EQ(result.report.result_bytes(), 24);
  }
}

TEST(ContractReaderTest, SingleFrame) {
  v1::ContractResponse frame;
  *frame.mutable_single()->mutable_accepted() = AcceptedFrame().accepted();
  *frame.mutable_single()->add_results() = InlineResult(0, kSpec, kBytes);
  frame.mutable_single()->mutable_report()->set_sets(1);
  frame.mutable_single()->mutable_results(0)->set_log10_scale(-7.5);
  const auto outcome = ReadAll({frame});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->results[0].log10_scale, -7.5);
}

TEST(ContractReaderTest, EmptyResultsNeedNoBytes) {
  v1::ContractResponse frame = ResultFrame(0, {DType::kFloat64, {0, 5}});
  frame.mutable_result()->mutable_report();
  const auto outcome = ReadAll({AcceptedFrame(), frame, ReportFrame(1)});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->results[0].tensor.buffer.size_bytes(), 0);
}

TEST(ContractReaderTest, Callbacks) {
  v1::ContractResponse progress;
  progress.mutable_progress()->set_slices_done(4);
  std::vector<std::string> calls;
  ContractCallbacks callbacks;
  callbacks.on_accepted = [&](const v1::ContractAccepted& a) { calls.push_back(a.request_id()); };
  callbacks.on_progress = [&](const v1::ContractProgress& p) {
    calls.push_back(std::to_string(p.slices_done()));
  };
  callbacks.on_result = [&](ContractResult result) {
    calls.push_back("set " + std::to_string(result.set));
    return result.set < 1 ? absl::OkStatus() : absl::AbortedError("enough");
  };
  const auto outcome =
      ReadAll({progress, AcceptedFrame(), progress, InlineFrame(0), InlineFrame(1)}, callbacks);
  EXPECT_EQ(outcome.status(), absl::AbortedError("enough"));
  EXPECT_THAT(calls, ::testing::ElementsAre("4", "r", "4", "set 0", "set 1"));
}

TEST(ContractReaderTest, Checksums) {
  // Of the 24 bytes of {1, 2, 3}; computed with the reflected polynomial, bit by bit.
  uint32_t crc = ~0u;
  for (const char c : kBytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  crc = ~crc;
  EXPECT_TRUE(
      ReadAll({AcceptedFrame(), ResultFrame(0, kSpec), WithCrc(ChunkFrame(0, 0, kBytes), crc),
               WithCrc(SetReportFrame(0, 24), crc), ReportFrame(1)})
          .ok());
  const auto bad_chunk =
      ReadAll({AcceptedFrame(), ResultFrame(0, kSpec), WithCrc(ChunkFrame(0, 0, kBytes), crc + 1)});
  EXPECT_EQ(bad_chunk.status().code(), absl::StatusCode::kDataLoss);
  const auto bad_total = ReadAll({AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 0, kBytes),
                                  WithCrc(SetReportFrame(0, 24), crc + 1)});
  EXPECT_EQ(GetErrorDetails(bad_total.status()).reason, Reason::kChecksumMismatch);
}

TEST(ContractReaderTest, FramesOutOfOrderAreRefused) {
  v1::ContractResponse wrong_operand = ChunkFrame(0, 0, "x");
  wrong_operand.mutable_chunk()->set_operand(1);
  v1::ContractResponse no_spec;
  no_spec.mutable_result();
  const struct {
    const char* message;
    std::vector<v1::ContractResponse> frames;
  } kCases[] = {
      {"before the request is accepted", {InlineFrame(0)}},
      {"accepted twice", {AcceptedFrame(), AcceptedFrame()}},
      {"empty or of an unknown kind", {AcceptedFrame(), v1::ContractResponse()}},
      {"belongs to no result", {AcceptedFrame(), ChunkFrame(0, 0, "x")}},
      {"closes no result", {AcceptedFrame(), SetReportFrame(0, 0)}},
      {"set 1 comes in the place of set 0", {AcceptedFrame(), InlineFrame(1)}},
      {"before that of set 0 is complete",
       {AcceptedFrame(), ResultFrame(0, kSpec), InlineFrame(1)}},
      {"begins at byte 8 instead of 0",
       {AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 8, "x")}},
      {"passes the end",
       {AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 0, std::string(25, 'x'))}},
      {"operand 1", {AcceptedFrame(), ResultFrame(0, kSpec), wrong_operand}},
      {"chunk of set 1", {AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(1, 0, "x")}},
      {"ends after 10 of 24 bytes",
       {AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 0, std::string(10, 'x')),
        SetReportFrame(0, 24)}},
      {"tells 23 bytes",
       {AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 0, kBytes), SetReportFrame(0, 23)}},
      {"report of set 1",
       {AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 0, kBytes), SetReportFrame(1, 24)}},
      {"belongs to no result",
       {AcceptedFrame(), ResultFrame(0, kSpec), ChunkFrame(0, 0, kBytes), ChunkFrame(0, 24, "x")}},
      {"before the result of set 0", {AcceptedFrame(), ResultFrame(0, kSpec), ReportFrame(0)}},
      {"tells 2 sets, but 1", {AcceptedFrame(), InlineFrame(0), ReportFrame(2)}},
      {"follows the report", {AcceptedFrame(), InlineFrame(0), ReportFrame(1), InlineFrame(1)}},
      {"unknown element type", {AcceptedFrame(), no_spec}},
      {"before the report", {AcceptedFrame(), InlineFrame(0)}},
  };
  for (const auto& c : kCases) {
    const auto outcome = ReadAll(c.frames);
    ASSERT_FALSE(outcome.ok()) << c.message;
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInternal) << c.message;
    EXPECT_THAT(std::string(outcome.status().message()), HasSubstr(c.message));
    EXPECT_TRUE(ServerErrorOf(outcome.status()).has_value()) << c.message;
  }
}

}  // namespace
}  // namespace tenon::client
