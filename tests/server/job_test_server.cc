#include "tests/server/job_test_server.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends/core/crc32c.h"
#include "server/job_service.h"

namespace tenon::server {
namespace {

constexpr char kCallerKey[] = "test-caller";
constexpr std::chrono::seconds kPatience(120);

Principal CallerOfTest(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find(kCallerKey);
  if (found == context.client_metadata().end()) return {};
  const std::string name(found->second.data(), found->second.size());
  return {name, name == "root"};
}

void Prepare(grpc::ClientContext* context, const std::string& caller) {
  context->set_deadline(std::chrono::system_clock::now() + kPatience);  // a hang fails instead
  SetCaller(context, caller);
}

}  // namespace

void SetCaller(grpc::ClientContext* context, const std::string& caller) {
  if (!caller.empty()) context->AddMetadata(kCallerKey, caller);
}

JobTestServer::JobTestServer(const std::string& folder, JobServerOptions options)
    : options_(std::move(options)) {
  ContractionServerOptions server;
  server.budget_bytes = options_.budget_bytes;
  server.extend = [&](ServerState* state, grpc::ServerBuilder* builder) {
    auto store = JobStore::Open(folder, options_.store);
    ASSERT_TRUE(store.ok()) << store.status();
    auto board = JobBoard::Open(*std::move(store), options_.settings, options_.now);
    ASSERT_TRUE(board.ok()) << board.status();
    state->jobs = *std::move(board);
    service_ = MakeJobService(state, CallerOfTest);
    builder->RegisterService(service_.get());
  };
  server_ = std::make_unique<ContractionTestServer>(server);
  stub_ = v1::JobService::NewStub(server_->channel());
  if (options_.run) StartRunner();
}

JobTestServer::~JobTestServer() = default;

void JobTestServer::StartRunner() {
  runner_ = std::make_unique<JobRunner>(&state(), options_.runner);
}

JobTestServer::Submitted JobTestServer::Submit(const v1::SubmitContractionHeader& header,
                                               const std::vector<std::string>& operands,
                                               const std::string& caller) {
  constexpr size_t kChunk = size_t{1} << 20;
  Submitted out;
  grpc::ClientContext context;
  Prepare(&context, caller);
  const auto stream = stub_->SubmitContraction(&context, &out.response);
  v1::SubmitContractionRequest frame;
  *frame.mutable_header() = header;
  bool open = stream->Write(frame);
  for (size_t k = 0; k < operands.size(); ++k) {
    for (size_t offset = 0; open && offset < operands[k].size(); offset += kChunk) {
      v1::TensorChunk* chunk = frame.mutable_chunk();
      chunk->set_operand(static_cast<int32_t>(k));
      chunk->set_offset_bytes(static_cast<int64_t>(offset));
      chunk->set_data(operands[k].substr(offset, kChunk));
      open = stream->Write(frame);
    }
  }
  stream->WritesDone();
  out.status = stream->Finish();
  return out;
}

grpc::Status JobTestServer::Get(const std::string& name, v1::Job* job, const std::string& caller) {
  grpc::ClientContext context;
  Prepare(&context, caller);
  v1::GetJobRequest request;
  v1::GetJobResponse response;
  request.set_name(name);
  const grpc::Status status = stub_->GetJob(&context, request, &response);
  *job = response.job();
  return status;
}

grpc::Status JobTestServer::Cancel(const std::string& name, v1::Job* job,
                                   const std::string& caller) {
  grpc::ClientContext context;
  Prepare(&context, caller);
  v1::CancelJobRequest request;
  v1::CancelJobResponse response;
  request.set_name(name);
  const grpc::Status status = stub_->CancelJob(&context, request, &response);
  if (job != nullptr) *job = response.job();
  return status;
}

grpc::Status JobTestServer::Delete(const std::string& name, int64_t* freed,
                                   const std::string& caller) {
  grpc::ClientContext context;
  Prepare(&context, caller);
  v1::DeleteJobRequest request;
  v1::DeleteJobResponse response;
  request.set_name(name);
  const grpc::Status status = stub_->DeleteJob(&context, request, &response);
  if (freed != nullptr) *freed = response.freed_bytes();
  return status;
}

grpc::Status JobTestServer::List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response,
                                 const std::string& caller) {
  grpc::ClientContext context;
  Prepare(&context, caller);
  return stub_->ListJobs(&context, request, response);
}

JobTestServer::Read JobTestServer::ReadResult(const v1::ReadResultRequest& request,
                                              const std::string& caller) {
  Read out;
  grpc::ClientContext context;
  Prepare(&context, caller);
  const auto stream = stub_->ReadResult(&context, request);
  v1::ReadResultResponse frame;
  while (stream->Read(&frame)) {
    if (frame.has_result()) {
      if (out.result.has_value()) out.order_error = "two results";
      out.result = frame.result();
      continue;
    }
    const v1::TensorChunk& chunk = frame.chunk();
    const int64_t expected = request.offset_bytes() + static_cast<int64_t>(out.bytes.size());
    if (!out.result.has_value() || chunk.offset_bytes() != expected || chunk.data().empty() ||
        chunk.set() != 0 || chunk.operand() != 0) {
      out.order_error = "a chunk at another place";
    }
    out.bytes += chunk.data();
    ++out.chunks;
    if (chunk.has_crc32c() && chunk.crc32c() == Crc32c(chunk.data())) ++out.checked_chunks;
  }
  out.status = stream->Finish();
  return out;
}

JobTestServer::Read JobTestServer::ReadAll(const std::string& name) {
  v1::ReadResultRequest request;
  request.set_name(name);
  return ReadResult(request);
}

v1::Job JobTestServer::WaitFor(const std::string& name, v1::JobState state) {
  grpc::ClientContext context;
  Prepare(&context, "");
  v1::WatchJobRequest request;
  request.set_name(name);
  const auto stream = stub_->WatchJob(&context, request);
  v1::WatchJobResponse frame;
  v1::Job job;
  while (stream->Read(&frame)) {
    if (!frame.has_job()) continue;
    job = frame.job();
    if (job.state() != state) continue;
    context.TryCancel();
    break;
  }
  stream->Finish();
  return job;
}

v1::Job JobTestServer::Wait(const std::string& name) {
  return WaitFor(name, v1::JOB_STATE_UNSPECIFIED);
}

void JobGate::CloseAfter(testing::FakeProvider* fake, size_t count) {
  fake->slice_value = [this, count](int64_t block, int64_t slice, int64_t element) {
    std::unique_lock lock(mutex_);
    seen_.emplace(block, slice);
    if (seen_.size() > count) {
      reached_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    return testing::FakeProvider::SliceValue(block, slice, element);
  };
}

void JobGate::Open() {
  std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void JobGate::WaitUntilReached() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

v1::SubmitContractionHeader ProductJob(const std::string& request_id, bool with_values) {
  v1::SubmitContractionHeader header;
  *header.mutable_contraction() = MatrixProduct(with_values);
  header.mutable_contraction()->set_request_id(request_id);
  return header;
}

v1::SubmitContractionHeader SlicedJob(const std::string& request_id, const std::string& provider,
                                      int64_t j, int64_t k) {
  v1::SubmitContractionHeader header;
  v1::ContractHeader* contraction = header.mutable_contraction();
  contraction->set_request_id(request_id);
  std::vector<std::complex<double>> left, right;
  for (int64_t n = 0; n < 3 * j; ++n) left.emplace_back(std::sin(static_cast<double>(n)));
  for (int64_t n = 0; n < j * k; ++n) right.emplace_back(std::cos(static_cast<double>(n)) * 1e-3);
  AddOperand(contraction, {"i", "j"}, v1::DATA_TYPE_FLOAT64, {3, j}, left);
  AddOperand(contraction, {"j", "k"}, v1::DATA_TYPE_FLOAT64, {j, k}, right);
  SetOutput(contraction, {"i", "k"});
  v1::ExplicitPlan* plan = contraction->mutable_path();
  plan->mutable_path()->set_format(v1::PATH_FORMAT_SSA);
  v1::PathStep* step = plan->mutable_path()->add_steps();
  step->add_operands(0);
  step->add_operands(1);
  plan->add_sliced_indices("j");
  contraction->mutable_execution()->add_providers(provider);
  contraction->mutable_execution()->set_threads(1);
  return header;
}

}  // namespace tenon::server
