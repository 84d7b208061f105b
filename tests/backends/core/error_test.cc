#include "backends/core/error.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "backends/core/cancel.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using testing::Fails;

constexpr Reason kAllReasons[] = {
#define TENON_REASON_ID(id, name, code) Reason::id,
    TENON_REASONS(TENON_REASON_ID)
#undef TENON_REASON_ID
};

TEST(ErrorTest, NamesAreDistinctAndReadBack) {
  std::set<std::string_view> names;
  for (const Reason reason : kAllReasons) {
    EXPECT_TRUE(names.insert(ReasonName(reason)).second) << ReasonName(reason);
    const auto back = ReasonFromName(ReasonName(reason));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, reason);
    EXPECT_NE(ReasonCode(reason), absl::StatusCode::kOk);
  }
  EXPECT_EQ(ReasonFromName("NO_SUCH_REASON").status().code(), absl::StatusCode::kNotFound);
}

// The reasons of the wire contract with their codes. Each stands below a comment that begins
// "// CODE: meaning" or "// CODE with RetryInfo: meaning".
std::map<std::string, std::string> DocumentedReasons() {
  constexpr std::string_view kComment = "  // ", kName = "  ERROR_REASON_";
  std::istringstream proto(
      testing::ReadFileOrDie(testing::TestPath("../proto/tenon/v1/errors.proto")));
  std::map<std::string, std::string> documented;
  std::string code;
  for (std::string line; std::getline(proto, line);) {
    if (line.starts_with(kName)) {
      const size_t end = line.find(" = ");
      const std::string name = line.substr(kName.size(), end - kName.size());
      if (name != "UNSPECIFIED") documented[name] = code;
      code.clear();
    } else if (line.starts_with(kComment) && code.empty()) {
      code =
          line.substr(kComment.size(), line.find_first_of(" :", kComment.size()) - kComment.size());
    }
  }
  return documented;
}

TEST(ErrorTest, TheWireContractHasTheSameReasonsAndCodes) {
  const std::map<std::string, std::string> documented = DocumentedReasons();
  std::map<std::string, std::string> ours;
  for (const Reason reason : kAllReasons) {
    ours[std::string(ReasonName(reason))] = absl::StatusCodeToString(ReasonCode(reason));
  }
  EXPECT_EQ(documented, ours);
}

TEST(ErrorTest, DetailsSurviveTheStatus) {
  const absl::Status status = Error(Reason::kBadPath, "step 3 is wrong")
                                  .Field("path.steps[3]")
                                  .Field("path", "too short")
                                  .Meta("limit_bytes", 1024)
                                  .Meta("name", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "step 3 is wrong");
  const ErrorDetails details = GetErrorDetails(status);
  EXPECT_EQ(details.reason, Reason::kBadPath);
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"path.steps[3]", "step 3 is wrong"}, {"path", "too short"}};
  EXPECT_EQ(details.fields, fields);
  const std::map<std::string, std::string> metadata = {{"limit_bytes", "1024"}, {"name", "x"}};
  EXPECT_EQ(details.metadata, metadata);
}

TEST(ErrorTest, IllFormedTextIsReplaced) {
  const absl::Status status =
      Error(Reason::kUnknownIndex, "index '\xFF'").Field("a\xC0").Meta("index", "\xED\xA0\x80");
  EXPECT_EQ(status.message(), "index '\xEF\xBF\xBD'");
  const ErrorDetails details = GetErrorDetails(status);
  EXPECT_EQ(details.reason, Reason::kUnknownIndex);
  ASSERT_EQ(details.fields.size(), 1u);
  EXPECT_EQ(details.fields[0].first, "a\xEF\xBF\xBD");
}

TEST(ErrorTest, StatusesFromElsewhereGetAReasonByTheirCode) {
  const std::map<absl::StatusCode, Reason> expected = {
      {absl::StatusCode::kCancelled, Reason::kClientCancelled},
      {absl::StatusCode::kInvalidArgument, Reason::kBadParameter},
      {absl::StatusCode::kOutOfRange, Reason::kBadParameter},
      {absl::StatusCode::kDeadlineExceeded, Reason::kDeadline},
      {absl::StatusCode::kNotFound, Reason::kNotFound},
      {absl::StatusCode::kAlreadyExists, Reason::kAlreadyExists},
      {absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied},
      {absl::StatusCode::kUnauthenticated, Reason::kUnauthenticated},
      {absl::StatusCode::kResourceExhausted, Reason::kOverloaded},
      {absl::StatusCode::kUnimplemented, Reason::kNotImplemented},
      {absl::StatusCode::kDataLoss, Reason::kChecksumMismatch},
      {absl::StatusCode::kUnknown, Reason::kInternal},
      {absl::StatusCode::kInternal, Reason::kInternal},
  };
  for (const auto& [code, reason] : expected) {
    const ErrorDetails details = GetErrorDetails(absl::Status(code, "x"));
    EXPECT_EQ(details.reason, reason) << code;
    EXPECT_TRUE(details.fields.empty());
    EXPECT_TRUE(details.metadata.empty());
  }
}

TEST(ErrorTest, AForeignPayloadIsNoDanger) {
  for (const char* payload : {"", "{", "[]", "{\"reason\": 3}", "{\"reason\": \"BAD_PATH\"}",
                              "{\"reason\": \"OVERFLOW\", \"fields\": 1, \"metadata\": []}"}) {
    absl::Status status(absl::StatusCode::kNotFound, "x");
    status.SetPayload("tenon/error-details", absl::Cord(payload));
    EXPECT_TRUE(GetErrorDetails(status).fields.empty()) << payload;
  }
}

TEST(ErrorTest, PrefixFieldsKeepsAllElse) {
  const absl::Status status = PrefixFields(
      Error(Reason::kBadSlice, "text").Field("sliced[0]", "unknown").Meta("count", 2), "header.");
  EXPECT_EQ(status.message(), "text");
  const ErrorDetails details = GetErrorDetails(status);
  EXPECT_EQ(details.reason, Reason::kBadSlice);
  ASSERT_EQ(details.fields.size(), 1u);
  EXPECT_EQ(details.fields[0].first, "header.sliced[0]");
  EXPECT_EQ(details.fields[0].second, "unknown");
  EXPECT_EQ(details.metadata.at("count"), "2");
  EXPECT_TRUE(PrefixFields(absl::OkStatus(), "a.").ok());
  EXPECT_EQ(PrefixFields(absl::NotFoundError("x"), "a."), absl::NotFoundError("x"));
}

TEST(ErrorTest, PrefixMessageKeepsAllElse) {
  const absl::Status status =
      PrefixMessage(Error(Reason::kBadPath, "text").Field("path").Meta("count", 2), "file: ");
  EXPECT_EQ(status.message(), "file: text");
  EXPECT_TRUE(Fails(status, Reason::kBadPath, "path"));
  EXPECT_EQ(GetErrorDetails(status).metadata.at("count"), "2");
  const absl::Status told =
      PrefixMessage(Error(Reason::kBadPath, "text").Field("a").Field("b", "other"), "file: ");
  EXPECT_EQ(GetErrorDetails(told).fields[0].second, "file: text");  // not said twice, differently
  EXPECT_EQ(GetErrorDetails(told).fields[1].second, "other");
  EXPECT_TRUE(PrefixMessage(absl::OkStatus(), "a").ok());
  EXPECT_EQ(PrefixMessage(absl::NotFoundError("x"), "a: "), absl::NotFoundError("a: x"));
}

TEST(CancelTokenTest, TheFirstReasonStays) {
  CancelToken token;
  EXPECT_FALSE(token.cancelled());
  EXPECT_TRUE(token.Check().ok());
  EXPECT_EQ(token.flag()->load(), 0);
  token.Cancel(Reason::kDraining);
  token.Cancel();
  EXPECT_TRUE(token.cancelled());
  EXPECT_TRUE(Fails(token.Check(), Reason::kDraining));
  EXPECT_NE(token.flag()->load(), 0);
}

TEST(CancelTokenTest, ADeadlineCancels) {
  const auto now = CancelToken::TimePoint::clock::now();
  const CancelToken passed(now);
  EXPECT_TRUE(passed.cancelled());
  EXPECT_TRUE(Fails(passed.Check(), Reason::kDeadline));
  CancelToken ahead(now + std::chrono::hours(1));
  EXPECT_TRUE(ahead.Check().ok());
  ahead.Cancel();
  EXPECT_TRUE(Fails(ahead.Check(), Reason::kClientCancelled));
}

}  // namespace
}  // namespace tenon
