// Who makes a call.

#ifndef TENON_SERVER_PRINCIPAL_H_
#define TENON_SERVER_PRINCIPAL_H_

#include <grpcpp/grpcpp.h>

#include <string>

namespace tenon::server {

struct Principal {
  std::string name;  // empty where the server knows no principals
  bool administrator = false;
};

inline Principal PrincipalOf(const grpc::ServerContextBase&) { return {}; }

inline std::string CallerOf(const grpc::ServerContextBase& context) {
  return PrincipalOf(context).name;
}

}  // namespace tenon::server

#endif  // TENON_SERVER_PRINCIPAL_H_
