#include "client/cpp/status.h"

#include <algorithm>
#include <exception>
#include <new>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "google/rpc/status_details.pb.h"

namespace tenon::client {
namespace {

// Marks statuses that the other side, or the way to it, has caused; holds a google.rpc.Status.
constexpr absl::string_view kCallPayload = "tenon/call-status";

// google.protobuf.Any without its generated accessors, which need the very same descriptor pool.
template <typename Message>
bool Unpack(const google::protobuf::Any& any, std::string_view name, Message* message) {
  const std::string& url = any.type_url();
  const size_t slash = url.rfind('/');
  if (slash == std::string::npos || std::string_view(url).substr(slash + 1) != name) return false;
  return message->ParseFromString(any.value());
}

struct Decoded {
  ServerError error;
  bool has_error_info = false;
};

Decoded Decode(const google::rpc::Status& status) {
  Decoded result;
  ServerError& error = result.error;
  error.code = static_cast<absl::StatusCode>(status.code());
  error.message = status.message();
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (Unpack(any, "google.rpc.ErrorInfo", &info)) {
      result.has_error_info = true;
      error.reason = info.reason();
      error.metadata.insert(info.metadata().begin(), info.metadata().end());
    } else if (Unpack(any, "google.rpc.BadRequest", &bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        error.fields.emplace_back(violation.field(), violation.description());
      }
    } else if (Unpack(any, "google.rpc.RetryInfo", &retry)) {
      error.retry_delay_seconds = static_cast<double>(retry.retry_delay().seconds()) +
                                  static_cast<double>(retry.retry_delay().nanos()) * 1e-9;
    }
  }
  return result;
}

void CopyPayloads(const absl::Status& from, absl::Status* to) {
  from.ForEachPayload(
      [to](absl::string_view url, const absl::Cord& payload) { to->SetPayload(url, payload); });
}

// The status of `wire` with everything that it tells, and the mark. The server's code stays even
// where this version would give another one for the reason.
absl::Status Build(const google::rpc::Status& wire) {
  const Decoded decoded = Decode(wire);
  const ServerError& error = decoded.error;
  absl::Status status(error.code, error.message);
  if (const auto reason = ReasonFromName(error.reason); reason.ok()) {
    Error details(*reason, error.message);
    for (const auto& [path, text] : error.fields) std::move(details).Field(path, text);
    for (const auto& [key, value] : error.metadata) std::move(details).Meta(key, value);
    CopyPayloads(details.Build(), &status);
  }
  status.SetPayload(kCallPayload, absl::Cord(wire.SerializeAsString()));
  return status;
}

template <typename Message>
void Pack(const Message& message, std::string_view name, google::rpc::Status* wire) {
  google::protobuf::Any* any = wire->add_details();
  any->set_type_url(StrCat("type.googleapis.com/", name));
  any->set_value(message.SerializeAsString());
}

void AddErrorInfo(Reason reason, google::rpc::Status* wire) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(ReasonName(reason)));
  info.set_domain("tenon");
  Pack(info, "google.rpc.ErrorInfo", wire);
}

absl::Status Marked(absl::StatusCode code, Reason reason, std::string_view message) {
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(code));
  wire.set_message(ReplaceInvalidUtf8(message));
  AddErrorInfo(reason, &wire);
  return Build(wire);
}

absl::StatusCode CleanCode(int code) {
  const bool known = code >= 1 && code <= 16;
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

// A server that can't send details begins the message with the reason's name: "SLOW_READER: ...".
bool AddReasonOfMessage(absl::StatusCode code, const std::string& message,
                        google::rpc::Status* wire) {
  const auto reason = ReasonFromName(message.substr(0, message.find(": ")));
  if (!reason.ok() || ReasonCode(*reason) != code) return false;
  AddErrorInfo(*reason, wire);
  return true;
}

}  // namespace

absl::Status StatusFromGrpc(const grpc::Status& status, std::string_view address, bool connected) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status wire;
  const bool parsed =
      !status.error_details().empty() && wire.ParseFromString(status.error_details());
  if (!parsed) wire.Clear();
  absl::StatusCode code = CleanCode(status.error_code());
  std::string message = status.error_message();
  if (!Decode(wire).has_error_info && !AddReasonOfMessage(code, message, &wire)) {
    // Nobody but the transport speaks without details.
    if (code == absl::StatusCode::kDeadlineExceeded && !connected) {
      code = absl::StatusCode::kUnavailable;
      message = "no connection before the deadline";
    }
    if (code == absl::StatusCode::kUnavailable) {
      message = StrCat("cannot reach the server at ", address, ": ", message);
    }
  }
  wire.set_code(static_cast<int>(code));
  wire.set_message(ReplaceInvalidUtf8(message));
  return Build(wire);
}

absl::Status BrokenContract(std::string_view what) {
  return Marked(absl::StatusCode::kInternal, Reason::kInternal,
                StrCat("the server broke the wire contract: ", what));
}

absl::Status BadChecksum(std::string_view what) {
  return Marked(absl::StatusCode::kDataLoss, Reason::kChecksumMismatch,
                StrCat("the checksum of ", what, " does not match"));
}

absl::Status CatchExceptions(const std::function<absl::Status()>& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "there is no memory left in the client");
  } catch (const std::exception& error) {
    return Error(Reason::kInternal, StrCat("an exception in the client: ", error.what()));
  } catch (...) {
    return Error(Reason::kInternal, "an unknown exception in the client");
  }
}

std::optional<ServerError> ServerErrorOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kCallPayload);
  google::rpc::Status wire;
  if (!payload.has_value() || !wire.ParseFromString(std::string(*payload))) return std::nullopt;
  return Decode(wire).error;
}

bool IsUnreachable(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return false;
  const std::optional<ServerError> error = ServerErrorOf(status);
  return error.has_value() && error->reason.empty();
}

absl::Status StatusFromDetail(const v1::ErrorDetail& detail) {
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(CleanCode(detail.code())));
  wire.set_message(detail.message());
  google::rpc::ErrorInfo info;
  info.set_reason(detail.reason());
  info.set_domain("tenon");
  *info.mutable_metadata() = detail.metadata();
  Pack(info, "google.rpc.ErrorInfo", &wire);
  if (!detail.field().empty()) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(detail.field());
    violation->set_description(detail.message());
    Pack(bad_request, "google.rpc.BadRequest", &wire);
  }
  if (detail.has_retry_delay_seconds()) {
    google::rpc::RetryInfo retry;
    // Bounded, so that the conversion is defined for any value that a peer may send, NaN too.
    const double delay = detail.retry_delay_seconds();
    const double seconds = delay > 0 ? std::min(delay, 1e9) : 0.0;
    retry.mutable_retry_delay()->set_seconds(static_cast<int64_t>(seconds));
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>((seconds - static_cast<double>(static_cast<int64_t>(seconds))) * 1e9));
    Pack(retry, "google.rpc.RetryInfo", &wire);
  }
  return Build(wire);
}

}  // namespace tenon::client
