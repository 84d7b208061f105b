#include "server/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LoggingTest : public ::testing::Test {
 protected:
  ~LoggingTest() override { InitLogging("info", false); }

  // The lines that `write` logs.
  template <typename Write>
  static std::vector<std::string> Lines(Write&& write) {
    ::testing::internal::CaptureStderr();
    write();
    return absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
  }
};

TEST_F(LoggingTest, TextIsOneLineWhateverAClientSends) {
  InitLogging("info", false);
  const auto lines = Lines([] {
    Log(LogLevel::kInfo, "request",
        {{"id", std::string("a\nERROR forged \"x\" \xff")},
         {"count", int64_t{3}},
         {"ok", true},
         {"plain", std::string("127.0.0.1:5")}});
  });
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr(" INFO request id=\"a\\nERROR forged \\\"x\\\" "));
  EXPECT_THAT(lines[0], HasSubstr(" count=3 ok=true plain=127.0.0.1:5"));
}

TEST_F(LoggingTest, LongTextsAreCut) {
  for (const bool json : {false, true}) {
    InitLogging("info", json);
    const auto lines = Lines([] {
      Log(LogLevel::kInfo, "request", {{"message", std::string(100'000, 'x')}});
    });
    ASSERT_THAT(lines, SizeIs(1));
    EXPECT_GT(lines[0].size(), 1000u);
    EXPECT_LT(lines[0].size(), 4000u);
  }
}

TEST_F(LoggingTest, JsonKeepsTypes) {
  InitLogging("info", true);
  const auto lines = Lines([] {
    Log(LogLevel::kWarning, "event",
        {{"text", std::string("a\n\xff")}, {"number", 0.5}, {"count", int64_t{3}}, {"on", false}});
  });
  ASSERT_THAT(lines, SizeIs(1));
  const auto object = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(object["level"], "WARNING");
  EXPECT_EQ(object["event"], "event");
  EXPECT_EQ(object["text"], "a\n\uFFFD");
  EXPECT_EQ(object["number"], 0.5);
  EXPECT_EQ(object["count"], 3);
  EXPECT_EQ(object["on"], false);
  EXPECT_TRUE(object.contains("time"));
}

// A frame of a stranger that is no UTF-8 makes protobuf complain: not past the log's form and
// level.
TEST_F(LoggingTest, TakesOverProtobufsMessages) {
  const auto complain = [] {
    v1::ContractRequest frame;
    frame.ParseFromString("\x0a\x03\x0a\x01\xff");  // header.request_id = "\xff"
  };
  InitLogging("info", true);
  EXPECT_THAT(Lines(complain), IsEmpty());
  InitLogging("debug", true);
  const auto lines = Lines(complain);
  ASSERT_THAT(lines, SizeIs(1));
  const auto object = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(object["event"], "protobuf");
  EXPECT_EQ(object["level"], "DEBUG");
}

TEST_F(LoggingTest, LevelFilters) {
  InitLogging("warning", false);
  EXPECT_THAT(Lines([] { Log(LogLevel::kInfo, "x"); }), IsEmpty());
  EXPECT_THAT(Lines([] { Log(LogLevel::kError, "x"); }), SizeIs(1));
  InitLogging("trace", false);
  EXPECT_THAT(Lines([] { Log(LogLevel::kTrace, "x"); }), SizeIs(1));
}

TEST_F(LoggingTest, RequestLineTellsReasonAndOnlyDefectsAreErrors) {
  InitLogging("info", true);
  const auto lines = Lines([] {
    LogRequest("Contract", "id-1", absl::OkStatus(), 0.5, {{"slices", int64_t{4}}});
    LogRequest("Contract", "id-2", Error(Reason::kBadPath, "step 3"), 0.5);
    LogRequest("Contract", "id-3", Error(Reason::kInternal, "defect"), 0.5);
  });
  ASSERT_THAT(lines, SizeIs(3));
  const auto good = nlohmann::json::parse(lines[0]), refused = nlohmann::json::parse(lines[1]),
             defect = nlohmann::json::parse(lines[2]);
  EXPECT_EQ(good["reason"], "OK");
  EXPECT_EQ(good["request_id"], "id-1");
  EXPECT_EQ(good["slices"], 4);
  EXPECT_EQ(refused["reason"], "BAD_PATH");
  EXPECT_EQ(refused["message"], "step 3");
  EXPECT_EQ(refused["level"], "INFO");
  EXPECT_EQ(defect["level"], "ERROR");
}

}  // namespace
}  // namespace tenon::server
