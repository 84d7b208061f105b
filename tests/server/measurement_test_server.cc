#include "tests/server/measurement_test_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "backends/cpu/provider.h"
#include "backends/plugin/provider.h"
#include "google/rpc/status_details.pb.h"
#include "server/dataset_service.h"
#include "server/measurement_service.h"
#include "server/scratch_space.h"

namespace tenon::server {
namespace {

std::mutex gate_mutex;
std::condition_variable gate_changed;
bool gate_closed = false;
int gate_inside = 0, gate_max_inside = 0;

// Cancellation has no condition variable: the flag is polled while the gate is closed.
int32_t BuildBehindGate(tenon_provider* provider, const tenon_resource_request* request,
                        tenon_resource_statistics* statistics, tenon_status* status) {
  const bool projection = request->embedded.data != nullptr;
  if (projection) {
    std::unique_lock lock(gate_mutex);
    gate_max_inside = std::max(gate_max_inside, ++gate_inside);
    gate_changed.notify_all();
    const auto cancelled = [&] {
      return request->cancel != nullptr && __atomic_load_n(request->cancel, __ATOMIC_RELAXED) != 0;
    };
    while (gate_closed && !cancelled()) {
      gate_changed.wait_for(lock, std::chrono::milliseconds(10));
    }
    --gate_inside;
    gate_changed.notify_all();
  }
  return cpu::CpuProviderApi()->build_resources(provider, request, statistics, status);
}

const tenon_provider_api* GatedProviderApi() {
  static const tenon_provider_api api = [] {
    tenon_provider_api copy = *cpu::CpuProviderApi();
    copy.build_resources = &BuildBehindGate;
    copy.can_batch = nullptr;  // one by one through the gate
    copy.build_batch = nullptr;
    return copy;
  }();
  return &api;
}

int32_t DescribePartial(tenon_provider* provider, tenon_provider_info* info, tenon_status* status) {
  const int32_t code = cpu::CpuProviderApi()->describe(provider, info, status);
  info->name = "partial";
  info->resource_kinds &= ~(1u << TENON_RESOURCE_KNN | 1u << TENON_RESOURCE_SELECTED_RANKS);
  return code;
}

const tenon_provider_api* PartialProviderApi() {
  static const tenon_provider_api api = [] {
    tenon_provider_api copy = *cpu::CpuProviderApi();
    copy.describe = &DescribePartial;
    return copy;
  }();
  return &api;
}

void AddProvider(const std::string& name, const tenon_provider_api* api, ServerState* state) {
  auto provider = plugin::Provider::Create(api, "");
  ASSERT_TRUE(provider.ok()) << provider.status();
  ASSERT_TRUE((*provider)->WarmUp().ok());
  state->providers.Set({name, *provider, absl::OkStatus()});
}

template <typename Detail>
bool Unpack(const google::rpc::Status& status, Detail* detail) {
  for (const auto& any : status.details()) {
    if (any.UnpackTo(detail)) return true;
  }
  return false;
}

std::string CodeName(int code) {
  static const char* const kNames[] = {"OK",
                                       "CANCELLED",
                                       "UNKNOWN",
                                       "INVALID_ARGUMENT",
                                       "DEADLINE_EXCEEDED",
                                       "NOT_FOUND",
                                       "ALREADY_EXISTS",
                                       "PERMISSION_DENIED",
                                       "RESOURCE_EXHAUSTED",
                                       "FAILED_PRECONDITION",
                                       "ABORTED",
                                       "OUT_OF_RANGE",
                                       "UNIMPLEMENTED",
                                       "INTERNAL",
                                       "UNAVAILABLE",
                                       "DATA_LOSS",
                                       "UNAUTHENTICATED"};
  return kNames[code];
}

}  // namespace

TestServer::TestServer(const TestServerOptions& options) {
  state_ = std::make_unique<ServerState>(options.budget_bytes, options.executor_threads,
                                         options.max_queued, std::chrono::seconds(30));
  state_->limits.max_threads = 4;
  state_->store = std::make_shared<ContentStore>(&state_->budget, std::chrono::seconds(3600));
  state_->settings.data_root = options.data_root;
  if (!options.scratch_root.empty()) {
    auto scratch = ScratchSpace::Create(options.scratch_root, false, options.scratch_budget_bytes,
                                        static_cast<size_t>(options.max_queued));
    EXPECT_TRUE(scratch.ok()) << scratch.status();
    if (scratch.ok()) state_->scratch = *std::move(scratch);
  }
  AddProvider("cpu", cpu::CpuProviderApi(), state_.get());
  AddProvider("reference", cpu::ReferenceProviderApi(), state_.get());
  AddProvider("partial", PartialProviderApi(), state_.get());
  AddProvider("gated", GatedProviderApi(), state_.get());
  state_->lifecycle.MoveTo(ServerPhase::kReady);
  measurement_service_ = MakeMeasurementService(state_.get());
  dataset_service_ = MakeDatasetService(state_.get());
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(state_->limits.max_message_bytes));
  builder.RegisterService(measurement_service_.get());
  builder.RegisterService(dataset_service_.get());
  server_ = builder.BuildAndStart();
  const auto channel = server_->InProcessChannel(grpc::ChannelArguments());
  measurement_ = v1::MeasurementService::NewStub(channel);
  datasets_ = v1::DatasetService::NewStub(channel);
}

TestServer::~TestServer() { server_->Shutdown(); }

bool TestServer::AllReleased() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (state_->budget.reserved_bytes() !=
         state_->store->reserved_bytes() + state_->store->resource_bytes()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

void Gate::Close() {
  std::lock_guard lock(gate_mutex);
  gate_closed = true;
  gate_max_inside = 0;
}

void Gate::Open() {
  std::lock_guard lock(gate_mutex);
  gate_closed = false;
  gate_changed.notify_all();
}

void Gate::AwaitInside(int count) {
  std::unique_lock lock(gate_mutex);
  gate_changed.wait(lock, [&] { return gate_inside >= count; });
}

int Gate::max_inside() {
  std::lock_guard lock(gate_mutex);
  return gate_max_inside;
}

CallError ErrorOf(const grpc::Status& status) {
  CallError error;
  error.code = status.error_code();
  error.message = status.error_message();
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  google::rpc::ErrorInfo info;
  if (Unpack(details, &info)) {
    error.reason = info.reason();
    error.metadata = {info.metadata().begin(), info.metadata().end()};
  }
  google::rpc::BadRequest bad_request;
  if (Unpack(details, &bad_request)) error.field = bad_request.field_violations(0).field();
  return error;
}

std::string Summary(const grpc::Status& status) {
  if (status.ok()) return "OK";
  const CallError error = ErrorOf(status);
  return CodeName(error.code) + " " + error.reason + " " + error.field;
}

std::string Summary(const v1::ErrorDetail& detail) {
  return CodeName(detail.code()) + " " + detail.reason() + " " + detail.field();
}

MeasureClient::MeasureClient(TestServer* server,
                             std::optional<std::chrono::system_clock::time_point> deadline) {
  if (deadline.has_value()) context_.set_deadline(*deadline);
  stream_ = server->measurement().Measure(&context_);
}

MeasureClient::~MeasureClient() {
  if (finished_) return;
  context_.TryCancel();
  Finish();
}

bool MeasureClient::Send(const v1::MeasureRequest& frame) { return stream_->Write(frame); }

bool MeasureClient::Send(const v1::MeasureHeader& header) {
  v1::MeasureRequest frame;
  *frame.mutable_header() = header;
  return Send(frame);
}

bool MeasureClient::Stop() {
  v1::MeasureRequest frame;
  frame.mutable_stop();
  return Send(frame);
}

std::vector<v1::MeasureResponse> MeasureClient::Exchange(
    const std::vector<v1::MeasureRequest>& frames) {
  std::thread writer([&] {
    for (const v1::MeasureRequest& frame : frames) {
      if (!Send(frame)) return;
    }
    HalfClose();
  });
  auto answers = ReadRest();
  writer.join();
  return answers;
}

v1::MeasureResponse MeasureClient::Read() {
  v1::MeasureResponse response;
  if (!stream_->Read(&response)) response.Clear();
  return response;
}

std::vector<v1::MeasureResponse> MeasureClient::ReadAll() {
  HalfClose();
  return ReadRest();
}

std::vector<v1::MeasureResponse> MeasureClient::ReadRest() {
  std::vector<v1::MeasureResponse> frames;
  v1::MeasureResponse response;
  while (stream_->Read(&response)) frames.push_back(response);
  return frames;
}

grpc::Status MeasureClient::Finish() {
  finished_ = true;
  return stream_->Finish();
}

std::string Matrix::bytes() const {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

Matrix MakeMatrix(int64_t rows, int64_t columns, uint32_t seed) {
  Matrix matrix{rows, columns, {}};
  uint64_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < rows * columns; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    matrix.values.push_back(static_cast<double>(state >> 40) / 16777216.0);
  }
  return matrix;
}

void SetSpec(int64_t rows, int64_t columns, v1::TensorSpec* spec) {
  spec->set_dtype(v1::DATA_TYPE_FLOAT64);
  spec->add_shape(rows);
  spec->add_shape(columns);
}

v1::DatasetInput InlineDataset(const Matrix& matrix) {
  v1::DatasetInput input;
  SetSpec(matrix.rows, matrix.columns, input.mutable_spec());
  input.set_inline_data(matrix.bytes());
  return input;
}

v1::Projection InlineProjection(int64_t index, const Matrix& matrix) {
  v1::Projection projection;
  projection.set_index(index);
  SetSpec(matrix.rows, matrix.columns, projection.mutable_spec());
  projection.set_inline_data(matrix.bytes());
  return projection;
}

v1::MeasureRequest Frame(const v1::Projection& projection) {
  v1::MeasureRequest frame;
  *frame.mutable_projection() = projection;
  return frame;
}

v1::MeasureRequest DatasetChunk(int64_t offset, const std::string& data) {
  v1::MeasureRequest frame;
  frame.mutable_dataset_chunk()->set_offset_bytes(offset);
  frame.mutable_dataset_chunk()->set_data(data);
  return frame;
}

v1::MeasureRequest ProjectionChunk(int64_t index, int64_t offset, const std::string& data) {
  v1::MeasureRequest frame;
  frame.mutable_projection_chunk()->set_set(index);
  frame.mutable_projection_chunk()->set_offset_bytes(offset);
  frame.mutable_projection_chunk()->set_data(data);
  return frame;
}

void AddSpec(const std::string& id, int k, v1::MeasureHeader* header) {
  v1::MeasureSpec* spec = header->add_specs();
  spec->set_id(id);
  if (k <= 0) return;
  if (id == "tnc" || id == "trustworthiness_continuity") {
    spec->mutable_trustworthiness_continuity()->set_k(k);
  } else if (id == "mrre") {
    spec->mutable_mean_relative_rank_error()->set_k(k);
  } else if (id == "lcmc") {
    spec->mutable_local_continuity_meta_criteria()->set_k(k);
  } else if (id == "nh") {
    spec->mutable_neighborhood_hit()->set_k(k);
  }
}

v1::MeasureHeader Header(const Matrix& dataset, const std::vector<std::string>& ids, int k) {
  v1::MeasureHeader header;
  *header.mutable_dataset_input() = InlineDataset(dataset);
  for (const std::string& id : ids) AddSpec(id, k, &header);
  return header;
}

}  // namespace tenon::server
