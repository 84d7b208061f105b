#include "backends/core/error.h"

#include <nlohmann/json.hpp>

#include "absl/strings/cord.h"
#include "backends/core/utf8.h"

namespace tenon {
namespace {

constexpr std::string_view kPayloadUrl = "tenon/error-details";

struct ReasonEntry {
  Reason reason;
  std::string_view name;
  absl::StatusCode code;
};

constexpr ReasonEntry kReasons[] = {
#define TENON_REASON_ENTRY(id, name, code) {Reason::id, name, absl::StatusCode::code},
    TENON_REASONS(TENON_REASON_ENTRY)
#undef TENON_REASON_ENTRY
};

// The reason of a status from elsewhere, by its code alone.
Reason ReasonForCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
      return Reason::kClientCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return Reason::kDeadline;
    case absl::StatusCode::kNotFound:
      return Reason::kNotFound;
    case absl::StatusCode::kUnimplemented:
      return Reason::kNotImplemented;
    case absl::StatusCode::kInvalidArgument:
      return Reason::kBadParameter;
    case absl::StatusCode::kResourceExhausted:
      return Reason::kOverloaded;
    case absl::StatusCode::kOutOfRange:
      return Reason::kBadParameter;
    case absl::StatusCode::kAlreadyExists:
      return Reason::kAlreadyExists;
    case absl::StatusCode::kDataLoss:
      return Reason::kChecksumMismatch;
    case absl::StatusCode::kUnauthenticated:
      return Reason::kUnauthenticated;
    case absl::StatusCode::kPermissionDenied:
      return Reason::kPermissionDenied;
    default:
      return Reason::kInternal;
  }
}

// An error with these details, `prefix` before each of its field paths.
absl::Status Rebuild(std::string message, const ErrorDetails& details, std::string_view prefix) {
  Error error(details.reason, std::move(message));
  for (const auto& [path, description] : details.fields) {
    std::move(error).Field(StrCat(prefix, path), description);
  }
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
  return error;
}

}  // namespace

std::string_view ReasonName(Reason reason) { return kReasons[static_cast<int>(reason)].name; }

absl::StatusCode ReasonCode(Reason reason) { return kReasons[static_cast<int>(reason)].code; }

absl::StatusOr<Reason> ReasonFromName(std::string_view name) {
  for (const ReasonEntry& entry : kReasons) {
    if (entry.name == name) return entry.reason;
  }
  return absl::NotFoundError(StrCat("no error reason is called '", name, "'"));
}

Error::Error(Reason reason, std::string message) : message_(std::move(message)) {
  details_.reason = reason;
}

Error&& Error::Field(std::string path, std::string description) && {
  if (description.empty()) description = message_;
  details_.fields.emplace_back(std::move(path), std::move(description));
  return std::move(*this);
}

absl::Status Error::Build() const {
  nlohmann::json payload;
  payload["reason"] = std::string(ReasonName(details_.reason));
  payload["fields"] = details_.fields;
  payload["metadata"] = details_.metadata;
  // Names in a message come from the caller and may be no valid UTF-8; such bytes are replaced.
  absl::Status status(ReasonCode(details_.reason), ReplaceInvalidUtf8(message_));
  status.SetPayload(
      ToAbsl(kPayloadUrl),
      absl::Cord(payload.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  return status;
}

ErrorDetails GetErrorDetails(const absl::Status& status) {
  ErrorDetails details;
  details.reason = ReasonForCode(status.code());
  const auto payload = status.GetPayload(ToAbsl(kPayloadUrl));
  if (!payload.has_value()) return details;
  const nlohmann::json json = nlohmann::json::parse(std::string(*payload), nullptr, false);
  try {
    const auto reason = ReasonFromName(json.at("reason").get<std::string>());
    if (reason.ok()) details.reason = *reason;
    json.at("fields").get_to(details.fields);
    json.at("metadata").get_to(details.metadata);
  } catch (const nlohmann::json::exception&) {
    // A payload that Build did not make says nothing more.
  }
  return details;
}

absl::Status PrefixFields(const absl::Status& status, std::string_view prefix) {
  if (status.ok() || !status.GetPayload(ToAbsl(kPayloadUrl)).has_value()) return status;
  return Rebuild(std::string(status.message()), GetErrorDetails(status), prefix);
}

absl::Status PrefixMessage(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  const std::string message = StrCat(prefix, status.message());
  if (!status.GetPayload(ToAbsl(kPayloadUrl)).has_value())
    return absl::Status(status.code(), message);
  ErrorDetails details = GetErrorDetails(status);
  for (auto& [path, description] : details.fields) {
    // It says the same, so it goes on to do so.
    if (description == ToStd(status.message())) description.clear();
  }
  return Rebuild(message, details, "");
}

}  // namespace tenon
