// The call ContractionService.Estimate.

#ifndef TENON_SERVER_CONTRACTION_ESTIMATE_H_
#define TENON_SERVER_CONTRACTION_ESTIMATE_H_

#include <grpcpp/grpcpp.h>

#include "server/state.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// Plans on the executor and answers without running anything. A header that contradicts itself
// fails the call; what this server could not do now stands in the answer's refusals.
grpc::ServerUnaryReactor* StartEstimate(grpc::CallbackServerContext* context, ServerState* state,
                                        const v1::EstimateRequest* request,
                                        v1::EstimateResponse* response);

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_ESTIMATE_H_
