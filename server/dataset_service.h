// DatasetService of the contract.

#ifndef TENON_SERVER_DATASET_SERVICE_H_
#define TENON_SERVER_DATASET_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/state.h"

namespace tenon::server {

// `state` outlives the service and has a store.
std::unique_ptr<grpc::Service> MakeDatasetService(ServerState* state);

}  // namespace tenon::server

#endif  // TENON_SERVER_DATASET_SERVICE_H_
