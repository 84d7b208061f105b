#include "server/measurement_service.h"

#include "server/measure_info.h"
#include "server/measurement_stream.h"
#include "server/unary.h"
#include "tenon/v1/measurement.grpc.pb.h"

namespace tenon::server {
namespace {

using Grpc = v1::MeasurementService;

// Client streams come as bytes: see BidiStream.
class MeasurementService final : public Grpc::WithRawCallbackMethod_Measure<
                                     Grpc::WithCallbackMethod_ListMeasures<Grpc::Service>> {
 public:
  explicit MeasurementService(ServerState* state) : state_(state) {}

  RawBidiReactor* Measure(grpc::CallbackServerContext* context) override {
    const auto stream = std::make_shared<MeasurementStream>(context, state_);
    stream->Begin();
    return stream.get();
  }

  grpc::ServerUnaryReactor* ListMeasures(grpc::CallbackServerContext* context,
                                         const v1::ListMeasuresRequest* request,
                                         v1::ListMeasuresResponse* response) override {
    return AnswerNow(context, &state_->metrics, Method::kMeasure,
                     "tenon.v1.MeasurementService/ListMeasures",
                     [&] { return DescribeMeasures(request->id(), response); });
  }

 private:
  ServerState* const state_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMeasurementService(ServerState* state) {
  return std::make_unique<MeasurementService>(state);
}

}  // namespace tenon::server
