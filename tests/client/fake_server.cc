#include "tests/client/fake_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "client/cpp/wire.h"
#include "google/rpc/status_details.pb.h"

namespace tenon::testing {
namespace {

grpc::Status Missing() {
  return {grpc::StatusCode::UNIMPLEMENTED, "the test has no script for it"};
}

template <typename Message>
void AddDetail(const Message& message, google::rpc::Status* status) {
  status->add_details()->PackFrom(message);
}

}  // namespace

class FakeServer::Services final : public v1::ContractionService::Service,
                                   public v1::MeasurementService::Service,
                                   public v1::ProviderService::Service {
 public:
  explicit Services(Script script) : script_(std::move(script)) {}

  grpc::Status Contract(grpc::ServerContext* context, ContractServerStream* stream) override {
    return script_.contract ? script_.contract(context, stream) : Missing();
  }
  grpc::Status Estimate(grpc::ServerContext*, const v1::EstimateRequest* request,
                        v1::EstimateResponse* response) override {
    return script_.estimate ? script_.estimate(*request, response) : Missing();
  }
  grpc::Status Measure(grpc::ServerContext* context, MeasureServerStream* stream) override {
    return script_.measure ? script_.measure(context, stream) : Missing();
  }
  grpc::Status ListMeasures(grpc::ServerContext*, const v1::ListMeasuresRequest* request,
                            v1::ListMeasuresResponse* response) override {
    return script_.list_measures ? script_.list_measures(*request, response) : Missing();
  }
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    return script_.server_info ? script_.server_info(response) : Missing();
  }
  grpc::Status ListProviders(grpc::ServerContext*, const v1::ListProvidersRequest* request,
                             v1::ListProvidersResponse* response) override {
    return script_.list_providers ? script_.list_providers(*request, response) : Missing();
  }

 private:
  Script script_;
};

FakeServer::FakeServer(Script script) : services_(std::make_unique<Services>(std::move(script))) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(client::kMaxMessageBytes);
  builder.RegisterService(static_cast<v1::ContractionService::Service*>(services_.get()));
  builder.RegisterService(static_cast<v1::MeasurementService::Service*>(services_.get()));
  builder.RegisterService(static_cast<v1::ProviderService::Service*>(services_.get()));
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr);
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

grpc::Status MakeStatus(const WireError& error) {
  google::rpc::Status status;
  status.set_code(error.code);
  status.set_message(error.message);
  google::rpc::ErrorInfo info;
  info.set_reason(error.reason);
  info.set_domain("tenon");
  info.mutable_metadata()->insert(error.metadata.begin(), error.metadata.end());
  AddDetail(info, &status);
  if (!error.field.empty()) {
    google::rpc::BadRequest bad_request;
    bad_request.add_field_violations()->set_field(error.field);
    bad_request.mutable_field_violations(0)->set_description("wrong here");
    AddDetail(bad_request, &status);
  }
  if (error.retry_seconds > 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(error.retry_seconds * 1e9));
    AddDetail(retry, &status);
  }
  return {error.code, error.message, status.SerializeAsString()};
}

v1::ContractResponse AcceptedFrame() {
  v1::ContractResponse frame;
  frame.mutable_accepted()->set_request_id("r");
  frame.mutable_accepted()->mutable_granted()->set_max_chunk_bytes(1 << 20);
  return frame;
}

v1::ContractResult InlineResult(int64_t set, const TensorSpec& spec, const std::string& bytes) {
  v1::ContractResult result;
  result.set_set(set);
  *result.mutable_spec() = client::ToWire(spec);
  result.set_inline_data(bytes);
  result.mutable_report()->set_set(set);
  result.mutable_report()->set_result_bytes(static_cast<int64_t>(bytes.size()));
  return result;
}

v1::ContractResponse ResultFrame(int64_t set, const TensorSpec& spec) {
  v1::ContractResponse frame;
  frame.mutable_result()->set_set(set);
  *frame.mutable_result()->mutable_spec() = client::ToWire(spec);
  return frame;
}

v1::ContractResponse ChunkFrame(int64_t set, int64_t offset, const std::string& bytes) {
  v1::ContractResponse frame;
  frame.mutable_chunk()->set_set(set);
  frame.mutable_chunk()->set_offset_bytes(offset);
  frame.mutable_chunk()->set_data(bytes);
  return frame;
}

v1::ContractResponse SetReportFrame(int64_t set, int64_t bytes) {
  v1::ContractResponse frame;
  frame.mutable_set_report()->set_set(set);
  frame.mutable_set_report()->set_result_bytes(bytes);
  return frame;
}

v1::ContractResponse ReportFrame(int64_t sets) {
  v1::ContractResponse frame;
  frame.mutable_report()->set_sets(sets);
  return frame;
}

Tensor MakeTensor(const std::vector<int64_t>& shape, const std::vector<double>& values) {
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, shape});
  EXPECT_EQ(tensor.buffer.size_bytes(), static_cast<int64_t>(values.size() * sizeof(double)));
  std::copy(values.begin(), values.end(), tensor.buffer.as<double>());
  return tensor;
}

Tensor MakeRange(const std::vector<int64_t>& shape) {
  std::vector<double> values(static_cast<size_t>(*CheckedElementCount(shape)));
  std::iota(values.begin(), values.end(), 0.0);
  return MakeTensor(shape, values);
}

}  // namespace tenon::testing
