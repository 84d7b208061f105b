// Who calls, and what that caller may do.

#ifndef TENON_SERVER_PRINCIPAL_H_
#define TENON_SERVER_PRINCIPAL_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace tenon::server {

// Data sets, tensors, plans and jobs belong to the principal that made them. Where the server knows
// no principals, all callers are the one with the empty name, and those who administer are the ones
// on this machine: over loopback or a Unix socket.
struct Principal {
  std::string name;
  bool administrator = false;
};

// Every method calls one of the two before anything else, on the thread on which the call begins;
// a second time does nothing. UNAUTHENTICATED: no credentials, or bad ones. QUOTA with a retry
// delay: the principal has as many calls open as it may; the call counts until it has ended.
absl::Status CheckCaller(grpc::ServerContextBase* context);
// The same for methods of administration, which take no place of the principal's.
// PERMISSION_DENIED: the caller does not administer.
absl::Status CheckAdministrator(grpc::ServerContextBase* context);

// The caller of a call that was checked. From any thread.
Principal PrincipalOf(const grpc::ServerContextBase& context);
// Its name alone, which is what things belong to.
std::string CallerOf(const grpc::ServerContextBase& context);

}  // namespace tenon::server

#endif  // TENON_SERVER_PRINCIPAL_H_
