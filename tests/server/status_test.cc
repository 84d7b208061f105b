#include "server/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "google/rpc/status_details.pb.h"
#include "server/quota.h"

namespace tenon::server {
namespace {

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(details.message(), status.error_message());
  return details;
}

// The detail of this type; fails the test when it is not there exactly once.
template <typename Detail>
Detail Only(const google::rpc::Status& details) {
  Detail found;
  int count = 0;
  for (const auto& any : details.details()) count += any.UnpackTo(&found) ? 1 : 0;
  EXPECT_EQ(count, 1) << Detail::descriptor()->full_name();
  return found;
}

TEST(Status, OkHasNoDetails) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_EQ(ToGrpcStatus(absl::OkStatus()).error_details(), "");
}

TEST(Status, EveryReasonHasItsCodeAndName){
#define TENON_EXPECT_REASON(id, name, code)                                                \
  {                                                                                        \
    const grpc::Status status = ToGrpcStatus(Error(Reason::id, "text"));                   \
    EXPECT_EQ(status.error_code(), static_cast<grpc::StatusCode>(absl::StatusCode::code)); \
    const auto info = Only<google::rpc::ErrorInfo>(Details(status));                       \
    EXPECT_EQ(info.reason(), name);                                                        \
    EXPECT_EQ(info.domain(), "tenon");                                                     \
    v1::ErrorReason number;                                                                \
    EXPECT_TRUE(v1::ErrorReason_Parse("ERROR_REASON_" name, &number)) << name;             \
  }
    TENON_REASONS(TENON_EXPECT_REASON)
#undef TENON_EXPECT_REASON
}

TEST(Status, CarriesFieldsMetadataAndRetryDelay) {
  const absl::Status error = Error(Reason::kOverloaded, "full")
                                 .Field("header.specs[0].k", "too large")
                                 .Meta("limit_bytes", 7)
                                 .Meta("retry_delay_seconds", 1.5);
  const google::rpc::Status details = Details(ToGrpcStatus(error));
  EXPECT_EQ(details.details_size(), 3);
  const auto info = Only<google::rpc::ErrorInfo>(details);
  EXPECT_EQ(info.metadata().at("limit_bytes"), "7");
  const auto bad = Only<google::rpc::BadRequest>(details);
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), "header.specs[0].k");
  EXPECT_EQ(bad.field_violations(0).description(), "too large");
  const auto retry = Only<google::rpc::RetryInfo>(details).retry_delay();
  EXPECT_EQ(retry.seconds(), 1);
  EXPECT_EQ(retry.nanos(), 500'000'000);

  const v1::ErrorDetail message = ToErrorDetail(error);
  EXPECT_EQ(message.code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(message.reason(), "OVERLOADED");
  EXPECT_EQ(message.field(), "header.specs[0].k");
  EXPECT_EQ(message.message(), "full");
  EXPECT_EQ(message.metadata().at("limit_bytes"), "7");
  EXPECT_EQ(message.retry_delay_seconds(), 1.5);
}

TEST(Status, QuotaErrorsTellTheQuota) {
  const absl::Status error =
      QuotaError("alice", "jobs", 3, "the caller has 3 jobs already").Meta("actual", 3);
  const google::rpc::Status details = Details(ToGrpcStatus(error));
  EXPECT_EQ(details.details_size(), 2);
  EXPECT_EQ(Only<google::rpc::ErrorInfo>(details).reason(), "QUOTA");
  const auto failure = Only<google::rpc::QuotaFailure>(details);
  ASSERT_EQ(failure.violations_size(), 1);
  EXPECT_EQ(failure.violations(0).subject(), "principal:alice");
  EXPECT_EQ(failure.violations(0).description(), "the caller has 3 jobs already");
  EXPECT_EQ(failure.violations(0).quota_metric(), "jobs");
  EXPECT_EQ(failure.violations(0).quota_value(), 3);
  const std::string wide(5000, '\xE2');
  EXPECT_LE(ToGrpcStatus(QuotaError(wide, "jobs", 3, wide)).error_details().size(), 3600u);
}

TEST(Status, AnErrorWithoutReasonStillHasOne) {
  const auto info =
      Only<google::rpc::ErrorInfo>(Details(ToGrpcStatus(absl::UnavailableError("gone"))));
  EXPECT_EQ(info.domain(), "tenon");
  EXPECT_NE(info.reason(), "");
}

// Trailers above 8 KiB are dropped by the transport, and the client would see no error at all.
TEST(Status, StaysSmallWhateverTheTextIs) {
  const std::string wide(5000, '\xE2'), broken = "\xED\xA0\x80\xFF\xC0\x80 ok";
  std::string long_text;
  for (int i = 0; i < 2000; ++i) long_text += "\u20AC";
  for (const std::string& text : {wide, broken, long_text, std::string(100'000, 'x')}) {
    Error error(Reason::kBadPath, text);
    for (int i = 0; i < 50; ++i) std::move(error).Field(StrCat("steps[", i, "]", text), text);
    const grpc::Status status = ToGrpcStatus(std::move(error).Meta("value", text));
    EXPECT_LE(status.error_message().size(), 1024u);
    EXPECT_LE(status.error_details().size(), 3600u);
    EXPECT_EQ(ReplaceInvalidUtf8(status.error_message()), status.error_message());
    const google::rpc::Status details = Details(status);
    const auto bad = Only<google::rpc::BadRequest>(details);
    EXPECT_GE(bad.field_violations_size(), 1);
    EXPECT_LE(bad.field_violations_size(), 20);
    EXPECT_EQ(Only<google::rpc::ErrorInfo>(details).metadata().at("violations_left_out"),
              std::to_string(50 - bad.field_violations_size()));
  }
}

TEST(Status, NamesUpToTwentyShortFields) {
  Error error(Reason::kBadPath, "x");
  for (int i = 0; i < 25; ++i) std::move(error).Field(StrCat("f", i));
  const google::rpc::Status details = Details(ToGrpcStatus(std::move(error).Build()));
  EXPECT_EQ(Only<google::rpc::BadRequest>(details).field_violations_size(), 20);
  EXPECT_EQ(Only<google::rpc::ErrorInfo>(details).metadata().at("violations_left_out"), "5");
}

}  // namespace
}  // namespace tenon::server
