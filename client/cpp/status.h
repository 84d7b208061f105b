// From gRPC's errors to absl::Status with the details that the library promises.

#ifndef TENON_CLIENT_CPP_STATUS_H_
#define TENON_CLIENT_CPP_STATUS_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
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

  bool connected() const { return channel->GetState(false) == GRPC_CHANNEL_READY; }
};

// A peer that breaks the wire contract: INTERNAL, and ServerErrorOf knows of it.
absl::Status BrokenContract(std::string_view what);

// A checksum that does not match: DATA_LOSS with CHECKSUM_MISMATCH, marked likewise.
absl::Status BadChecksum(std::string_view what);

// Runs `function`; an exception that it throws becomes a status.
absl::Status CatchExceptions(const std::function<absl::Status()>& function);

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_STATUS_H_
