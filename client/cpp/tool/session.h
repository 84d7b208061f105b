// What the commands share: the connection, interrupts, and how errors end the program.

#ifndef TENON_CLIENT_CPP_TOOL_SESSION_H_
#define TENON_CLIENT_CPP_TOOL_SESSION_H_

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/tool/arguments.h"
#include "tenon/client.h"

namespace tenon::tool {

// Exit codes of the program.
constexpr int kExitOk = 0;
constexpr int kExitCheckFailed = 1;
constexpr int kExitUsage = 2;        // usage, input, local files
constexpr int kExitRefused = 3;      // the server refused, or failed
constexpr int kExitUnreachable = 4;  // no server answered
constexpr int kExitInterrupted = 130;

// What a command runs in. Not owned members must outlive it.
struct Session {
  std::ostream* out;
  std::ostream* err;
  // Cancelled by Ctrl-C.
  client::Canceller* canceller;
  // Whether `err` is a terminal.
  bool err_is_terminal = false;
  // How wide tables may be.
  size_t columns = 120;
};

// --server, --timeout, and who calls, which every command that calls the server takes.
std::vector<Option> ConnectionOptions();

// --server, else the variable TENON_SERVER, else 127.0.0.1:50551.
std::string ServerAddress(const Arguments& arguments);
// Also with the certificates of --tls-*, and the token of --token-file, else of the variable
// TENON_TOKEN. A token is no argument: other users see those.
absl::StatusOr<client::Client> Connect(const Arguments& arguments);
// --timeout and the canceller.
absl::StatusOr<client::CallOptions> CallOptionsOf(const Arguments& arguments,
                                                  const Session& session);

// --shared-memory, of commands that send tensors.
Option SharedMemoryOption();
// The pool that --shared-memory asks for; null when it does not. NOT_IMPLEMENTED with the option as
// field when the server shares no memory; else errors as Client::OpenSharedPool.
absl::StatusOr<std::shared_ptr<client::SharedPool>> OpenPool(const Arguments& arguments,
                                                             client::Client& client,
                                                             const client::CallOptions& options);

// The exit code for a status that is not OK. `interrupted`: Ctrl-C was pressed.
int ExitCode(const absl::Status& status, bool interrupted);

// Code, reason, text, fields, figures, delay: what there is of them, in lines. A reason that is
// named like its code, or that the text begins with, stands there once.
std::string ErrorText(const absl::Status& status);

// Prints the error and gives the exit code.
int Fail(const Session& session, const absl::Status& status);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_SESSION_H_
