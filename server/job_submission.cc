#include "server/job_submission.h"

#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "server/bidi_stream.h"
#include "server/frames.h"
#include "server/status.h"
#include "server/tensor_codec.h"

namespace tenon::server {
namespace {

constexpr char kMethodName[] = "tenon.v1.JobService/SubmitContraction";
// Of the table in job.proto, where they differ from those of Contract.
constexpr char kStart[] = "START", kUpload[] = "UPLOAD";

absl::Status OutOfMemory() {
  return Error(Reason::kOverloaded, "there is no memory for the upload")
      .Meta("retry_delay_seconds", 1);
}

}  // namespace

JobSubmission::JobSubmission(grpc::CallbackServerContext* context, ServerState* state,
                             std::string owner, grpc::ByteBuffer* response)
    : context_(context),
      state_(state),
      owner_(std::move(owner)),
      response_(response),
      record_(&state->metrics, Method::kJob, kMethodName),
      cancel_(CallDeadline(*context)) {
  state_->watchdog.Add(this);
  Read();
  Release();
}

void JobSubmission::Read() {
  {
    std::lock_guard lock(mutex_);
    waits_since_ = std::chrono::steady_clock::now();
  }
  StartRead(&received_);
}

ClientWaits JobSubmission::WaitsForClient() {
  std::lock_guard lock(mutex_);
  if (finished_) return {};
  return {.upload = waits_since_, .next = {}};
}

void JobSubmission::OnReadDone(bool ok) {
  {
    std::lock_guard lock(mutex_);
    waits_since_.reset();
    if (finished_) return;
    ++holders_;
  }
  absl::StatusOr<Next> next = Next::kRead;
  try {
    next = ok ? OnFrame() : OnHalfClose();
  } catch (const std::bad_alloc&) {
    next = OutOfMemory();
  }
  if (!next.ok()) return Release(next.status());
  if (*next == Next::kTask) return;
  Read();
  Release();
}

absl::StatusOr<JobSubmission::Next> JobSubmission::OnFrame() {
  static constexpr int kChunkFields[] = {v1::SubmitContractionRequest::kChunkFieldNumber};
  ++frames_;
  if (const auto split = SplitChunk(&received_, kChunkFields)) return OnChunk(split->chunk);
  TENON_RETURN_IF_ERROR(ParseFrame(frames_, &received_, &request_));
  if (request_.has_chunk()) return OnChunk(request_.chunk());
  if (header_seen_) {
    TENON_RETURN_IF_ERROR(upload_->OnFrame(request_));
    return Next::kRead;
  }
  if (!request_.has_header()) return IllegalFrame(kStart, request_);
  header_seen_ = true;
  record_.set_request_id(request_.header().contraction().request_id());
  TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
  TENON_RETURN_IF_ERROR(state_->executor.Submit([this] { Plan(); }));
  return Next::kTask;
}

absl::StatusOr<JobSubmission::Next> JobSubmission::OnChunk(const ChunkView& chunk) {
  if (!header_seen_) return FrameOrderError(kStart, "chunk");
  TENON_RETURN_IF_ERROR(upload_->OnChunk(chunk));
  return Next::kRead;
}

absl::StatusOr<JobSubmission::Next> JobSubmission::OnHalfClose() {
  if (context_->IsCancelled()) {
    return Error(Reason::kClientCancelled, "the submission was cancelled");
  }
  if (!header_seen_) {
    return Error(Reason::kTruncatedUpload, "the stream ended in state START, before a header")
        .Field("header")
        .Meta("state", kStart);
  }
  const absl::Status status = upload_->OnHalfClose();
  if (!status.ok()) return AtContraction(PrefixFields(status, planned_->call.expression_field));
  // The last read is over: nothing else touches the upload while it is stored.
  state_->listing.Continue([this] { Release(AnswerWithinMemory([this] { return Store(); })); });
  return Next::kTask;
}

void JobSubmission::Plan() {
  absl::StatusOr<bool> upload = false;
  try {
    upload = PrepareUpload();
  } catch (const std::bad_alloc&) {
    upload = OutOfMemory();
  }
  if (!upload.ok()) return Release(upload.status());
  if (!*upload) return Release(absl::OkStatus());
  Read();
  Release();
}

// False when the job exists already and is the answer.
absl::StatusOr<bool> JobSubmission::PrepareUpload() {
  TENON_RETURN_IF_ERROR(cancel_.Check());
  v1::SubmitContractionHeader header = std::move(*request_.mutable_header());
  const std::string sha256 = HeaderSha256(header);
  const std::string& request_id = header.contraction().request_id();
  if (!request_id.empty()) {
    TENON_ASSIGN_OR_RETURN(const auto found,
                           state_->jobs->FindSubmitted(owner_, request_id, sha256));
    if (found.has_value()) {
      TENON_RETURN_IF_ERROR(Respond(*found));
      return false;
    }
  }
  TENON_ASSIGN_OR_RETURN(planned_, PlanJob(std::move(header), state_, owner_, &cancel_));
  planned_->job.owner = owner_;
  planned_->job.header_sha256 = sha256;
  TENON_ASSIGN_OR_RETURN(place_, state_->jobs->Reserve(owner_, planned_->store_bytes));
  int64_t bytes = 0;
  for (const OperandSource& operand : planned_->call.operands) {
    if (operand.stored == nullptr) bytes += CheckedByteCount(operand.spec).value_or(0);
  }
  TENON_ASSIGN_OR_RETURN(memory_, state_->budget.Reserve(bytes));
  TENON_ASSIGN_OR_RETURN(
      upload_, ContractUpload::Create(&planned_->call.operands, state_->limits, {}, kUpload));
  return true;
}

absl::Status JobSubmission::Store() {
  TENON_RETURN_IF_ERROR(cancel_.Check());
  const std::vector<Tensor> fixed = upload_->TakeFixed();
  state_->metrics.AddPayloadBytes(Method::kJob, Direction::kReceived, upload_->received_bytes());
  for (size_t k = 0; k < fixed.size(); ++k) {
    const auto& stored = planned_->call.operands[k].stored;
    planned_->job.operands.push_back(
        AsText((stored == nullptr ? fixed[k] : stored->tensor).buffer));
  }
  TENON_ASSIGN_OR_RETURN(const v1::SubmitContractionResponse response,
                         state_->jobs->Add(planned_->job, std::move(place_)));
  return Respond(response);
}

absl::Status JobSubmission::Respond(const v1::SubmitContractionResponse& response) {
  return SerializeFrame(response, response_);
}

void JobSubmission::Release(std::optional<absl::Status> outcome) {
  {
    std::lock_guard lock(mutex_);
    if (!outcome_.has_value()) outcome_ = std::move(outcome);
    if (--holders_ > 0 || !outcome_.has_value() || finished_) return;
    finished_ = true;
  }
  record_.End(*outcome_);
  Finish(ToGrpcStatus(*outcome_));
}

void JobSubmission::OnCancel() { cancel_.Cancel(); }

void JobSubmission::OnDone() {
  state_->watchdog.Remove(this);
  delete this;
}

void JobSubmission::EndCall(const absl::Status& why) {
  cancel_.Cancel(GetErrorDetails(why).reason);
  {
    std::lock_guard lock(mutex_);
    ++holders_;
  }
  Release(why);
}

}  // namespace tenon::server
