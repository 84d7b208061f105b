// AdminService of the contract: verbs of the operator, for administrators only.

#ifndef TENON_SERVER_ADMIN_SERVICE_H_
#define TENON_SERVER_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/state.h"

namespace tenon::server {

// `state` outlives the service. Needs neither a warm provider nor the executor, so that it answers
// while the server starts, drains, or is full.
std::unique_ptr<grpc::Service> MakeAdminService(ServerState* state);

}  // namespace tenon::server

#endif  // TENON_SERVER_ADMIN_SERVICE_H_
