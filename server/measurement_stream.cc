// The reader's side of a measurement: the state table, checks, buffers.

#include "server/measurement_stream.h"

#include <algorithm>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "server/logging.h"
#include "server/measurement_codec.h"

namespace tenon::server {
namespace {

std::string_view FrameName(v1::MeasureRequest::FrameCase frame) {
  switch (frame) {
    case v1::MeasureRequest::kHeader:
      return "header";
    case v1::MeasureRequest::kDatasetChunk:
      return "dataset_chunk";
    case v1::MeasureRequest::kLabels:
      return "labels";
    case v1::MeasureRequest::kProjection:
      return "projection";
    case v1::MeasureRequest::kProjectionChunk:
      return "projection_chunk";
    case v1::MeasureRequest::kStop:
      return "stop";
    case v1::MeasureRequest::FRAME_NOT_SET:
      break;
  }
  return "";
}

}  // namespace

std::string_view MeasurementStream::StateName(State state) {
  static constexpr std::string_view kNames[] = {"START",   "DATASET",    "LABELS",
                                                "IDLE",    "PROJECTION", "SKIPPING",
                                                "SERVING", "STOPPED",    "CLOSED"};
  return kNames[static_cast<int>(state)];
}

std::string MeasurementStream::AwaitedFrame(State state) {
  switch (state) {
    case State::kStart:
      return "header";
    case State::kDataset:
      return "dataset_chunk";
    case State::kLabels:
      return "labels";
    default:
      return "projection_chunk";
  }
}

MeasurementStream::MeasurementStream(grpc::CallbackServerContext* context, ServerState* state)
    : BidiStream(context, &state->watchdog),
      server_(state),
      tally_(&state->metrics),
      wait_(state, cancel()->deadline()) {
  server_->metrics.CallBegan(Method::kMeasure);
}

MeasurementStream::~MeasurementStream() = default;

std::shared_ptr<MeasurementStream> MeasurementStream::Self() {
  return std::static_pointer_cast<MeasurementStream>(this->shared_from_this());
}

void MeasurementStream::OnFrame(const v1::MeasureRequest& frame) {
  if (dropping_) return;
  const bool is_header = frame.has_header();  // whoever admits the call reads on
  const absl::Status status = Dispatch(frame);
  if (!status.ok()) return Fail(status);
  if (!is_header) ContinueReading();
}

std::span<const int> MeasurementStream::chunk_fields() const {
  static constexpr int kFields[] = {v1::MeasureRequest::kDatasetChunkFieldNumber,
                                    v1::MeasureRequest::kProjectionChunkFieldNumber};
  return kFields;
}

void MeasurementStream::OnChunk(int field, const ChunkView& chunk) {
  if (dropping_) return;
  const absl::Status status = field == v1::MeasureRequest::kDatasetChunkFieldNumber
                                  ? OnDatasetChunk(chunk)
                                  : OnProjectionChunk(chunk);
  if (!status.ok()) return Fail(status);
  ContinueReading();
}

absl::Status MeasurementStream::Dispatch(const v1::MeasureRequest& frame) {
  const auto legal_in = [this](std::initializer_list<State> states) {
    return std::find(states.begin(), states.end(), state_) != states.end();
  };
  switch (frame.frame_case()) {
    case v1::MeasureRequest::kHeader:
      if (state_ == State::kStart) return OnHeader(received().mutable_header());
      break;
    case v1::MeasureRequest::kDatasetChunk:
      return OnDatasetChunk(frame.dataset_chunk());
    case v1::MeasureRequest::kLabels:
      if (state_ == State::kLabels) return OnLabels(frame.labels());
      break;
    case v1::MeasureRequest::kProjection:
      if (legal_in({State::kIdle, State::kSkipping})) return OnProjection(frame.projection());
      break;
    case v1::MeasureRequest::kProjectionChunk:
      return OnProjectionChunk(frame.projection_chunk());
    case v1::MeasureRequest::kStop:
      if (legal_in({State::kStart, State::kStopped, State::kClosed})) break;
      OnStop();
      return absl::OkStatus();
    case v1::MeasureRequest::FRAME_NOT_SET:
      return Error(Reason::kMissingField, "the frame is empty").Field("frame");
  }
  return FrameOrderError(StateName(state_), FrameName(frame.frame_case()));
}

void MeasurementStream::ContinueReading() {
  const bool needs_room = state_ == State::kIdle || state_ == State::kSkipping;
  const bool in_upload =
      state_ == State::kDataset || state_ == State::kLabels || state_ == State::kProjection;
  const Awaits awaits = in_upload ? Awaits::kUpload : needs_room ? Awaits::kNext : Awaits::kNothing;
  if (!needs_room || window_.AskRoom()) ReadNext(awaits);
}

absl::Status MeasurementStream::OnHeader(v1::MeasureHeader* header) {
  {
    std::lock_guard lock(mutex_);  // the call may end while it is admitted elsewhere
    request_id_ = std::string(
        Utf8Prefix(header->request_id(), static_cast<size_t>(server_->limits.max_name_bytes)));
  }
  const v1::MeasureExecution& execution = header->execution();
  wait_.SetPriority(PriorityOf(execution.priority()));
  // Another value is refused later.
  if (execution.max_queue_seconds() > 0) {
    wait_.SetLimit(execution.max_queue_seconds(), "header.execution.max_queue_seconds");
  }
  if (execution.progress_interval_seconds() > 0) {
    std::lock_guard lock(mutex_);
    ticker_ =
        std::make_unique<Ticker>(execution.progress_interval_seconds(), [this] { TellWaiting(); });
  }
  if (!header->has_server_files()) return Plan(std::move(*header));
  return wait_.ForSlot(&server_->listing,
                       Step([this, taken = std::make_shared<v1::MeasureHeader>(
                                       std::move(*header))] { return Plan(std::move(*taken)); }),
                       Refused());
}

absl::Status MeasurementStream::Plan(v1::MeasureHeader header) {
  TENON_ASSIGN_OR_RETURN(call_, PlanMeasure(std::move(header), server_, caller(), cancel()));
  {
    std::lock_guard lock(mutex_);
    request_id_ = call_->request_id;
  }
  TENON_RETURN_IF_ERROR(CheckDeadline());
  window_.SetWidth(call_->session->in_flight());
  return ReserveScratch();
}

absl::Status MeasurementStream::CheckDeadline() {
  const auto deadline = cancel()->deadline();
  const auto estimate = server_->measurement_seconds.UntilFirstScore(call_->work);
  if (!deadline.has_value() || !estimate.has_value()) return absl::OkStatus();
  const std::chrono::duration<double> left = *deadline - std::chrono::steady_clock::now();
  absl::Status feasible = CheckFeasible(*estimate, left.count());
  if (!feasible.ok()) server_->measurement_seconds.Refused(call_->work);
  return feasible;
}

// Before the memory: whoever waits for that holds no memory that others wait for.
absl::Status MeasurementStream::ReserveScratch() {
  static constexpr char kWhat[] = "temporary files: ";
  const int64_t bytes = call_->session->planned_temporary_bytes();
  if (bytes == 0) return ReserveMemory();
  auto reserved = wait_.ForMemory(
      &server_->scratch->budget(), bytes,
      [self = Self()](Reservation reservation) {
        self->call_->scratch_reservation = std::move(reservation);
        self->server_->executor.Continue(self->Step([self] { return self->ReserveMemory(); }),
                                         self->wait_.priority());
      },
      [refused = Refused()](const absl::Status& why) { refused(PrefixMessage(why, kWhat)); });
  if (!reserved.ok()) return PrefixMessage(reserved.status(), kWhat);
  if (reserved->has_value()) {
    call_->scratch_reservation = *std::move(*reserved);
    return ReserveMemory();
  }
  if (cancel()->cancelled()) wait_.Leave();
  return absl::OkStatus();
}

absl::Status MeasurementStream::ReserveMemory() {
  TENON_ASSIGN_OR_RETURN(std::optional<Reservation> reserved,
                         wait_.ForMemory(
                             &server_->budget, call_->bytes_to_reserve(),
                             [self = Self()](Reservation reservation) {
                               auto held = std::make_shared<Reservation>(std::move(reservation));
                               self->server_->executor.Continue(self->Step([self, held] {
                                 return self->Admit(std::move(*held));
                               }),
                                                                self->wait_.priority());
                             },
                             Refused()));
  if (reserved.has_value()) return Admit(*std::move(reserved));
  // The end of the call takes it out of the line, unless it came before it was there.
  if (cancel()->cancelled()) wait_.Leave();
  return absl::OkStatus();
}

absl::Status MeasurementStream::Admit(Reservation memory) {
  TENON_RETURN_IF_ERROR(call_->Admit(std::move(memory)));
  tally_.Accepted(*call_);
  TENON_RETURN_IF_ERROR(
      wait_.ForSlot(&server_->executor, OnExecutor(kAdmission, [this] { Start(); }), Refused()));
  if (cancel()->cancelled()) wait_.Leave();  // as above
  if (call_->may_be_single()) single_ = std::make_unique<v1::MeasureSingle>();
  v1::MeasureResponse response;
  v1::MeasureAccepted* accepted =
      single_ != nullptr ? single_->mutable_accepted() : response.mutable_accepted();
  WriteAccepted(*call_, accepted);
  accepted->set_queue_position(static_cast<int32_t>(wait_.position()));
  if (const auto deadline = cancel()->deadline()) {
    const std::chrono::duration<double> left = *deadline - std::chrono::steady_clock::now();
    accepted->mutable_granted()->set_deadline_seconds(std::max(0.0, left.count()));
  }
  single_bytes_ = static_cast<int64_t>(accepted->ByteSizeLong());
  TENON_RETURN_IF_ERROR(CheckAnswerSize(single_bytes_, server_->limits));
  if (single_ == nullptr) SendFrame(response);
  if (call_->stored == nullptr && !call_->dataset.complete()) {
    state_ = State::kDataset;
  } else {
    if (call_->stored == nullptr && !call_->header.dataset_input().has_shared()) {
      tally_.BytesReceived(call_->dataset.size_bytes());
    }
    TENON_RETURN_IF_ERROR(EndOfDataset());
  }
  ContinueReading();
  return absl::OkStatus();
}

absl::Status MeasurementStream::OnDatasetChunk(const ChunkView& chunk) {
  if (state_ != State::kDataset) return FrameOrderError(StateName(state_), "dataset_chunk");
  TENON_RETURN_IF_ERROR(CheckTurn(chunk, 0, "dataset_chunk"));
  const absl::Status accepted = call_->dataset.Accept(chunk, server_->limits.max_chunk_bytes);
  if (!accepted.ok()) return PrefixFields(accepted, "dataset_chunk.");
  tally_.BytesReceived(chunk.size_bytes());
  if (call_->dataset.complete()) return EndOfDataset();
  SendProgress();
  return absl::OkStatus();
}

absl::Status MeasurementStream::EndOfDataset() {
  if (call_->labels_follow) {
    state_ = State::kLabels;
    return absl::OkStatus();
  }
  EndOfInput();
  return absl::OkStatus();
}

absl::Status MeasurementStream::OnLabels(const v1::Labels& part) {
  if (part.values_case() == v1::Labels::kStrings) {
    // Numbers are in the plan already; texts are as long as they are.
    const auto bytes = static_cast<int64_t>(part.ByteSizeLong()) +
                       part.strings().values_size() * static_cast<int64_t>(sizeof(std::string));
    TENON_ASSIGN_OR_RETURN(Reservation reservation, server_->budget.Reserve(bytes));
    label_reservations_.push_back(std::move(reservation));
  }
  TENON_RETURN_IF_ERROR(AppendLabels(part, call_->rows(), "labels", &call_->labels));
  if (LabelCount(call_->labels) == call_->rows()) EndOfInput();
  return absl::OkStatus();
}

void MeasurementStream::EndOfInput() {
  tally_.InputComplete();
  state_ = call_->serves_itself() ? State::kServing : State::kIdle;
  {
    std::lock_guard lock(mutex_);
    input_complete_ = true;
  }
  BindIfReady();
}

MeasurementStream::ItemPointer MeasurementStream::NewItem(int64_t index, const std::string& name) {
  auto item = std::make_shared<ProjectionItem>();
  item->index = index;
  item->name = std::string(Utf8Prefix(name, static_cast<size_t>(server_->limits.max_name_bytes)));
  window_.Add(item);
  return item;
}

absl::Status MeasurementStream::ReserveExtra(const TensorSpec& spec, ProjectionItem* item) {
  TENON_ASSIGN_OR_RETURN(const int64_t wire, CheckedByteCount(spec));
  // What it is widened to must have a size at all.
  TENON_RETURN_IF_ERROR(CheckedByteCount({call_->options.compute_dtype, spec.shape}).status());
  const int64_t budget = call_->granted.memory_budget_bytes();
  // Each is checked by itself first: their sum may not fit in 63 bits.
  const int64_t buffer = std::max<int64_t>(0, wire - call_->projection_buffer_bytes);
  const int64_t left = budget - call_->memory.total_bytes();
  const int64_t work = buffer > left ? 0 : call_->BytesBeyondPlan(spec.shape[1]);
  if (buffer == 0 && work == 0) return absl::OkStatus();
  if (buffer > left || work > left - buffer) {
    return Error(Reason::kExceedsMemoryBudget,
                 StrCat("the projection has ", spec.shape[1], " columns; the plan leaves ", left,
                        " bytes of the budget of ", budget))
        .Meta("budget_bytes", budget)
        .Meta("columns", spec.shape[1]);
  }
  TENON_ASSIGN_OR_RETURN(item->extra, server_->budget.Reserve(buffer + work));
  return absl::OkStatus();
}

absl::Status MeasurementStream::CheckRows(const TensorSpec& spec, const std::string& field) const {
  if (spec.shape[0] == call_->rows()) return absl::OkStatus();
  return Error(Reason::kShapeMismatch, StrCat("the projection (ld) has ", spec.shape[0],
                                              " rows, the data set (hd) ", call_->rows()))
      .Field(StrCat(field, ".spec.shape[0]"))
      .Meta("expected_rows", call_->rows())
      .Meta("actual_rows", spec.shape[0]);
}

absl::Status MeasurementStream::Open(const v1::Projection& projection, const std::string& field,
                                     ProjectionItem* item) {
  const auto name_bytes = static_cast<int64_t>(projection.name().size());
  if (name_bytes > server_->limits.max_name_bytes) {
    return Error(Reason::kBadParameter, StrCat("the name has ", name_bytes, " bytes; at most ",
                                               server_->limits.max_name_bytes, " are taken"))
        .Field(StrCat(field, ".name"))
        .Meta("limit_bytes", server_->limits.max_name_bytes)
        .Meta("actual_bytes", name_bytes);
  }
  TENON_ASSIGN_OR_RETURN(
      TensorSpec spec, ReadMatrixSpec(projection.spec(), StrCat(field, ".spec"), server_->limits));
  TENON_RETURN_IF_ERROR(CheckRows(spec, field));
  TENON_RETURN_IF_ERROR(AtField(ReserveExtra(spec, item), StrCat(field, ".spec.shape")));
  const std::string data_field = StrCat(field, ".inline_data");
  if (projection.has_inline_data()) {
    TENON_RETURN_IF_ERROR(CheckInlineSize(static_cast<int64_t>(projection.inline_data().size()),
                                          data_field, server_->limits));
  }
  item->columns = spec.shape[1];
  auto data = TensorReceiver::Create(std::move(spec));
  if (!data.ok()) return AtField(data.status(), StrCat(field, ".spec.shape"));
  item->data = *std::move(data);
  item->bytes = item->data.size_bytes();
  if (projection.has_shared()) {
    const std::string shared_field = StrCat(field, ".shared");
    if (projection.has_inline_data()) {
      return Error(Reason::kBadParameter, "the bytes come twice: one source is shared memory")
          .Field(shared_field);
    }
    TENON_RETURN_IF_ERROR(CheckHasPool(call_->pool.get()));
    const auto span = call_->pool->TensorRegion(projection.shared(), item->data.size_bytes());
    if (!span.ok()) return PrefixFields(span.status(), StrCat(shared_field, "."));
    return item->data.AcceptShared(span->data, span->size_bytes);
  }
  if (!projection.has_inline_data()) return absl::OkStatus();
  return AtField(item->data.AcceptAll(projection.inline_data()), data_field);
}

absl::Status MeasurementStream::OnProjection(const v1::Projection& projection) {
  if (projection.index() != next_index_) {
    return Error(Reason::kFrameOrder, StrCat("the projection has the index ", projection.index(),
                                             "; expected ", next_index_))
        .Field("projection.index")
        .Meta("state", StateName(state_))
        .Meta("frame", "projection")
        .Meta("expected_index", next_index_)
        .Meta("actual_index", projection.index());
  }
  ++next_index_;
  current_ = NewItem(projection.index(), projection.name());
  const absl::Status opened = Open(projection, "projection", current_.get());
  const bool whole = projection.has_inline_data() || projection.has_shared();
  if (whole) {
    if (opened.ok()) tally_.Consumed();
    tally_.BytesReceived(static_cast<int64_t>(projection.inline_data().size()));
  }
  if (!opened.ok()) {
    state_ = whole ? State::kIdle : State::kSkipping;
    Refuse(std::exchange(current_, nullptr), opened);
  } else if (whole) {
    state_ = State::kIdle;
    Ready(std::exchange(current_, nullptr));
  } else {
    state_ = State::kProjection;
  }
  return absl::OkStatus();
}

absl::Status MeasurementStream::OnProjectionChunk(const ChunkView& chunk) {
  if (state_ == State::kSkipping) return absl::OkStatus();
  if (state_ != State::kProjection) return FrameOrderError(StateName(state_), "projection_chunk");
  TENON_RETURN_IF_ERROR(CheckTurn(chunk, current_->index, "projection_chunk"));
  const absl::Status accepted = current_->data.Accept(chunk, server_->limits.max_chunk_bytes);
  if (!accepted.ok()) {
    state_ = State::kSkipping;
    Refuse(std::exchange(current_, nullptr), PrefixFields(accepted, "projection_chunk."));
    return absl::OkStatus();
  }
  tally_.BytesReceived(chunk.size_bytes());
  if (current_->data.complete()) {
    tally_.Consumed();
    state_ = State::kIdle;
    Ready(std::exchange(current_, nullptr));
  }
  return absl::OkStatus();
}

void MeasurementStream::Ready(const ItemPointer& item) {
  item->complete = std::chrono::steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    if (!bound_) {
      waiting_.push_back(item);
      return;
    }
  }
  ScoreLater(item);
}

void MeasurementStream::OnStop() {
  if (current_ != nullptr) window_.Withdraw(std::exchange(current_, nullptr));
  state_ = State::kStopped;
  SourceEnded(false);
}

void MeasurementStream::OnHalfClose() {
  switch (state_) {
    case State::kStart:
    case State::kDataset:
    case State::kLabels:
    case State::kProjection:
      return Fail(
          Error(Reason::kTruncatedUpload, StrCat("the stream ended in state ", StateName(state_),
                                                 ", before everything announced had come"))
              .Field(AwaitedFrame(state_))
              .Meta("state", StateName(state_)));
    case State::kIdle:
    case State::kSkipping:
      state_ = State::kClosed;
      return SourceEnded(true);
    case State::kServing:
    case State::kClosed:
      return;
    case State::kStopped:
      state_ = State::kClosed;
      return;
  }
}

void MeasurementStream::OnEnd() {
  StopTelling();
  const absl::Status status = wait_.LeaveAfter(outcome());
  const double seconds = tally_.elapsed_seconds();
  tally_.Ended();
  bool ran = false;
  {
    std::lock_guard lock(mutex_);
    ran = binding_;
  }
  LogFields more = CallerFields(caller());
  more.emplace_back("ran", ran);
  LogRequest(MethodName(Method::kMeasure), RequestId(), status, seconds, std::move(more));
  server_->metrics.CallEnded(Method::kMeasure, status, seconds);
}

}  // namespace tenon::server
