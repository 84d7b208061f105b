// Errors of the engine: one vocabulary of reasons, carried by absl::Status.
//
// Every error that can reach a caller has a Reason. The reason decides the canonical status code,
// is stable across releases (clients switch on it, metrics count it) and crosses the wire as
// google.rpc.ErrorInfo.reason. Text may change; reasons may not.

#ifndef TENON_BACKENDS_CORE_ERROR_H_
#define TENON_BACKENDS_CORE_ERROR_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/strings.h"

namespace tenon {

// The list of all reasons with their canonical codes: X(Enumerator, "WIRE_NAME", code).
// proto/tenon/v1/errors.proto documents each of them; a test compares both lists.
#define TENON_REASONS(X)                                                     \
  X(kBadHeader, "BAD_HEADER", kInvalidArgument)                              \
  X(kMissingField, "MISSING_FIELD", kInvalidArgument)                        \
  X(kBadExpression, "BAD_EXPRESSION", kInvalidArgument)                      \
  X(kShapeMismatch, "SHAPE_MISMATCH", kInvalidArgument)                      \
  X(kUnknownIndex, "UNKNOWN_INDEX", kInvalidArgument)                        \
  X(kDuplicateOutput, "DUPLICATE_OUTPUT", kInvalidArgument)                  \
  X(kOverflow, "OVERFLOW", kInvalidArgument)                                 \
  X(kBadPath, "BAD_PATH", kInvalidArgument)                                  \
  X(kBadSlice, "BAD_SLICE", kInvalidArgument)                                \
  X(kFrameOrder, "FRAME_ORDER", kInvalidArgument)                            \
  X(kMalformedFrame, "MALFORMED_FRAME", kInvalidArgument)                    \
  X(kChunkOrder, "CHUNK_ORDER", kInvalidArgument)                            \
  X(kChunkOverflow, "CHUNK_OVERFLOW", kInvalidArgument)                      \
  X(kTruncatedUpload, "TRUNCATED_UPLOAD", kInvalidArgument)                  \
  X(kChecksumMismatch, "CHECKSUM_MISMATCH", kDataLoss)                       \
  X(kNotFinite, "NOT_FINITE", kInvalidArgument)                              \
  X(kTooFewRows, "TOO_FEW_ROWS", kInvalidArgument)                           \
  X(kKOutOfRange, "K_OUT_OF_RANGE", kInvalidArgument)                        \
  X(kUnknownMeasure, "UNKNOWN_MEASURE", kInvalidArgument)                    \
  X(kBadParameter, "BAD_PARAMETER", kInvalidArgument)                        \
  X(kLabelsRequired, "LABELS_REQUIRED", kInvalidArgument)                    \
  X(kUndefinedScore, "UNDEFINED_SCORE", kInvalidArgument)                    \
  X(kUnknownProvider, "UNKNOWN_PROVIDER", kInvalidArgument)                  \
  X(kUnsupportedByProvider, "UNSUPPORTED_BY_PROVIDER", kUnimplemented)       \
  X(kUnreachableTarget, "UNREACHABLE_TARGET", kResourceExhausted)            \
  X(kBadLabels, "BAD_LABELS", kInvalidArgument)                              \
  X(kBadFile, "BAD_FILE", kInvalidArgument)                                  \
  X(kStorageFull, "STORAGE_FULL", kResourceExhausted)                        \
  X(kWrongJobState, "WRONG_JOB_STATE", kFailedPrecondition)                  \
  X(kInUse, "IN_USE", kFailedPrecondition)                                   \
  X(kUnsupportedDtype, "UNSUPPORTED_DTYPE", kUnimplemented)                  \
  X(kNotImplemented, "NOT_IMPLEMENTED", kUnimplemented)                      \
  X(kExceedsServerLimit, "EXCEEDS_SERVER_LIMIT", kFailedPrecondition)        \
  X(kExceedsMemoryBudget, "EXCEEDS_MEMORY_BUDGET", kResourceExhausted)       \
  X(kExceedsTemporaryBudget, "EXCEEDS_TEMPORARY_BUDGET", kResourceExhausted) \
  X(kOverloaded, "OVERLOADED", kResourceExhausted)                           \
  X(kQuota, "QUOTA", kResourceExhausted)                                     \
  X(kDeviceMemory, "DEVICE_MEMORY", kResourceExhausted)                      \
  X(kDeadline, "DEADLINE", kDeadlineExceeded)                                \
  X(kDeadlineInfeasible, "DEADLINE_INFEASIBLE", kDeadlineExceeded)           \
  X(kClientCancelled, "CLIENT_CANCELLED", kCancelled)                        \
  X(kDraining, "DRAINING", kUnavailable)                                     \
  X(kStarting, "STARTING", kUnavailable)                                     \
  X(kNoDevice, "NO_DEVICE", kUnavailable)                                    \
  X(kDeviceFault, "DEVICE_FAULT", kUnavailable)                              \
  X(kSlowReader, "SLOW_READER", kAborted)                                    \
  X(kSlowWriter, "SLOW_WRITER", kAborted)                                    \
  X(kFingerprintMismatch, "FINGERPRINT_MISMATCH", kFailedPrecondition)       \
  X(kNotFound, "NOT_FOUND", kNotFound)                                       \
  X(kAlreadyExists, "ALREADY_EXISTS", kAlreadyExists)                        \
  X(kUnauthenticated, "UNAUTHENTICATED", kUnauthenticated)                   \
  X(kPermissionDenied, "PERMISSION_DENIED", kPermissionDenied)               \
  X(kInternal, "INTERNAL", kInternal)

enum class Reason {
#define TENON_REASON_ENUMERATOR(id, name, code) id,
  TENON_REASONS(TENON_REASON_ENUMERATOR)
#undef TENON_REASON_ENUMERATOR
};

// The stable upper-case name of `reason`, e.g. "SHAPE_MISMATCH".
std::string_view ReasonName(Reason reason);

// The canonical code every error with this reason has.
absl::StatusCode ReasonCode(Reason reason);

// The reason with this wire name, or NOT_FOUND.
absl::StatusOr<Reason> ReasonFromName(std::string_view name);

// What an error carries beside its code and text.
struct ErrorDetails {
  Reason reason = Reason::kInternal;
  // Field paths of the request (relative to where the error was found) and what is wrong there.
  std::vector<std::pair<std::string, std::string>> fields;
  // Every number of the message, the unit in the key: {"limit_bytes", "1024"}.
  std::map<std::string, std::string> metadata;
};

// Builds an error: `return Error(Reason::kBadPath, "step 3 ...").Field("path.steps[3]")`.
class Error {
 public:
  Error(Reason reason, std::string message);

  // Names the request field at fault; `description` defaults to the message.
  Error&& Field(std::string path, std::string description = "") &&;
  template <typename T>
  Error&& Meta(std::string key, const T& value) && {
    details_.metadata[std::move(key)] = StrCat(value);
    return std::move(*this);
  }

  absl::Status Build() const;
  operator absl::Status() const { return Build(); }  // NOLINT(google-explicit-constructor)
  template <typename T>
  operator absl::StatusOr<T>() const {  // NOLINT(google-explicit-constructor)
    return Build();
  }

 private:
  std::string message_;
  ErrorDetails details_;
};

// The details of an error. A status that was not made by Error gets the reason that fits its code
// best (kInternal when none does) and no fields.
ErrorDetails GetErrorDetails(const absl::Status& status);

// The same error with `prefix` put before each of its field paths ("header.network." + path).
absl::Status PrefixFields(const absl::Status& status, std::string_view prefix);

// The same error with `prefix` put before its message, and before what its fields say where that is
// the message.
absl::Status PrefixMessage(const absl::Status& status, std::string_view prefix);

#define TENON_RETURN_IF_ERROR(expression)          \
  do {                                             \
    absl::Status tenon_status_ = (expression);     \
    if (!tenon_status_.ok()) return tenon_status_; \
  } while (false)

#define TENON_CONCAT_INNER_(a, b) a##b
#define TENON_CONCAT_(a, b) TENON_CONCAT_INNER_(a, b)
#define TENON_ASSIGN_OR_RETURN(lhs, expression) \
  TENON_ASSIGN_OR_RETURN_IMPL_(TENON_CONCAT_(tenon_or_, __LINE__), lhs, expression)
#define TENON_ASSIGN_OR_RETURN_IMPL_(result, lhs, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return std::move(result).status();        \
  lhs = *std::move(result)

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_ERROR_H_
