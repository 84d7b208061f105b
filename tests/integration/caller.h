// One caller of a server, with or without a token, and a server for such callers.

#ifndef TENON_TESTS_INTEGRATION_CALLER_H_
#define TENON_TESTS_INTEGRATION_CALLER_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/sha256.h"
#include "backends/core/strings.h"
#include "server/token_table.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/dataset.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {

inline std::string Line(const std::string& name, const std::string& role) {
  const auto digest = Sha256("token-of-" + name);
  return StrCat(name, " ", role, " ", HexDigits(digest.data(), digest.size()), "\n");
}

inline std::shared_ptr<const server::TokenTable> Tokens() {
  return std::make_shared<const server::TokenTable>(*server::TokenTable::Parse(
      Line("alice", "compute") + Line("bob", "compute") + Line("root", "admin"), "tokens"));
}

// What one caller does; "" for no token.
class Caller {
 public:
  Caller(std::shared_ptr<grpc::Channel> channel, std::string name)
      : channel_(std::move(channel)), name_(std::move(name)) {}

  std::unique_ptr<grpc::ClientContext> Context() const {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!name_.empty()) context->AddMetadata("authorization", "Bearer token-of-" + name_);
    return context;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // The name of the stored thing; the reason of a refusal.
  std::string UploadDataset(const std::string& bytes, bool* existed = nullptr) const {
    v1::CreateDatasetRequest request;
    v1::CreateDatasetHeader* header = request.mutable_header();
    FillSpec(bytes, header->mutable_spec());
    header->set_inline_data(bytes);
    v1::CreateDatasetResponse response;
    const auto context = Context();
    const auto stub = v1::DatasetService::NewStub(channel_);
    const auto writer = stub->CreateDataset(context.get(), &response);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (existed != nullptr) *existed = response.existed();
    return status.ok() ? response.dataset().name() : ReasonOf(status);
  }
  std::string UploadTensor(const std::string& bytes) const {
    v1::CreateTensorRequest request;
    FillSpec(bytes, request.mutable_header()->mutable_spec());
    request.mutable_header()->set_inline_data(bytes);
    v1::CreateTensorResponse response;
    const auto context = Context();
    const auto stub = v1::DatasetService::NewStub(channel_);
    const auto writer = stub->CreateTensor(context.get(), &response);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return status.ok() ? response.tensor().name() : ReasonOf(status);
  }
  std::string GetDataset(const std::string& name) const {
    v1::GetDatasetRequest request;
    request.set_name(name);
    v1::GetDatasetResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->GetDataset(Context().get(), request, &response));
  }
  std::string DeleteDataset(const std::string& name) const {
    v1::DeleteDatasetRequest request;
    request.set_name(name);
    v1::DeleteDatasetResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->DeleteDataset(Context().get(), request, &response));
  }
  std::string GetTensor(const std::string& name) const {
    v1::GetTensorRequest request;
    request.set_name(name);
    v1::GetTensorResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->GetTensor(Context().get(), request, &response));
  }
  std::string DeleteTensor(const std::string& name) const {
    v1::DeleteTensorRequest request;
    request.set_name(name);
    v1::DeleteTensorResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->DeleteTensor(Context().get(), request, &response));
  }
  // "owner:name" of each; the reason of a refusal.
  std::vector<std::string> ListDatasets(bool all) const {
    v1::ListDatasetsRequest request;
    request.set_all_owners(all);
    v1::ListDatasetsResponse response;
    const grpc::Status status =
        v1::DatasetService::NewStub(channel_)->ListDatasets(Context().get(), request, &response);
    if (!status.ok()) return {ReasonOf(status)};
    std::vector<std::string> list;
    for (const auto& one : response.datasets()) list.push_back(one.owner() + ":" + one.name());
    return list;
  }
  // A contraction with itself of a tensor that is stored.
  std::string ContractHandle(const std::string& handle) const {
    v1::ContractRequest request;
    v1::Einsum* einsum = request.mutable_header()->mutable_einsum();
    einsum->set_subscripts("ab,cb->ac");
    for (int i = 0; i < 2; ++i) einsum->add_operands()->set_handle(handle);
    return Contract(request);
  }
  // A contraction by a stored plan.
  std::string ContractPlan(const std::string& plan) const {
    v1::ContractRequest request;
    FillChain(request.mutable_header()->mutable_einsum());
    for (auto& operand : *request.mutable_header()->mutable_einsum()->mutable_operands()) {
      operand.set_inline_data(std::string(4 * sizeof(double), '\0'));
    }
    request.mutable_header()->set_plan_id(plan);
    return Contract(request);
  }
  // A plan's id.
  std::string Plan() const {
    v1::PlanContractionRequest request;
    FillChain(request.mutable_einsum());
    request.mutable_search()->set_max_trials(2);
    const auto context = Context();
    const auto stub = v1::ContractionService::NewStub(channel_);
    const auto reader = stub->PlanContraction(context.get(), request);
    v1::PlanContractionResponse frame;
    std::string id;
    while (reader->Read(&frame)) {
      if (!frame.has_plan()) continue;
      id = frame.plan().plan().plan_id();
      source_ = frame.plan().plan().provenance().source();
    }
    const grpc::Status status = reader->Finish();
    return status.ok() ? id : ReasonOf(status);
  }
  v1::PlanSource plan_source() const { return source_; }

  std::string MeasureHandle(const std::string& handle, const std::string& distances = "") const {
    v1::MeasureRequest request;
    v1::MeasureHeader* header = request.mutable_header();
    header->set_dataset_handle(handle);
    v1::MeasureSpec* spec = header->add_specs();
    spec->set_id(distances.empty() ? "stress" : "gap_index");
    if (!distances.empty()) {
      spec->mutable_gap_index()->set_metric(v1::ROW_METRIC_PRECOMPUTED);
      spec->mutable_gap_index()->set_precomputed_handle(distances);
    }
    const auto context = Context();
    const auto stub = v1::MeasurementService::NewStub(channel_);
    const auto stream = stub->Measure(context.get());
    stream->Write(request);
    stream->WritesDone();
    v1::MeasureResponse response;
    while (stream->Read(&response)) {
    }
    return Reason(stream->Finish());
  }

  static std::string Reason(const grpc::Status& status) {
    return status.ok() ? "OK" : ReasonOf(status);
  }

 private:
  static void FillSpec(const std::string& bytes, v1::TensorSpec* spec) {
    spec->set_dtype(v1::DATA_TYPE_FLOAT64);
    spec->add_shape(static_cast<int64_t>(bytes.size() / sizeof(double) / 2));
    spec->add_shape(2);
  }
  static void FillChain(v1::Einsum* einsum) {
    einsum->set_subscripts("ab,bc,cd->ad");
    for (int i = 0; i < 3; ++i) {
      v1::TensorSpec* spec = einsum->add_operands()->mutable_spec();
      spec->set_dtype(v1::DATA_TYPE_FLOAT64);
      spec->add_shape(2);
      spec->add_shape(2);
    }
  }
  std::string Contract(const v1::ContractRequest& request) const {
    const auto context = Context();
    const auto stub = v1::ContractionService::NewStub(channel_);
    const auto stream = stub->Contract(context.get());
    stream->Write(request);
    stream->WritesDone();
    v1::ContractResponse response;
    while (stream->Read(&response)) {
    }
    return Reason(stream->Finish());
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string name_;
  mutable v1::PlanSource source_ = v1::PLAN_SOURCE_UNSPECIFIED;
};

inline std::string Doubles(std::initializer_list<double> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(double)};
}

class SecurityTest : public ::testing::Test {
 protected:
  void StartWithTokens() {
    server::Config config = TestConfig();
    config.tokens = Tokens();
    Start(config);
  }
  void Start(const server::Config& config, server::Server::Parts parts = {}) {
    server_ = StartOrDie(config, std::move(parts));
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = ChannelTo(server_->addresses()[0]);
  }
  Caller As(const std::string& name) const { return {channel_, name}; }

  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_INTEGRATION_CALLER_H_
