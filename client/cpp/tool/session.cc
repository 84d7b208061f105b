#include "client/cpp/tool/session.h"

#include <cstdlib>

#include "backends/core/error.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

constexpr const char* kDefaultServer = "127.0.0.1:50551";

// The details as the server sent them, or as the client's own error has them.
client::ServerError DetailsOf(const absl::Status& status) {
  if (auto error = client::ServerErrorOf(status)) return *std::move(error);
  const ErrorDetails details = GetErrorDetails(status);
  client::ServerError error;
  error.code = status.code();
  error.message = std::string(status.message());
  error.fields = details.fields;
  error.metadata = details.metadata;
  return error;
}

}  // namespace

std::vector<Option> ConnectionOptions() {
  return {{"server", "ADDRESS",
           "Server to ask, HOST:PORT or unix:/PATH (default: $TENON_SERVER, else "
           "127.0.0.1:50551)."},
          {"timeout", "SECONDS", "Give up after this time (default: one hour)."}};
}

std::string ServerAddress(const Arguments& arguments) {
  if (const auto address = arguments.Get("server")) return *address;
  const char* variable = std::getenv("TENON_SERVER");
  return variable != nullptr && *variable != '\0' ? variable : kDefaultServer;
}

absl::StatusOr<client::Client> Connect(const Arguments& arguments) {
  client::ClientOptions options;
  options.user_agent = "tenon-command";
  return client::Client::Connect(ServerAddress(arguments), options);
}

absl::StatusOr<client::CallOptions> CallOptionsOf(const Arguments& arguments,
                                                  const Session& session) {
  client::CallOptions options;
  options.canceller = session.canceller;
  TENON_ASSIGN_OR_RETURN(const auto seconds,
                         GetParsed<double>(arguments, "timeout", ParsePositive));
  if (seconds.has_value()) options.timeout = absl::Seconds(*seconds);
  return options;
}

int ExitCode(const absl::Status& status, bool interrupted) {
  if (interrupted) return kExitInterrupted;
  if (client::IsUnreachable(status)) return kExitUnreachable;
  return client::ServerErrorOf(status).has_value() ? kExitRefused : kExitUsage;
}

std::string ErrorText(const absl::Status& status) {
  const client::ServerError error = DetailsOf(status);
  const bool by_server = client::ServerErrorOf(status).has_value();
  std::string text;
  if (by_server && !client::IsUnreachable(status)) {
    text = StrCat(absl::StatusCodeToString(error.code), error.reason.empty() ? "" : " ",
                  error.reason, ": ");
  }
  text += StrCat(error.message, "\n");
  for (const auto& [path, description] : error.fields) {
    // Of errors found here only the options mean something to who typed them.
    if (!by_server && path.rfind("--", 0) != 0) continue;
    const bool repeats = description == error.message;
    text += StrCat("  field ", path, repeats ? "" : ": ", repeats ? "" : description, "\n");
  }
  for (const auto& [key, value] : error.metadata) {
    if (by_server) text += StrCat("  ", key, " = ", value, "\n");
  }
  if (error.retry_delay_seconds.has_value()) {
    text += StrCat("  try again in ", FormatSeconds(*error.retry_delay_seconds), "\n");
  }
  return text;
}

int Fail(const Session& session, const absl::Status& status) {
  const bool interrupted = session.canceller->cancelled();
  *session.err << "tenon: " << (interrupted ? "interrupted\n" : ErrorText(status));
  return ExitCode(status, interrupted);
}

}  // namespace tenon::tool
