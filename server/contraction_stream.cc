#include "server/contraction_stream.h"

#include <algorithm>
#include <utility>

#include "backends/core/crc32c.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "server/contraction_report.h"
#include "server/logging.h"
#include "server/tensor_codec.h"
#include "server/work_metrics.h"

namespace tenon::server {
namespace {

constexpr char kMethodName[] = "tenon.v1.ContractionService/Contract";
// Of an answer in one frame.
constexpr size_t kMaxSingleBytes = size_t{4} << 20;

// Work below this is done sooner than another thread has woken up for it.
constexpr double kShorterThanWaking = 50e-6;

// What a stack of sets may wait for more of them.
constexpr std::chrono::milliseconds kLongestWait(20);
// What the watch calls the work on inputs.
constexpr char kExecuting[] = "executing";

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// All of a result but its bytes and report.
void Describe(const ContractWork::Result& result, v1::ContractResult* out) {
  out->set_set(result.set);
  WriteTensorSpec(result.spec, out->mutable_spec());
  if (result.log10_scale.has_value()) out->set_log10_scale(*result.log10_scale);
}

}  // namespace

ContractStream::ContractStream(grpc::CallbackServerContext* context, ServerState* state)
    : BidiStream(context, &state->watchdog), state_(state), wait_(state, cancel()->deadline()) {
  state_->metrics.CallBegan(Method::kContract);
}

std::span<const int> ContractStream::chunk_fields() const {
  static constexpr int kFields[] = {v1::ContractRequest::kChunkFieldNumber};
  return kFields;
}

void ContractStream::OnFrame(const v1::ContractRequest& frame) {
  if (frame.has_chunk()) return OnChunk(v1::ContractRequest::kChunkFieldNumber, frame.chunk());
  absl::Status status;
  if (!header_seen_) {
    header_seen_ = frame.has_header();
    status = header_seen_ ? OnHeader(received().mutable_header())
                          : IllegalFrame(UploadStateName(UploadState::kStart), frame);
  } else if (header_complete_) {
    status = IllegalFrame(UploadStateName(UploadState::kComplete), frame);
  } else {
    status = upload_->OnFrame(frame);
    if (status.ok()) Advance();
  }
  if (!status.ok()) Fail(status);
}

void ContractStream::OnChunk(int /*field*/, const ChunkView& chunk) {
  absl::Status status;
  if (!header_seen_ || header_complete_) {
    const UploadState state = header_seen_ ? UploadState::kComplete : UploadState::kStart;
    status = FrameOrderError(UploadStateName(state), "chunk");
  } else {
    status = upload_->OnChunk(chunk);
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
  request_id_ = std::string(
      Utf8Prefix(header->request_id(), static_cast<size_t>(state_->limits.max_name_bytes)));
  TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
  TENON_ASSIGN_OR_RETURN(ContractCall call,
                         DecodeHeader(header, *state_, caller(), HeaderUse::kContract));
  request_id_ = call.request_id;
  header_complete_ = call.complete();
  wait_.SetPriority(call.priority);
  wait_.SetLimit(call.max_queue_seconds, "header.execution.max_queue_seconds");
  work_ = std::make_unique<ContractWork>(std::move(call), state_, cancel());
  if (const auto interval = work_->call().progress_interval_seconds) {
    std::lock_guard lock(mutex_);
    ticker_ = std::make_unique<Ticker>(*interval, [this] { TellWaiting(); });
  }
  if (header_complete_ && MayRunAtOnce(work_->SecondsIfPlanned())) {
    Step (&ContractStream::FindPlan)();
  } else {
    TENON_RETURN_IF_ERROR(
        wait_.ForSlot(&state_->executor, Step(&ContractStream::FindPlan), Refused()));
  }
  // Nothing may follow; if something does, the call fails.
  if (header_complete_) ReadNext(Awaits::kNothing);
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
  Awaits awaits = Awaits::kNothing;
  switch (upload_->state()) {
    case UploadState::kReading:
      read = true;
      awaits = Awaits::kUpload;
      break;
    case UploadState::kBetweenSets:
      read = ProvideInputs();
      awaits = Awaits::kNext;
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
  // What is done at once goes before the next read: its answer need not wait for that to start.
  const bool at_once = RunsAtOnce();
  if (read && !at_once) ReadNext(awaits);
  Wake();
  if (read && at_once) ReadNext(awaits);
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

// Whether work of so many seconds may run on the thread that is here, which may be one of gRPC's:
// it is very short, needs no device that must be waited for, and nobody computes or waits whom it
// could hold up. To hand a small call over to another thread costs more than the call.
bool ContractStream::MayRunAtOnce(std::optional<double> seconds) const {
  const auto& providers = work_->call().providers;
  return seconds.has_value() && *seconds < kShorterThanWaking && providers.size() == 1 &&
         providers.front()->info().memory_bytes == 0 && state_->executor.queued() == 0 &&
         state_->executor.running() == 0;
}

void ContractStream::Enter(std::string_view phase, WatchEntry* entry) {
  entry->emplace(&state_->work_watch, cancel(), MethodName(Method::kContract), phase, request_id_);
}

std::function<void()> ContractStream::Step(Stage stage) {
  return [self = self(), stage] {
    self->Work("planning", [&](WatchEntry* entry) {
      self->stage_entry_ = entry;
      absl::Status status = self->cancel()->Check();
      if (status.ok()) status = ((*self).*stage)();
      if (!status.ok()) self->Fail(status);
    });
  };
}

std::function<void(const absl::Status&)> ContractStream::Refused() {
  return [self = self()](const absl::Status& why) { self->Fail(why); };
}

absl::Status ContractStream::FindPlan() {
  TENON_ASSIGN_OR_RETURN(const bool found, work_->FindPlanAtOnce());
  if (found) return Reserve();
  QueueSearch(state_, &wait_, cancel(), work_->search_need(), Step(&ContractStream::Search),
              Refused());
  return absl::OkStatus();
}

absl::Status ContractStream::Search() {
  TENON_RETURN_IF_ERROR(work_->SearchPlan());
  state_->executor.Continue(Step(&ContractStream::Reserve), wait_.priority());
  return absl::OkStatus();
}

absl::Status ContractStream::Reserve() {
  TENON_RETURN_IF_ERROR(work_->Prepare());
  const auto granted = [self = self()](Reservation reservation) {
    self->work_->Admit(std::move(reservation));
    self->state_->executor.Continue(self->Step(&ContractStream::Admitted), self->wait_.priority());
  };
  TENON_ASSIGN_OR_RETURN(
      std::optional<Reservation> reservation,
      wait_.ForMemory(&state_->budget, work_->planned_peak_bytes(), granted, Refused()));
  if (reservation.has_value()) {
    work_->Admit(*std::move(reservation));
    return Admitted();
  }
  // The end of the call takes it out of the line, unless it came before it was there.
  if (cancel()->cancelled()) wait_.Leave();
  return absl::OkStatus();
}

absl::Status ContractStream::Admitted() {
  StopTelling();
  wait_.Admitted();
  if (IsSmall()) return AnswerSmall();
  TENON_ASSIGN_OR_RETURN(upload_, work_->CreateUpload());
  SendAccepted();
  accepted_time_ = Clock::now();
  Advance();
  return absl::OkStatus();
}

void ContractStream::TellWaiting() {
  if (progress_pending_.exchange(true)) return;  // the client has not read the last one
  const bool waits = wait_.waits();
  v1::ContractResponse frame;
  v1::ContractProgress* out = frame.mutable_progress();
  out->set_phase(waits ? v1::CONTRACT_PHASE_QUEUED : v1::CONTRACT_PHASE_PLANNING);
  out->set_queue_position(static_cast<int32_t>(wait_.position()));
  out->set_search_trials(work_->search_trials());
  out->set_elapsed_seconds(Seconds(Clock::now() - header_time_));
  SendProgressFrame(std::move(frame));
}

void ContractStream::StopTelling() {
  std::unique_ptr<Ticker> ticker;  // it waits for a tick under way, which may need the lock
  std::lock_guard lock(mutex_);
  ticker = std::move(ticker_);
}

// Whether one frame may answer it all.
bool ContractStream::IsSmall() const {
  const auto bytes = CheckedByteCount(ResultSpec(work_->call(), work_->job()));
  return header_complete_ && !work_->call().progress_interval_seconds.has_value() && bytes.ok() &&
         *bytes < state_->limits.max_inline_bytes;
}

absl::Status ContractStream::AnswerSmall() {
  Enter(kExecuting, stage_entry_);
  accepted_time_ = Clock::now();
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<ContractUpload> upload, work_->CreateUpload());
  work_->SetFixed(upload->TakeFixed());
  received_bytes_ = upload->received_bytes();
  const std::unique_ptr<SetInputs> inputs = upload->TakeSet();
  ran_ = true;
  auto results = work_->RunSets({&inputs, 1}, nullptr);
  RecordWork();
  TENON_RETURN_IF_ERROR(results.status());
  const ContractWork::Result& result = results->front();
  FrameArena<v1::ContractResponse> frame;
  v1::ContractSingle* single = frame->mutable_single();
  WriteAccepted(work_->call(), work_->job(), work_->plan_summary(), work_->staging_bytes(),
                state_->limits, SecondsToDeadline(), single->mutable_accepted());
  FillWhole(result, single->add_results());
  WriteReport(single->mutable_report());
  if (FinishWithFrame(*frame, kMaxSingleBytes)) return absl::OkStatus();
  v1::ContractResponse accepted, one_result, report;
  *accepted.mutable_accepted() = single->accepted();
  *one_result.mutable_result() = single->results(0);
  *report.mutable_report() = single->report();
  SendFrame(accepted);
  SendFrame(one_result);
  FinishWithFrame(report, SIZE_MAX);
  return absl::OkStatus();
}

void ContractStream::SendAccepted() {
  FrameArena<v1::ContractResponse> frame;
  WriteAccepted(work_->call(), work_->job(), work_->plan_summary(), work_->staging_bytes(),
                state_->limits, SecondsToDeadline(), frame->mutable_accepted());
  SendFrame(*frame);
}

bool ContractStream::Busy() {
  std::lock_guard lock(mutex_);
  return running_ || !ready_.empty();
}

bool ContractStream::ShouldRun() const {
  if (running_ || ended_) return false;
  return ready_.empty() ? input_closed_ : unread_results_ <= (kResultBuffers - 1) * SetsTogether();
}

bool ContractStream::RunsAtOnce() const {
  const auto seconds = work_->job().predicted_seconds();
  return seconds.has_value() && MayRunAtOnce(*seconds * SetsTogether());
}

void ContractStream::Wake() {
  {
    std::lock_guard lock(mutex_);
    if (!ShouldRun()) return;
    running_ = true;
  }
  if (RunsAtOnce()) {
    return Work(kExecuting, [&](WatchEntry*) { RunSets(/*may_wait=*/false); });
  }
  state_->executor.Continue(
      [self = self()] {
        self->Work(kExecuting, [&](WatchEntry*) { self->RunSets(/*may_wait=*/true); });
      },
      wait_.priority());
}

void ContractStream::RunSets(bool may_wait) {
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
    const absl::Status status = RunStack(may_wait);
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
std::vector<std::unique_ptr<SetInputs>> ContractStream::TakeStack(bool may_wait) {
  constexpr int kWaitShare = 8;  // of the time of a run
  const auto wanted = static_cast<size_t>(work_->job().sets_to_fill());
  std::vector<std::unique_ptr<SetInputs>> stack;
  std::unique_lock lock(mutex_);
  if (may_wait) {
    set_ready_.wait_for(lock, std::min<Clock::duration>(last_run_ / kWaitShare, kLongestWait),
                        [&] { return ready_.size() >= wanted || input_closed_; });
  }
  for (; stack.size() < wanted && !ready_.empty(); ready_.pop_front()) {
    stack.push_back(std::move(ready_.front()));
  }
  unread_results_ += static_cast<int>(stack.size());
  return stack;
}

absl::Status ContractStream::RunStack(bool may_wait) {
  ran_ = true;
  TENON_RETURN_IF_ERROR(work_->Start());  // more sets arrive meanwhile
  std::vector<std::unique_ptr<SetInputs>> stack = TakeStack(may_wait);
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
  ReadNext(Awaits::kNext);
}

void ContractStream::SendResult(ContractWork::Result result) {
  {
    std::lock_guard lock(mutex_);
    if (!sending_since_.has_value()) sending_since_ = Clock::now();
  }
  std::shared_ptr<Tensor> tensor = result.tensor;
  if (result.shared.has_value() || result.size_bytes() < state_->limits.max_inline_bytes) {
    SendWholeResult(std::move(result));
  } else {
    SendChunkedResult(std::move(result));
  }
  Send([self = self(), tensor = std::move(tensor)](v1::ContractResponse*) {
    self->ResultSent(tensor);
    return false;
  });
}

// A result that needs no chunks: it is small, or in shared memory.
void ContractStream::FillWhole(const ContractWork::Result& result, v1::ContractResult* out) {
  const auto bytes = static_cast<size_t>(result.size_bytes());
  Describe(result, out);
  if (result.shared.has_value()) {
    out->mutable_shared()->set_offset_bytes(result.shared->offset_bytes);
    out->mutable_shared()->set_size_bytes(result.shared->size_bytes);
  } else {
    out->set_inline_data(result.data(), bytes);
    sent_bytes_ += result.size_bytes();
  }
  *out->mutable_report() = result.report;
  if (work_->call().checksums) {
    out->mutable_report()->set_result_crc32c(ExtendCrc32c(0, result.data(), bytes));
  }
}

void ContractStream::SendWholeResult(ContractWork::Result result) {
  FrameArena<v1::ContractResponse> frame;
  FillWhole(result, frame->mutable_result());
  SendFrame(*frame);
}

void ContractStream::SendChunkedResult(ContractWork::Result result) {
  FrameArena<v1::ContractResponse> frame;
  Describe(result, frame->mutable_result());
  SendFrame(*frame);
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
  SendProgressFrame(std::move(frame));
}

// One that is not overtaken by others: progress_pending_ was set for it.
void ContractStream::SendProgressFrame(v1::ContractResponse frame) {
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
  RecordContraction(work, work_->job().dtype(), &metrics);
  metrics.AddItems(Method::kContract, work_->sets_done());
  metrics.Observe(Method::kContract, Phase::kQueue, wait_.seconds());
  metrics.Observe(Method::kContract, Phase::kPrepare, work_->prepare_seconds());
  metrics.Observe(Method::kContract, Phase::kSetup, work.setup_seconds);
  metrics.Observe(Method::kContract, Phase::kDispatch, work.dispatch_seconds);
  if (work.execution_seconds >= 0) {
    metrics.Observe(Method::kContract, Phase::kExecute, work.execution_seconds);
  }
}

void ContractStream::WriteReport(v1::ContractionReport* report) {
  CallFigures figures;
  figures.queue_seconds = wait_.seconds();
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
  figures.timeline = &work_->timeline();
  WriteContractionReport(work_->call(), work_->job(), work_->plan_summary(), figures, report);
  state_->metrics.Observe(Method::kContract, Phase::kReceive, figures.input_receive_seconds);
  state_->metrics.Observe(Method::kContract, Phase::kSend, figures.result_send_seconds);
}

void ContractStream::OnEnd() {
  StopTelling();
  const double seconds = Seconds(Clock::now() - header_time_);
  const absl::Status status = wait_.LeaveAfter(outcome());
  state_->metrics.AddPayloadBytes(Method::kContract, Direction::kReceived, received_bytes_);
  state_->metrics.AddPayloadBytes(Method::kContract, Direction::kSent, sent_bytes_);
  LogFields more = CallerFields(caller());
  more.emplace_back("received_bytes", received_bytes_.load());
  more.emplace_back("sent_bytes", sent_bytes_.load());
  more.emplace_back("ran", ran_.load());
  LogRequest(kMethodName, request_id_, status, seconds, std::move(more));
  state_->metrics.CallEnded(Method::kContract, status, seconds);
}

}  // namespace tenon::server
