// What all calls share: cancelling, deadlines, and what an error says.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_CALL_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_CALL_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/error.h"
#include "tenon/v1/errors.pb.h"

namespace tenon::client {

// Cancels calls from another thread: give its address to any number of calls, then Cancel() ends
// all of them, and every later one, with CANCELLED. The server hears of it. Thread-safe, but not
// for use inside a signal handler. Must outlive the calls.
class Canceller {
 public:
  Canceller();
  ~Canceller();
  Canceller(const Canceller&) = delete;
  Canceller& operator=(const Canceller&) = delete;

  void Cancel();
  bool cancelled() const;
  // Waits until Cancel() or until the time is over; true when cancelled.
  bool WaitFor(absl::Duration time) const;

  // Used by the library: runs `action` at Cancel(), at once when that has been called. The action
  // does not run any more when Remove has returned.
  int Add(std::function<void()> action);
  void Remove(int id);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// While it lives, cancelling `from` (which may be null) cancels `to`, too. Both must outlive it.
class CancelLink {
 public:
  CancelLink(Canceller* to, Canceller* from);
  ~CancelLink();
  CancelLink(const CancelLink&) = delete;
  CancelLink& operator=(const CancelLink&) = delete;

 private:
  Canceller* from_;
  int id_ = 0;
};

// When a call that broke is tried again.
struct RetryPolicy {
  // Gives up when so much time has passed since a break and nothing came, >= 0; 0: at once.
  absl::Duration patience = absl::Seconds(60);
  // Before the first try, > 0; twice as long before every further one, up to 5 s. A server that
  // asks for a longer pause gets it.
  absl::Duration pause = absl::Milliseconds(250);
  // Called before each pause, on the thread of the call; may be absent.
  std::function<void(const absl::Status& error, absl::Duration pause)> on_break = nullptr;
};

// ClientOptions::retry by default: a patience of 10 s, and a first pause of 0.1 s.
RetryPolicy RetryOfCalls();

// Options of one call.
struct CallOptions {
  // The call fails with DEADLINE_EXCEEDED after this time, tries and pauses included. Absent:
  // ClientOptions::default_timeout.
  std::optional<absl::Duration> timeout = std::nullopt;
  // Not owned; null: the call can't be cancelled.
  Canceller* canceller = nullptr;
  // Absent: ClientOptions::retry.
  std::optional<RetryPolicy> retry = std::nullopt;
};

// What a server said about an error.
struct ServerError {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  // "SHAPE_MISMATCH", ...; also names that this version of the library does not know. Empty when
  // the other side sent no details.
  std::string reason;
  std::string message;
  // Paths of fields of the request, and what is wrong there.
  std::vector<std::pair<std::string, std::string>> fields;
  std::map<std::string, std::string> metadata;
  // Wait at least this long before the next try. Absent: waiting does not help.
  std::optional<double> retry_delay_seconds;
};

// Every status that a call gives carries the server's code and text; GetErrorDetails of
// backends/core/error.h tells reason, fields and metadata. The three functions below tell more.

// What the server, or the transport to it, said; nullopt when the error was found in the client
// before or beside the call (bad arguments, files, memory).
std::optional<ServerError> ServerErrorOf(const absl::Status& status);

// Whether the status says that no server answered at the address, or that the connection broke.
bool IsUnreachable(const absl::Status& status);

// The error of one item (a projection, a provider) as a status like those of calls.
absl::Status StatusFromDetail(const v1::ErrorDetail& detail);

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_CALL_H_
