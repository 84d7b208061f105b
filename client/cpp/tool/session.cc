#include "client/cpp/tool/session.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "backends/core/error.h"
#include "backends/core/file.h"
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

// Several reasons have the name of their code.
std::string CodeAndReason(const client::ServerError& error) {
  const std::string code = absl::StatusCodeToString(error.code);
  return error.reason.empty() || error.reason == code ? code : StrCat(code, " ", error.reason);
}

// Of the environment; empty when it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> Token(const Arguments& arguments) {
  const std::optional<std::string> path = arguments.Get("token-file");
  if (!path.has_value()) return Variable("TENON_TOKEN");
  const absl::StatusOr<Buffer> bytes = ReadFile(*path);
  if (!bytes.ok()) {
    return Error(Reason::kBadParameter, std::string(bytes.status().message()))
        .Field("--token-file");
  }
  const absl::string_view text = ToAbsl(AsText(*bytes));
  return std::string(absl::StripAsciiWhitespace(text.substr(0, text.find('\n'))));
}

// The client's fields of tls_ca and the like as the options that were typed.
absl::Status AsOption(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  if (details.fields.empty()) return status;
  std::string option = details.fields[0].first;
  if (option == "token") option = "token-file";
  if (option != "token-file" && !absl::StartsWith(option, "tls_")) return status;
  std::replace(option.begin(), option.end(), '_', '-');
  option = "--" + option;
  return Error(details.reason, std::string(status.message())).Field(option);
}

}  // namespace

std::vector<Option> ConnectionOptions() {
  return {{"server", "ADDRESS",
           "Server to ask, HOST:PORT or unix:/PATH (default: $TENON_SERVER, else "
           "127.0.0.1:50551)."},
          {"timeout", "SECONDS", "Give up after this time (default: one hour)."},
          {"retry", "SECONDS",
           "When the server is full, starts or shuts down, or the connection breaks, send the same "
           "request again for so long (default: 10; 0: never)."},
          {"token-file", "FILE",
           "Call with the token in its first line (default: $TENON_TOKEN, else without)."},
          {"tls", "", "Encrypt, and trust the authorities that this system trusts."},
          {"tls-ca", "FILE",
           "Encrypt, and trust the authorities in this PEM file (default: $TENON_TLS_CA)."},
          {"tls-cert", "FILE", "Encrypt, and show the certificate in this PEM file."},
          {"tls-key", "FILE", "Its private key."},
          {"tls-server-name", "NAME", "Name in the server's certificate (default: the host)."},
          {"plaintext-token", "", "Send the token to other machines without encryption, too."}};
}

std::string ServerAddress(const Arguments& arguments) {
  if (const auto address = arguments.Get("server")) return *address;
  const std::string variable = Variable("TENON_SERVER");
  return variable.empty() ? kDefaultServer : variable;
}

absl::StatusOr<client::Client> Connect(const Arguments& arguments) {
  client::ClientOptions options;
  options.user_agent = "tenon-command";
  options.tls = arguments.Has("tls");
  options.tls_ca = arguments.Get("tls-ca").value_or(Variable("TENON_TLS_CA"));
  options.tls_cert = arguments.Get("tls-cert").value_or("");
  options.tls_key = arguments.Get("tls-key").value_or("");
  options.tls_server_name = arguments.Get("tls-server-name").value_or("");
  options.allow_plaintext_token = arguments.Has("plaintext-token");
  TENON_ASSIGN_OR_RETURN(options.token, Token(arguments));
  if (arguments.Get("retry") == "0") {
    options.retry.patience = absl::ZeroDuration();
  } else {
    TENON_ASSIGN_OR_RETURN(const auto seconds,
                           GetParsed<double>(arguments, "retry", ParsePositive));
    if (seconds.has_value()) options.retry.patience = absl::Seconds(*seconds);
  }
  absl::StatusOr<client::Client> client =
      client::Client::Connect(ServerAddress(arguments), options);
  if (!client.ok()) return AsOption(client.status());
  return client;
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

Option SharedMemoryOption() {
  return {"shared-memory", "SIZE",
          "Hand over tensors of 64 KiB and more in memory that is shared with a server on this "
          "host, such as 1GiB, instead of sending them; what does not fit into it is sent."};
}

absl::StatusOr<std::shared_ptr<client::SharedPool>> OpenPool(const Arguments& arguments,
                                                             client::Client& client,
                                                             const client::CallOptions& options) {
  TENON_ASSIGN_OR_RETURN(const auto bytes,
                         GetParsed<int64_t>(arguments, "shared-memory", ParseSize));
  if (!bytes.has_value()) return nullptr;
  auto pool = client.OpenSharedPool(*bytes, options);
  if (pool.ok() || client::ServerErrorOf(pool.status()).has_value()) return pool;
  const Reason reason = GetErrorDetails(pool.status()).reason;
  if (reason != Reason::kNotImplemented) return pool;
  return Error(reason, StrCat("--shared-memory: the server at ", ServerAddress(arguments),
                              " shares no memory; it needs --shared_memory_socket, and this host"))
      .Field("--shared-memory");
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
    text = CodeAndReason(error) + ": ";
  }
  std::string_view message = error.message;
  // A server that can't send details begins the message with the reason.
  if (by_server && !error.reason.empty() && message.starts_with(error.reason + ": ")) {
    message.remove_prefix(error.reason.size() + 2);
  }
  text += StrCat(message, "\n");
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
