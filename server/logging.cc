#include "server/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"

namespace tenon::server {
namespace {

constexpr size_t kMaxTextBytes = 2048;  // of one value; whoever sends it chooses its length

std::atomic<bool> json_format{false};

spdlog::logger& Logger() {
  // Never destroyed: other threads may log while the process exits.
  static auto* logger = [] {
    auto* made = new spdlog::logger("tenond", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum SpdLevel(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::trace, spdlog::level::debug,
                                                   spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err};
  return kLevels[static_cast<size_t>(level)];
}

std::string_view LevelName(LogLevel level) {
  constexpr std::string_view kNames[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR"};
  return kNames[static_cast<size_t>(level)];
}

std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

std::string Text(const LogValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    const std::string cut(Utf8Prefix(*text, kMaxTextBytes));
    const bool plain = !cut.empty() && cut.find_first_of(" \"\\=") == std::string::npos;
    const std::string escaped = absl::Utf8SafeCEscape(cut);
    return plain && escaped == cut ? cut : StrCat("\"", escaped, "\"");
  }
  if (const auto* number = std::get_if<int64_t>(&value)) return StrCat(*number);
  if (const auto* number = std::get_if<double>(&value)) return StrCat(*number);
  return std::get<bool>(value) ? "true" : "false";
}

std::string TextLine(LogLevel level, std::string_view event, const LogFields& fields) {
  std::string line = StrCat(Now(), " ", LevelName(level), " ", event);
  for (const auto& [key, value] : fields) line += StrCat(" ", key, "=", Text(value));
  return line;
}

std::string JsonLine(LogLevel level, std::string_view event, const LogFields& fields) {
  nlohmann::ordered_json object;
  object["time"] = Now();
  object["level"] = LevelName(level);
  object["event"] = event;
  for (const auto& [key, value] : fields) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      object[key] = Utf8Prefix(*text, kMaxTextBytes);
    } else {
      std::visit([&, name = key](const auto& held) { object[name] = held; }, value);
    }
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void LogGrpc(gpr_log_func_args* arguments) {
  const LogLevel level = arguments->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kWarning
                         : arguments->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kDebug
                                                                        : LogLevel::kTrace;
  Log(level, "grpc", {{"message", std::string(arguments->message)}});
}

// What clients send may be ill-formed, which is no news to an operator; the call says it, too.
void LogProtobuf(google::protobuf::LogLevel level, const char*, int, const std::string& message) {
  Log(level == google::protobuf::LOGLEVEL_FATAL ? LogLevel::kError : LogLevel::kDebug, "protobuf",
      {{"message", message}});
}

}  // namespace

void InitLogging(std::string_view level, bool json) {
  json_format.store(json);
  LogLevel chosen = LogLevel::kInfo;
  if (level == "trace") chosen = LogLevel::kTrace;
  if (level == "debug") chosen = LogLevel::kDebug;
  if (level == "warning") chosen = LogLevel::kWarning;
  if (level == "error") chosen = LogLevel::kError;
  Logger().set_level(SpdLevel(chosen));
  gpr_set_log_function(&LogGrpc);
  google::protobuf::SetLogHandler(&LogProtobuf);
}

LogLevel SetLogLevel(LogLevel level) {
  constexpr LogLevel kLevels[] = {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo,
                                  LogLevel::kWarning, LogLevel::kError};
  const spdlog::level::level_enum before = Logger().level();
  Logger().set_level(SpdLevel(level));
  for (const LogLevel known : kLevels) {
    if (SpdLevel(known) == before) return known;
  }
  return LogLevel::kInfo;
}

void Log(LogLevel level, std::string_view event, const LogFields& fields) {
  if (!Logger().should_log(SpdLevel(level))) return;
  const std::string line =
      json_format.load() ? JsonLine(level, event, fields) : TextLine(level, event, fields);
  Logger().log(SpdLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

LogFields CallerFields(const std::string& name) {
  if (name.empty()) return {};
  return {{"principal", name}};
}

void LogRequest(std::string_view method, std::string_view request_id, const absl::Status& status,
                double seconds, LogFields more) {
  LogFields fields = {{"method", std::string(method)},
                      {"request_id", std::string(request_id)},
                      {"seconds", seconds}};
  LogLevel level = LogLevel::kInfo;
  if (status.ok()) {
    fields.emplace_back("reason", "OK");
  } else {
    const ErrorDetails details = GetErrorDetails(status);
    if (details.reason == Reason::kInternal) level = LogLevel::kError;
    fields.emplace_back("reason", std::string(ReasonName(details.reason)));
    fields.emplace_back("message", std::string(status.message()));
  }
  for (auto& field : more) fields.push_back(std::move(field));
  Log(level, "request", fields);
}

}  // namespace tenon::server
