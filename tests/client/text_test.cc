#include "client/cpp/tool/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>

#include "client/cpp/tool/progress_bar.h"
#include "client/cpp/tool/session.h"

namespace tenon::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <typename T>
Tensor MakeTensor(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  Tensor tensor = *Tensor::Allocate({dtype, std::move(shape)});
  std::copy(values.begin(), values.end(), tensor.buffer.as<T>());
  return tensor;
}

TEST(TextTest, Quantities) {
  EXPECT_EQ(FormatBytes(312), "312 bytes");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(4.0 * (1 << 30)), "4 GiB");
  EXPECT_EQ(FormatPlannedPeak(0), "unknown");
  EXPECT_EQ(FormatPlannedPeak(2048), "2 KiB");
  EXPECT_EQ(FormatPlannedPeak(int64_t{1} << 50), "at least 1 PiB");
  EXPECT_EQ(FormatBytes(1020 * 1024), "1020 KiB");
  EXPECT_EQ(FormatCount(0, "slice"), "0 slices");
  EXPECT_EQ(FormatCount(1, "slice"), "1 slice");
  EXPECT_EQ(FormatSeconds(12.5), "12.5 s");
  EXPECT_EQ(FormatSeconds(0.0456), "45.6 ms");
  EXPECT_EQ(FormatSeconds(7.8e-6), "7.8 us");
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatShape({2, 3}), "[2, 3]");
  EXPECT_EQ(FormatShape({}), "[]");
}

TEST(TextTest, ScalarsInFull) {
  EXPECT_EQ(FormatTensor(MakeTensor<double>(DType::kFloat64, {}, {1.0 / 3})),
            "0.33333333333333331");
  EXPECT_EQ(FormatTensor(MakeTensor<float>(DType::kFloat32, {}, {0.1f})), "0.100000001");
  EXPECT_EQ(FormatTensor(MakeTensor<std::complex<double>>(DType::kComplex128, {}, {{0.5, -0.25}})),
            "0.5 - 0.25i");
}

TEST(TextTest, SmallTensorsNested) {
  EXPECT_EQ(FormatTensor(MakeTensor<double>(DType::kFloat64, {2, 2}, {1, 2, 3, 4})),
            "[[1, 2],\n [3, 4]]");
  EXPECT_EQ(FormatTensor(MakeTensor<double>(DType::kFloat64, {0, 2}, {})),
            "an empty tensor of shape [0, 2]");
}

TEST(TextTest, LargeTensorsSummarised) {
  const std::string text =
      FormatTensor(MakeTensor<double>(DType::kFloat64, {1000}, std::vector<double>(1000, 2.0)));
  EXPECT_THAT(text, HasSubstr("float64 tensor of shape [1000], 1000 elements"));
  EXPECT_THAT(text, HasSubstr("2000"));                // the sum
  EXPECT_THAT(text, HasSubstr("63.245553203367585"));  // sqrt(4000)
}

TEST(TextTest, ColumnsLineUp) {
  EXPECT_EQ(FormatPairs({{"a", "1"}, {"long", "2"}}), "  a     1\n  long  2\n");
  EXPECT_EQ(FormatTable({"name", "n"}, {{"x", "100"}, {"\xC3\xA9", "1"}}),
            "name  n\nx     100\n\xC3\xA9       1\n");
  EXPECT_EQ(Pad("ab", 4), "ab  ");
  EXPECT_EQ(Pad("ab", 4, true), "  ab");
  EXPECT_EQ(Pad("abcdef", 4), "abcdef");
}

TEST(TextTest, ReportTellsWhatIsNotVerified) {
  v1::ContractionReport report;
  report.mutable_timing()->set_timing_scope(v1::TIMING_SCOPE_UNVERIFIED);
  EXPECT_THAT(FormatReport(report), HasSubstr("not verified"));
  report.mutable_timing()->set_execution_seconds(2);
  report.set_gflops(123.4);
  const std::string text = FormatReport(report);
  EXPECT_THAT(text, Not(HasSubstr("not verified")));
  EXPECT_THAT(text, HasSubstr("2 s"));
  EXPECT_THAT(text, HasSubstr("123.4 GFLOP/s"));
}

TEST(ProgressTest, Bars) {
  EXPECT_EQ(FormatProgress(std::nullopt, "queued"), "queued");
  EXPECT_EQ(FormatProgress(0.5, "x"), "[===============>              ] 50 %  x");
  EXPECT_EQ(FormatProgress(7, "x"), "[==============================] 100 %  x");
}

TEST(ProgressTest, WritesOnlyToTerminals) {
  std::ostringstream out;
  {
    ProgressBar bar(&out, false);
    bar.Update(0.5, "x");
  }
  EXPECT_EQ(out.str(), "");
  {
    ProgressBar bar(&out, true);
    bar.Update(0.5, "x");
  }
  EXPECT_THAT(out.str(), HasSubstr("50 %"));
  EXPECT_TRUE(out.str().ends_with("\r\x1b[K"));  // cleared at the end
}

TEST(ErrorTextTest, TellsEverythingThereIs) {
  v1::ErrorDetail detail;
  detail.set_code(3);
  detail.set_reason("SHAPE_MISMATCH");
  detail.set_field("header.network");
  detail.set_message("sizes differ");
  (*detail.mutable_metadata())["limit_bytes"] = "12";
  detail.set_retry_delay_seconds(2);
  EXPECT_EQ(ErrorText(client::StatusFromDetail(detail)),
            "INVALID_ARGUMENT SHAPE_MISMATCH: sizes differ\n"
            "  field header.network\n"
            "  limit_bytes = 12\n"
            "  try again in 2 s\n");
}

TEST(ErrorTextTest, ReasonsStandThereOnce) {
  v1::ErrorDetail detail;
  detail.set_code(5);
  detail.set_reason("NOT_FOUND");
  detail.set_message("there is no job jobs/x");
  EXPECT_EQ(ErrorText(client::StatusFromDetail(detail)), "NOT_FOUND: there is no job jobs/x\n");
  detail.set_code(10);
  detail.set_reason("SLOW_READER");
  detail.set_message("SLOW_READER: nothing was read");
  EXPECT_EQ(ErrorText(client::StatusFromDetail(detail)), "ABORTED SLOW_READER: nothing was read\n");
}

TEST(ErrorTextTest, LocalErrorsNeedNoCode) {
  const absl::Status status = Error(Reason::kNotFound, "no file").Field("--hd", "look again");
  EXPECT_EQ(ErrorText(status), "no file\n  field --hd: look again\n");
  EXPECT_EQ(ExitCode(status, false), kExitUsage);
  EXPECT_EQ(ExitCode(status, true), kExitInterrupted);
}

}  // namespace
}  // namespace tenon::tool
