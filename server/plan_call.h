// The call ContractionService.PlanContraction.

#ifndef TENON_SERVER_PLAN_CALL_H_
#define TENON_SERVER_PLAN_CALL_H_

#include <grpcpp/grpcpp.h>

#include "server/state.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// Searches on the executor, and tells what it finds while it searches. A client that reads slowly
// misses improvements that better ones have overtaken, never the plan.
grpc::ServerWriteReactor<v1::PlanContractionResponse>* StartPlanContraction(
    grpc::CallbackServerContext* context, ServerState* state,
    const v1::PlanContractionRequest* request);

}  // namespace tenon::server

#endif  // TENON_SERVER_PLAN_CALL_H_
