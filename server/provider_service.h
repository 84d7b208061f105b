// ProviderService: what this server is, what it can do, and what it has done.

#ifndef TENON_SERVER_PROVIDER_SERVICE_H_
#define TENON_SERVER_PROVIDER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/state.h"

namespace tenon::server {

// `state` outlives the service.
std::unique_ptr<grpc::Service> MakeProviderService(ServerState* state);

}  // namespace tenon::server

#endif  // TENON_SERVER_PROVIDER_SERVICE_H_
