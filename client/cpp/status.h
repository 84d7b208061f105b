// From gRPC's errors to absl::Status with the details that the library promises.

#ifndef TENON_CLIENT_CPP_STATUS_H_
#define TENON_CLIENT_CPP_STATUS_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tenon/call.h"

namespace tenon::client {

// The status of a call to `address`. `connected`: there was a connection when the call ended; a
// deadline that passed without one means that the server is unreachable.
absl::Status StatusFromGrpc(const grpc::Status& status, std::string_view address,
                            bool connected = true);

// Where calls go.
struct Endpoint {
  std::string address;
  std::string token;  // goes with every call; empty: none
  std::shared_ptr<grpc::ChannelInterface> channel;
  // Of all copies.
  std::shared_ptr<std::atomic<bool>> has_answered = std::make_shared<std::atomic<bool>>(false);

  bool connected() const { return channel->GetState(false) == GRPC_CHANNEL_READY; }
  // Whether a server has ever answered here: then a connection that breaks may come back, while a
  // wrong address does not.
  bool answered() const { return *has_answered; }
  void NoteAnswer() const { *has_answered = true; }
  // Notes how a call ended.
  void Note(const absl::Status& ended) const {
    const std::optional<ServerError> error = ServerErrorOf(ended);
    if (ended.ok() || (error.has_value() && !error->reason.empty())) NoteAnswer();
  }
};

// A peer that breaks the wire contract: INTERNAL, and ServerErrorOf knows of it.
absl::Status BrokenContract(std::string_view what);

// A checksum that does not match: DATA_LOSS with CHECKSUM_MISMATCH, marked likewise.
absl::Status BadChecksum(std::string_view what);

// Runs `function`; an exception that it throws becomes a status.
absl::Status CatchExceptions(const std::function<absl::Status()>& function);

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_STATUS_H_
