// JobService: see tenon/v1/job.proto.

#ifndef TENON_SERVER_JOB_SERVICE_H_
#define TENON_SERVER_JOB_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "server/principal.h"
#include "server/state.h"

namespace tenon::server {

// `state` outlives the service and its streams; its `jobs` are there before the first call, or
// never: all methods are refused then. `identify` tells who calls.
std::unique_ptr<grpc::Service> MakeJobService(
    ServerState* state,
    std::function<Principal(const grpc::ServerContextBase&)> identify = PrincipalOf);

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_SERVICE_H_
