// Who the client is, and how it knows the server: certificates and tokens.

#ifndef TENON_CLIENT_CPP_CREDENTIALS_H_
#define TENON_CLIENT_CPP_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tenon/client.h"

namespace tenon::client {

// Whether an address leads to this machine.
bool IsLocal(const std::string& address);

// What the channel to `address` is made with. BAD_PARAMETER with the option as field: files that
// can't be read, a certificate without its key, a token that would travel in the open.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const std::string& address, const ClientOptions& options);

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_CREDENTIALS_H_
