#include "server/status.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "google/rpc/status_details.pb.h"

namespace tenon::server {
namespace {

constexpr size_t kMaxViolations = 20;
// Trailers have a limit of 8 KiB, and text that is not ASCII grows in them; so what goes in is
// bounded as a whole: the message and, beside it, the details.
constexpr size_t kMaxMessageBytes = 1024;
constexpr size_t kMaxMetadataBytes = 256;  // of one value
constexpr size_t kMaxDetailsBytes = 3072;
constexpr char kRetryDelayKey[] = "retry_delay_seconds";

// Cut at a character boundary, without bytes that protobuf would refuse.
std::string SafeText(std::string_view text, size_t max_bytes) {
  return std::string(Utf8Prefix(ReplaceInvalidUtf8(Utf8Prefix(text, max_bytes)), max_bytes));
}

std::optional<double> RetryDelaySeconds(const ErrorDetails& details) {
  double delay = 0;
  const auto retry = details.metadata.find(kRetryDelayKey);
  if (retry == details.metadata.end() || !absl::SimpleAtod(retry->second, &delay)) {
    return std::nullopt;
  }
  return delay;
}

google::rpc::ErrorInfo ErrorInfoOf(const ErrorDetails& details) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(ReasonName(details.reason)));
  info.set_domain("tenon");
  for (const auto& [key, value] : details.metadata) {
    (*info.mutable_metadata())[key] = SafeText(value, kMaxMetadataBytes);
  }
  return info;
}

// As many of the fields as fit in `room` bytes; at least the first.
google::rpc::BadRequest BadRequestOf(const ErrorDetails& details, size_t room) {
  google::rpc::BadRequest bad_request;
  for (const auto& [field, description] : details.fields) {
    if (bad_request.field_violations_size() == kMaxViolations) break;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(SafeText(field, kMaxMetadataBytes));
    violation->set_description(SafeText(description, kMaxMetadataBytes));
    if (bad_request.field_violations_size() > 1 && bad_request.ByteSizeLong() > room) {
      bad_request.mutable_field_violations()->RemoveLast();
      break;
    }
  }
  return bad_request;
}

// Of an error made by QuotaError.
std::optional<google::rpc::QuotaFailure> QuotaFailureOf(const ErrorDetails& details,
                                                        std::string_view message) {
  const auto text = [&](const char* key) {
    const auto value = details.metadata.find(key);
    return SafeText(value == details.metadata.end() ? "" : value->second, kMaxMetadataBytes);
  };
  int64_t limit = 0;
  if (details.reason != Reason::kQuota || !absl::SimpleAtoi(text("quota_value"), &limit)) {
    return std::nullopt;
  }
  google::rpc::QuotaFailure failure;
  google::rpc::QuotaFailure::Violation* violation = failure.add_violations();
  violation->set_subject("principal:" + text("principal"));
  violation->set_description(SafeText(message, kMaxMetadataBytes));
  violation->set_quota_metric(text("quota"));
  violation->set_quota_value(limit);
  return failure;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const ErrorDetails details = GetErrorDetails(status);
  const std::string message = SafeText(ToStd(status.message()), kMaxMessageBytes);

  google::rpc::Status payload;
  payload.set_code(static_cast<int>(status.code()));
  payload.set_message(message);
  google::rpc::ErrorInfo info = ErrorInfoOf(details);
  const auto quota_failure = QuotaFailureOf(details, message);
  const size_t taken = message.size() + info.ByteSizeLong() +
                       (quota_failure.has_value() ? quota_failure->ByteSizeLong() : 0);
  const google::rpc::BadRequest bad_request =
      BadRequestOf(details, kMaxDetailsBytes - std::min(kMaxDetailsBytes, taken));
  const size_t left_out = details.fields.size() - bad_request.field_violations_size();
  if (left_out > 0) (*info.mutable_metadata())["violations_left_out"] = std::to_string(left_out);
  payload.add_details()->PackFrom(info);
  if (!details.fields.empty()) payload.add_details()->PackFrom(bad_request);
  if (const auto delay = RetryDelaySeconds(details)) {
    google::rpc::RetryInfo retry_info;
    *retry_info.mutable_retry_delay() = google::protobuf::util::TimeUtil::MillisecondsToDuration(
        static_cast<int64_t>(*delay * 1000));
    payload.add_details()->PackFrom(retry_info);
  }
  if (quota_failure.has_value()) payload.add_details()->PackFrom(*quota_failure);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      payload.SerializeAsString());
}

v1::ErrorDetail ToErrorDetail(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  v1::ErrorDetail detail;
  detail.set_code(static_cast<int>(status.code()));
  detail.set_reason(std::string(ReasonName(details.reason)));
  if (!details.fields.empty()) {
    detail.set_field(SafeText(details.fields.front().first, kMaxMetadataBytes));
  }
  detail.set_message(SafeText(ToStd(status.message()), kMaxMessageBytes));
  for (const auto& [key, value] : details.metadata) {
    (*detail.mutable_metadata())[key] = SafeText(value, kMaxMetadataBytes);
  }
  if (const auto delay = RetryDelaySeconds(details)) detail.set_retry_delay_seconds(*delay);
  return detail;
}

}  // namespace tenon::server
