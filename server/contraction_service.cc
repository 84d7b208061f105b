#include "server/contraction_service.h"

#include "server/contraction_estimate.h"
#include "server/contraction_stream.h"
#include "server/plan_call.h"
#include "tenon/v1/contraction.grpc.pb.h"

namespace tenon::server {
namespace {

using Grpc = v1::ContractionService;

// Client streams come as bytes: see BidiStream.
class Service final
    : public Grpc::WithRawCallbackMethod_Contract<Grpc::WithCallbackMethod_PlanContraction<
          Grpc::WithCallbackMethod_Estimate<Grpc::Service>>> {
 public:
  explicit Service(ServerState* state) : state_(state) {}

  RawBidiReactor* Contract(grpc::CallbackServerContext* context) override {
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
