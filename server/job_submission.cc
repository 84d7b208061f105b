#include "server/job_submission.h"

#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/utf8.h"
#include "server/bidi_stream.h"
#include "server/frames.h"
#include "server/plan_finder.h"
#include "server/status.h"
#include "server/tensor_codec.h"

namespace tenon::server {
namespace {

constexpr char kMethodName[] = "tenon.v1.JobService/SubmitContraction";
// Of the table in job.proto, where they differ from those of Contract.
constexpr char kStart[] = "START", kUpload[] = "UPLOAD";

}  // namespace

JobSubmission::JobSubmission(grpc::CallbackServerContext* context, ServerState* state,
                             std::string owner, grpc::ByteBuffer* response)
    : context_(context),
      state_(state),
      owner_(std::move(owner)),
      response_(response),
      record_(&state->metrics, Method::kJob, kMethodName),
      cancel_(CallDeadline(*context)),
      wait_(state, cancel_.deadline()) {
  state_->watchdog.Add(this);
  Read();
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
  const auto held = Hold();
  {
    std::lock_guard lock(mutex_);
    waits_since_.reset();
  }
  if (ended()) return;
  const absl::Status status = AnswerWithinMemory([&] { return ok ? OnFrame() : OnHalfClose(); });
  if (!status.ok()) End(status);
}

absl::Status JobSubmission::OnFrame() {
  static constexpr int kChunkFields[] = {v1::SubmitContractionRequest::kChunkFieldNumber};
  ++frames_;
  if (const auto split = SplitChunk(&received_, kChunkFields)) return OnChunk(split->chunk);
  TENON_RETURN_IF_ERROR(ParseFrame(frames_, &received_, &request_));
  if (request_.has_chunk()) return OnChunk(request_.chunk());
  if (!header_seen_) return OnHeader();
  TENON_RETURN_IF_ERROR(upload_->OnFrame(request_));
  Read();
  return absl::OkStatus();
}

absl::Status JobSubmission::OnHeader() {
  if (!request_.has_header()) return IllegalFrame(kStart, request_);
  header_seen_ = true;
  const v1::ContractHeader& header = request_.header().contraction();
  record_.set_request_id(header.request_id());
  request_id_ = std::string(
      Utf8Prefix(header.request_id(), static_cast<size_t>(state_->limits.max_name_bytes)));
  TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
  wait_.SetPriority(PriorityOf(header.execution().priority()));
  // Another value is refused later.
  if (header.execution().max_queue_seconds() > 0) {
    wait_.SetLimit(header.execution().max_queue_seconds(),
                   "header.contraction.execution.max_queue_seconds");
  }
  TENON_RETURN_IF_ERROR(wait_.ForSlot(&state_->executor, Step(&JobSubmission::Plan), Refused()));
  LeaveIfOver();
  return absl::OkStatus();
}

absl::Status JobSubmission::OnChunk(const ChunkView& chunk) {
  if (!header_seen_) return FrameOrderError(kStart, "chunk");
  TENON_RETURN_IF_ERROR(upload_->OnChunk(chunk));
  Read();
  return absl::OkStatus();
}

absl::Status JobSubmission::OnHalfClose() {
  if (context_->IsCancelled()) {
    cancel_.Cancel(ReasonOfCancel(cancel_));
    return cancel_.Check();
  }
  if (!header_seen_) {
    return Error(Reason::kTruncatedUpload, "the stream ended in state START, before a header")
        .Field("header")
        .Meta("state", kStart);
  }
  const absl::Status status = upload_->OnHalfClose();
  if (!status.ok()) return AtContraction(PrefixFields(status, planned_->call.expression_field));
  // The last read is over: nothing else touches the upload while it is stored. That is not watched:
  // a disk need not stop when it is told to.
  state_->storing.Continue([self = Hold()] { self->Do(&JobSubmission::Store); }, Priority::kBulk);
  return absl::OkStatus();
}

void JobSubmission::Do(Stage stage) {
  const absl::Status status = AnswerWithinMemory([&]() -> absl::Status {
    TENON_RETURN_IF_ERROR(cancel_.Check());
    return (this->*stage)();
  });
  if (!status.ok()) End(status);
}

std::function<void()> JobSubmission::Step(Stage stage) {
  return [self = Hold(), stage] {
    const WorkWatch::Entry entry(&self->state_->work_watch, &self->cancel_, kMethodName, "planning",
                                 self->request_id_);
    self->Do(stage);
  };
}

std::function<void(const absl::Status&)> JobSubmission::Refused() {
  return [self = Hold()](const absl::Status& why) { self->End(why); };
}

void JobSubmission::LeaveIfOver() {
  if (cancel_.cancelled() && wait_.Leave()) End(cancel_.Check());
}

// Answers with the job that exists already, if there is one.
absl::Status JobSubmission::Plan() {
  v1::SubmitContractionHeader header = std::move(*request_.mutable_header());
  header_sha256_ = HeaderSha256(header);
  const std::string& request_id = header.contraction().request_id();
  if (!request_id.empty()) {
    TENON_ASSIGN_OR_RETURN(const auto found,
                           state_->jobs->FindSubmitted(owner_, request_id, header_sha256_));
    if (found.has_value()) return Answer(*found);
  }
  TENON_ASSIGN_OR_RETURN(planner_, JobPlanner::Create(std::move(header), state_, owner_, &cancel_));
  TENON_ASSIGN_OR_RETURN(const bool found, planner_->FindAtOnce());
  if (found) return Admit();
  QueueSearch(state_, &wait_, &cancel_, planner_->search_need(), Step(&JobSubmission::Search),
              Refused());
  return absl::OkStatus();
}

absl::Status JobSubmission::Search() {
  TENON_RETURN_IF_ERROR(planner_->Search());
  state_->executor.Continue(Step(&JobSubmission::Admit), wait_.priority());
  return absl::OkStatus();
}

// Takes the job's place in the store, and the memory for the operands that will come.
absl::Status JobSubmission::Admit() {
  TENON_ASSIGN_OR_RETURN(planned_, planner_->Bind());
  planner_.reset();
  planned_->job.owner = owner_;
  planned_->job.header_sha256 = header_sha256_;
  TENON_ASSIGN_OR_RETURN(place_, state_->jobs->Reserve(owner_, planned_->store_bytes));
  int64_t bytes = 0;
  for (const OperandSource& operand : planned_->call.operands) {
    if (operand.stored == nullptr) bytes += CheckedByteCount(operand.spec).value_or(0);
  }
  const auto granted = [self = Hold()](Reservation memory) {
    self->memory_ = std::move(memory);
    self->state_->executor.Continue(self->Step(&JobSubmission::BeginUpload),
                                    self->wait_.priority());
  };
  TENON_ASSIGN_OR_RETURN(std::optional<Reservation> memory,
                         wait_.ForMemory(&state_->budget, bytes, granted, Refused()));
  if (memory.has_value()) {
    memory_ = *std::move(memory);
    return BeginUpload();
  }
  LeaveIfOver();
  return absl::OkStatus();
}

absl::Status JobSubmission::BeginUpload() {
  wait_.Admitted();
  TENON_ASSIGN_OR_RETURN(
      upload_, ContractUpload::Create(&planned_->call.operands, state_->limits, {}, kUpload));
  Read();
  return absl::OkStatus();
}

absl::Status JobSubmission::Store() {
  record_.set_request_id(planned_->job.request_id);
  const std::vector<Tensor> fixed = upload_->TakeFixed();
  state_->metrics.AddPayloadBytes(Method::kJob, Direction::kReceived, upload_->received_bytes());
  for (size_t k = 0; k < fixed.size(); ++k) {
    const auto& stored = planned_->call.operands[k].stored;
    planned_->job.operands.push_back(
        AsText((stored == nullptr ? fixed[k] : stored->tensor).buffer));
  }
  TENON_ASSIGN_OR_RETURN(const v1::SubmitContractionResponse response,
                         state_->jobs->Add(planned_->job, std::move(place_)));
  return Answer(response);
}

absl::Status JobSubmission::Answer(const v1::SubmitContractionResponse& response) {
  TENON_RETURN_IF_ERROR(SerializeFrame(response, response_));
  End(absl::OkStatus());
  return absl::OkStatus();
}

std::shared_ptr<JobSubmission> JobSubmission::Hold() {
  {
    std::lock_guard lock(mutex_);
    ++holders_;
  }
  return {this, [](JobSubmission* call) { call->Release(); }};
}

void JobSubmission::Release() {
  {
    std::lock_guard lock(mutex_);
    if (--holders_ > 0 || !outcome_.has_value() || finished_) return;
    finished_ = true;
  }
  record_.End(*outcome_);
  Finish(ToGrpcStatus(*outcome_));
}

// By a holder.
void JobSubmission::End(const absl::Status& outcome) {
  std::lock_guard lock(mutex_);
  if (!outcome_.has_value()) outcome_ = outcome;
}

bool JobSubmission::ended() {
  std::lock_guard lock(mutex_);
  return outcome_.has_value();
}

void JobSubmission::OnCancel() {
  const auto held = Hold();
  cancel_.Cancel(ReasonOfCancel(cancel_));
  if (wait_.Leave()) End(wait_.OutcomeInQueue(cancel_.Check()));
}

void JobSubmission::OnDone() {
  state_->watchdog.Remove(this);
  delete this;
}

void JobSubmission::EndCall(const absl::Status& why) {
  const auto held = Hold();
  cancel_.Cancel(GetErrorDetails(why).reason);
  End(why);
  wait_.Leave();
}

}  // namespace tenon::server
