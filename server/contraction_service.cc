#include "server/contraction_service.h"

#include "server/contraction_estimate.h"
#include "server/contraction_stream.h"
#include "server/plan_call.h"
#include "tenon/v1/contraction.grpc.pb.h"

namespace tenon::server {
namespace {

class Service final : public v1::ContractionService::CallbackService {
 public:
  explicit Service(ServerState* state) : state_(state) {}

  grpc::ServerBidiReactor<v1::ContractRequest, v1::ContractResponse>* Contract(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<ContractStream>(context, state_);
    stream->Begin();  // from here on it owns itself
    return stream.get();
  }

  grpc::ServerWriteReactor<v1::PlanContractionResponse>* PlanContraction(
      grpc::CallbackServerContext* context, const v1::PlanContractionRequest* request) override {
    return StartPlanContraction(context, state_, request);
  }

  grpc::ServerUnaryReactor* Estimate(grpc::CallbackServerContext* context,
                                     const v1::EstimateRequest* request,
                                     v1::EstimateResponse* response) override {
    return StartEstimate(context, state_, request, response);
  }

 private:
  ServerState* const state_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeContractionService(ServerState* state) {
  return std::make_unique<Service>(state);
}

}  // namespace tenon::server
