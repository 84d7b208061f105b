// Calls with one message each way.

#ifndef TENON_CLIENT_CPP_UNARY_H_
#define TENON_CLIENT_CPP_UNARY_H_

#include <grpcpp/client_context.h>

#include "absl/status/statusor.h"
#include "client/cpp/call_context.h"
#include "client/cpp/status.h"

namespace tenon::client {

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> CallUnary(Stub* stub,
                                   grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
                                   const Request& request, const CallOptions& options,
                                   absl::Duration default_timeout, const Endpoint& endpoint) {
  Response response;
  TENON_RETURN_IF_ERROR(CatchExceptions([&] {
    CallContext context(options, default_timeout, endpoint);
    const grpc::Status status = (stub->*method)(context.get(), request, &response);
    return StatusFromGrpc(status, endpoint.address, endpoint.connected());
  }));
  return response;
}

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_UNARY_H_
