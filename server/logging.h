// The log: one line per event on standard error, as text or as JSON.

#ifndef TENON_SERVER_LOGGING_H_
#define TENON_SERVER_LOGGING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace tenon::server {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError };

// A value keeps its type in JSON. Nothing of a payload is ever logged.
using LogValue = std::variant<std::string, int64_t, double, bool>;
using LogFields = std::vector<std::pair<std::string, LogValue>>;

// `level` is one of the names of --log_level; anything else means "info". Also takes over gRPC's
// and protobuf's own messages. Thread-safe, may be called again.
void InitLogging(std::string_view level, bool json);

// Takes effect at once; the level before. Thread-safe.
LogLevel SetLogLevel(LogLevel level);

// One event: text form `2026-01-31T12:00:00.000Z INFO ready address=127.0.0.1:50551`. Values are
// escaped, so that no client can forge a line. Thread-safe.
void Log(LogLevel level, std::string_view event, const LogFields& fields = {});

// {"principal", name} for the lines of its calls; nothing where the server knows no principals.
LogFields CallerFields(const std::string& name);

// The line of a finished call. An internal error is logged as an error, with its text; refusals
// as information, with reason and text.
void LogRequest(std::string_view method, std::string_view request_id, const absl::Status& status,
                double seconds, LogFields more = {});

}  // namespace tenon::server

#endif  // TENON_SERVER_LOGGING_H_
