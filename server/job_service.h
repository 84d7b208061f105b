// JobService: part of the contract, not offered yet.

#ifndef TENON_SERVER_JOB_SERVICE_H_
#define TENON_SERVER_JOB_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/state.h"

namespace tenon::server {

// `state` outlives the service.
std::unique_ptr<grpc::Service> MakeJobService(ServerState* state);

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_SERVICE_H_
