// ContractionService: contract a tensor network, or ask what it would cost.

#ifndef TENON_SERVER_CONTRACTION_SERVICE_H_
#define TENON_SERVER_CONTRACTION_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/state.h"

namespace tenon::server {

// `state` outlives the service.
std::unique_ptr<grpc::Service> MakeContractionService(ServerState* state);

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_SERVICE_H_
