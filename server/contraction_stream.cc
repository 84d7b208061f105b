#include "server/contraction_stream.h"

#include <algorithm>
#include <utility>

#include "backends/core/crc32c.h"
#include "backends/core/error.h"
#include "server/contraction_report.h"
#include "server/logging.h"
#include "server/tensor_codec.h"

namespace tenon::server {
namespace {

constexpr char kMethodName[] = "tenon.v1.ContractionService/Contract";
// Leaves room for the frame around it.
constexpr size_t kMaxSingleBytes = size_t{4} << 20;

// What a stack of sets may wait for more of them.
constexpr std::chrono::milliseconds kLongestWait(20);

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// All of a result but its bytes and report.
void Describe(const ContractWork::Result& result, v1::ContractResult* out) {
  out->set_set(result.set);
  WriteTensorSpec(result.tensor->spec, out->mutable_spec());
  if (result.log10_scale.has_value()) out->set_log10_scale(*result.log10_scale);
}

}  // namespace

ContractStream::ContractStream(grpc::CallbackServerContext* context, ServerState* state)
    : BidiStream(context, &state->watchdog), state_(state) {
  state_->metrics.CallBegan(Method::kContract);
}

void ContractStream::OnFrame(const v1::ContractRequest& frame) {
  absl::Status status;
  if (!header_seen_) {
    header_seen_ = frame.has_header();
    status = header_seen_ ? OnHeader(received().mutable_header())
                          : IllegalFrame(UploadState::kStart, frame);
  } else if (header_complete_) {
    status = IllegalFrame(UploadState::kComplete, frame);
  } else {
    status = upload_->OnFrame(frame);
    if (status.ok()) Advance();
  }
  if (!status.ok()) Fail(status);
}

void ContractStream::OnHalfClose() {
  if (!header_seen_) {
    return Fail(Error(Reason::kTruncatedUpload, "the stream ended in state START, before a header")
                    .Field("header")
                    .Meta("state", UploadStateName(UploadState::kStart)));
  }
  if (header_complete_) return;
  const absl::Status status = upload_->OnHalfClose();
  if (!status.ok()) return Fail(PrefixFields(status, work_->call().expression_field));
  {
    std::lock_guard lock(mutex_);
    input_closed_ = true;
  }
  set_ready_.notify_one();
  Wake();
}

absl::Status ContractStream::OnHeader(v1::ContractHeader* header) {
  TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
  TENON_ASSIGN_OR_RETURN(ContractCall call, DecodeHeader(header, *state_, HeaderUse::kContract));
  header_complete_ = call.complete();
  work_ = std::make_unique<ContractWork>(std::move(call), state_, cancel());
  TENON_RETURN_IF_ERROR(state_->executor.Submit([self = self()] {
    self->Guarded([&] {
      const absl::Status status = self->Plan();
      if (!status.ok()) self->Fail(status);
    });
  }));
  // Nothing may follow; if something does, the call fails.
  if (header_complete_) ReadNext();
  return absl::OkStatus();
}

// Hands over a complete set and reads on, unless there is no buffer for the next set.
void ContractStream::Advance() {
  if (upload_->set_ready()) {
    if (!std::exchange(fixed_taken_, true)) work_->SetFixed(upload_->TakeFixed());
    std::lock_guard lock(mutex_);
    receive_seconds_ = Seconds(Clock::now() - accepted_time_);
    ready_.push_back(upload_->TakeSet());
    set_ready_.notify_one();
  }
  received_bytes_ = upload_->received_bytes();
  bool read = false;
  switch (upload_->state()) {
    case UploadState::kReading:
      read = true;
      break;
    case UploadState::kBetweenSets:
      read = ProvideInputs();
      break;
    case UploadState::kComplete: {
      std::lock_guard lock(mutex_);
      input_closed_ = true;
      read = !header_complete_;
      break;
    }
    default:
      break;
  }
  if (read) ReadNext();
  Wake();
}

// False when the reader has to wait: ReturnInputs then reads on.
bool ContractStream::ProvideInputs() {
  std::unique_ptr<SetInputs> inputs;
  {
    std::lock_guard lock(mutex_);
    if (!free_inputs_.empty()) {
      inputs = std::move(free_inputs_.back());
      free_inputs_.pop_back();
    } else if (inputs_made_ == kInputBuffers * SetsTogether()) {
      reader_waits_ = true;
      return false;
    }
  }
  if (inputs == nullptr) {
    auto made = upload_->NewInputs();
    if (!made.ok()) {
      Fail(made.status());
      return false;
    }
    inputs = *std::move(made);
    ++inputs_made_;
  }
  upload_->Provide(std::move(inputs));
  return true;
}

absl::Status ContractStream::Plan() {
  start_time_ = Clock::now();
  TENON_RETURN_IF_ERROR(Admit());
  if (IsSmall()) return AnswerSmall();
  TENON_ASSIGN_OR_RETURN(upload_, work_->CreateUpload());
  SendAccepted();
  accepted_time_ = Clock::now();
  Advance();
  return absl::OkStatus();
}

absl::Status ContractStream::Admit() {
  TENON_RETURN_IF_ERROR(cancel()->Check());
  const std::optional<double>& limit = work_->call().max_queue_seconds;
  const double waited = Seconds(start_time_ - header_time_);
  if (limit.has_value() && waited > *limit) {
    return Error(Reason::kDeadline,
                 StrCat("the request waited ", waited, " seconds in the queue; at most ", *limit,
                        " were allowed"))
        .Field("header.execution.max_queue_seconds")
        .Meta("limit_seconds", *limit)
        .Meta("actual_seconds", waited);
  }
  return work_->Plan();
}

// Whether one frame may answer it all.
bool ContractStream::IsSmall() const {
  const auto bytes = CheckedByteCount(ResultSpec(work_->call(), work_->job()));
  return header_complete_ && !work_->call().progress_interval_seconds.has_value() && bytes.ok() &&
         *bytes < state_->limits.max_inline_bytes;
}

absl::Status ContractStream::AnswerSmall() {
  accepted_time_ = start_time_;
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<ContractUpload> upload, work_->CreateUpload());
  work_->SetFixed(upload->TakeFixed());
  received_bytes_ = upload->received_bytes();
  const std::unique_ptr<SetInputs> inputs = upload->TakeSet();
  auto results = work_->RunSets({&inputs, 1}, nullptr);
  RecordWork();
  TENON_RETURN_IF_ERROR(results.status());
  const ContractWork::Result& result = results->front();
  auto frame = std::make_shared<v1::ContractResponse>();
  v1::ContractSingle* single = frame->mutable_single();
  WriteAccepted(work_->call(), work_->job(), work_->plan_summary(), work_->staging_bytes(),
                state_->limits, SecondsToDeadline(), single->mutable_accepted());
  FillInline(result, single->add_results());
  sent_bytes_ += result.tensor->buffer.size_bytes();
  WriteReport(single->mutable_report());
  if (frame->ByteSizeLong() <= kMaxSingleBytes) {
    FinishWith([frame](v1::ContractResponse* out) {
      *out = std::move(*frame);
      return true;
    });
    return absl::OkStatus();
  }
  v1::ContractResponse accepted, one_result;
  *accepted.mutable_accepted() = std::move(*single->mutable_accepted());
  *one_result.mutable_result() = std::move(*single->mutable_results(0));
  SendFrame(std::move(accepted));
  SendFrame(std::move(one_result));
  FinishWith([frame](v1::ContractResponse* out) {
    *out->mutable_report() = std::move(*frame->mutable_single()->mutable_report());
    return true;
  });
  return absl::OkStatus();
}

void ContractStream::SendAccepted() {
  v1::ContractResponse frame;
  WriteAccepted(work_->call(), work_->job(), work_->plan_summary(), work_->staging_bytes(),
                state_->limits, SecondsToDeadline(), frame.mutable_accepted());
  SendFrame(std::move(frame));
}

bool ContractStream::ShouldRun() const {
  if (running_ || ended_) return false;
  return ready_.empty() ? input_closed_ : unread_results_ <= (kResultBuffers - 1) * SetsTogether();
}

void ContractStream::Wake() {
  {
    std::lock_guard lock(mutex_);
    if (!ShouldRun()) return;
    running_ = true;
  }
  state_->executor.Continue([self = self()] { self->Guarded([&] { self->RunSets(); }); });
}

void ContractStream::RunSets() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      running_ = false;
      if (!ShouldRun()) return;
      running_ = true;
      if (ready_.empty()) {
        ended_ = true;
        break;
      }
    }
    const absl::Status status = RunStack();
    if (!status.ok()) {
      {
        std::lock_guard lock(mutex_);
        ended_ = true;
      }
      RecordWork();
      return Fail(status);
    }
  }
  RecordWork();
  FinishWith([self = self()](v1::ContractResponse* frame) {
    self->WriteReport(frame->mutable_report());
    return true;
  });
}

// The sets that wait, as many as one run takes. While sets keep coming it may pay to wait a little:
// a run costs the same however few there are. A client that sends no more loses little by it.
std::vector<std::unique_ptr<SetInputs>> ContractStream::TakeStack() {
  constexpr int kWaitShare = 8;  // of the time of a run
  const auto wanted = static_cast<size_t>(work_->job().sets_to_fill());
  std::vector<std::unique_ptr<SetInputs>> stack;
  std::unique_lock lock(mutex_);
  set_ready_.wait_for(lock, std::min<Clock::duration>(last_run_ / kWaitShare, kLongestWait),
                      [&] { return ready_.size() >= wanted || input_closed_; });
  for (; stack.size() < wanted && !ready_.empty(); ready_.pop_front()) {
    stack.push_back(std::move(ready_.front()));
  }
  unread_results_ += static_cast<int>(stack.size());
  return stack;
}

absl::Status ContractStream::RunStack() {
  TENON_RETURN_IF_ERROR(work_->Start());  // more sets arrive meanwhile
  std::vector<std::unique_ptr<SetInputs>> stack = TakeStack();
  schedule::ContractionJob::ProgressFn progress;
  if (work_->call().progress_interval_seconds.has_value()) {
    progress = [this, set = stack.front()->set](const schedule::ContractionJob::Progress& now) {
      SendProgress(set, now);
    };
    progress(work_->job().NothingDone());
  }
  const Clock::time_point start = Clock::now();
  TENON_ASSIGN_OR_RETURN(auto results, work_->RunSets(stack, progress));
  last_run_ = Clock::now() - start;
  for (auto& inputs : stack) ReturnInputs(std::move(inputs));
  for (ContractWork::Result& result : results) SendResult(std::move(result));
  return absl::OkStatus();
}

// The set is done with its buffers: the next one may use them.
void ContractStream::ReturnInputs(std::unique_ptr<SetInputs> inputs) {
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(reader_waits_, false)) {
      free_inputs_.push_back(std::move(inputs));
      return;
    }
  }
  upload_->Provide(std::move(inputs));
  ReadNext();
}

void ContractStream::SendResult(ContractWork::Result result) {
  {
    std::lock_guard lock(mutex_);
    if (!sending_since_.has_value()) sending_since_ = Clock::now();
  }
  std::shared_ptr<Tensor> tensor = result.tensor;
  if (tensor->buffer.size_bytes() < state_->limits.max_inline_bytes) {
    SendInlineResult(std::move(result));
  } else {
    SendChunkedResult(std::move(result));
  }
  Send([self = self(), tensor = std::move(tensor)](v1::ContractResponse*) {
    self->ResultSent(tensor);
    return false;
  });
}

void ContractStream::FillInline(const ContractWork::Result& result, v1::ContractResult* out) const {
  const Tensor& tensor = *result.tensor;
  const auto bytes = static_cast<size_t>(tensor.buffer.size_bytes());
  Describe(result, out);
  out->set_inline_data(tensor.buffer.data(), bytes);
  *out->mutable_report() = result.report;
  if (work_->call().checksums) {
    out->mutable_report()->set_result_crc32c(ExtendCrc32c(0, tensor.buffer.data(), bytes));
  }
}

void ContractStream::SendInlineResult(ContractWork::Result result) {
  v1::ContractResponse frame;
  FillInline(result, frame.mutable_result());
  sent_bytes_ += result.tensor->buffer.size_bytes();
  SendFrame(std::move(frame));
}

void ContractStream::SendChunkedResult(ContractWork::Result result) {
  v1::ContractResponse frame;
  Describe(result, frame.mutable_result());
  SendFrame(std::move(frame));
  ChunkOptions options;
  options.set = result.set;
  options.chunk_bytes = work_->call().result_chunk_bytes;
  options.checksums = work_->call().checksums;
  auto sender = std::make_shared<TensorSender>(result.tensor, options);
  Send([this, sender](v1::ContractResponse* out) {
    if (!sender->Next(out->mutable_chunk())) return false;
    sent_bytes_ += static_cast<int64_t>(out->chunk().data().size());
    return true;
  });
  Send([sender, report = std::move(result.report), checksums = options.checksums,
        sent = false](v1::ContractResponse* out) mutable {
    if (std::exchange(sent, true)) return false;
    *out->mutable_set_report() = report;
    if (checksums) out->mutable_set_report()->set_result_crc32c(sender->crc32c());
    return true;
  });
}

// Everything of a result has been written.
void ContractStream::ResultSent(std::shared_ptr<Tensor> tensor) {
  work_->Recycle(std::move(tensor));
  {
    std::lock_guard lock(mutex_);
    send_seconds_ += Seconds(Clock::now() - *sending_since_);
    // Two results are never sent at once; the next one's time begins now, if it waits already.
    sending_since_.reset();
    if (--unread_results_ > 0) sending_since_ = Clock::now();
  }
  Wake();
}

void ContractStream::SendProgress(int64_t set, const schedule::ContractionJob::Progress& progress) {
  const Clock::time_point now = Clock::now();
  if (Seconds(now - last_progress_) < *work_->call().progress_interval_seconds) return;
  if (progress_pending_.exchange(true)) return;  // the client has not read the last one
  last_progress_ = now;
  const DType dtype = work_->job().dtype();
  v1::ContractResponse frame;
  v1::ContractProgress* out = frame.mutable_progress();
  out->set_phase(v1::CONTRACT_PHASE_EXECUTING);
  out->set_set(set);
  out->set_slices_done(progress.slices_done);
  out->set_slices_total(progress.slices_total);
  const double runs = static_cast<double>(work_->sets_done()) / SetsTogether();
  const double before = runs * progress.flops_total;
  out->set_flops_done(MultiplyAdds(before + progress.flops_done, dtype));
  out->set_flops_total(MultiplyAdds(before + progress.flops_total, dtype));
  out->set_elapsed_seconds(Seconds(now - header_time_));
  if (progress.left_seconds.has_value()) out->set_left_seconds(*progress.left_seconds);
  if (work_->call().providers.size() == 1) {
    v1::ProviderProgress* provider = out->add_providers();
    provider->set_provider(std::string(work_->call().providers.front()->name()));
    provider->set_slices_done(progress.slices_done);
    provider->set_flops_done(out->flops_done());
  }
  Send([self = self(), frame = std::make_shared<v1::ContractResponse>(std::move(frame)),
        sent = false](v1::ContractResponse* target) mutable {
    if (std::exchange(sent, true)) return false;
    self->progress_pending_ = false;
    *target = std::move(*frame);
    return true;
  });
}

std::optional<double> ContractStream::SecondsToDeadline() const {
  const auto deadline = cancel()->deadline();
  if (!deadline.has_value()) return std::nullopt;
  return Seconds(*deadline - Clock::now());
}

// Counts what ran, whether or not the client gets it.
void ContractStream::RecordWork() {
  const schedule::ContractionReport work = work_->job().Report();
  Metrics& metrics = state_->metrics;
  metrics.AddSlices(work.slices_done);
  metrics.AddFlops(work.flops_done);
  metrics.Observe(Method::kContract, Phase::kQueue, Seconds(start_time_ - header_time_));
  metrics.Observe(Method::kContract, Phase::kPrepare, work_->prepare_seconds());
  metrics.Observe(Method::kContract, Phase::kSetup, work.setup_seconds);
  if (work.execution_seconds >= 0) {
    metrics.Observe(Method::kContract, Phase::kExecute, work.execution_seconds);
  }
}

void ContractStream::WriteReport(v1::ContractionReport* report) {
  CallFigures figures;
  figures.queue_seconds = Seconds(start_time_ - header_time_);
  figures.input_prepare_seconds = work_->prepare_seconds();
  {
    std::lock_guard lock(mutex_);
    figures.input_receive_seconds = receive_seconds_;
    figures.result_send_seconds = send_seconds_;
  }
  figures.request_seconds = Seconds(Clock::now() - header_time_);
  figures.received_bytes = received_bytes_;
  figures.sent_bytes = sent_bytes_;
  figures.planned_peak_bytes = work_->planned_peak_bytes();
  figures.staging_bytes = work_->staging_bytes();
  figures.sets = work_->sets_done();
  WriteContractionReport(work_->call(), work_->job(), work_->plan_summary(), figures, report);
  state_->metrics.Observe(Method::kContract, Phase::kReceive, figures.input_receive_seconds);
  state_->metrics.Observe(Method::kContract, Phase::kSend, figures.result_send_seconds);
}

void ContractStream::OnEnd() {
  const double seconds = Seconds(Clock::now() - header_time_);
  const absl::Status status = outcome();
  state_->metrics.CallEnded(Method::kContract, status, seconds);
  state_->metrics.AddPayloadBytes(Direction::kReceived, received_bytes_);
  state_->metrics.AddPayloadBytes(Direction::kSent, sent_bytes_);
  LogRequest(kMethodName, work_ == nullptr ? "" : work_->call().request_id, status, seconds,
             {{"received_bytes", received_bytes_.load()}, {"sent_bytes", sent_bytes_.load()}});
}

}  // namespace tenon::server
