// The workers' and the delivery's side of a measurement.

#include <utility>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "server/measurement_codec.h"
#include "server/measurement_stream.h"
#include "server/server_files.h"
#include "server/work_metrics.h"

namespace tenon::server {
namespace {

// Room for the summary beside the answers of a single frame, as a rule.
constexpr int64_t kSummaryBytes = int64_t{256} << 10;

// Whether an error ends the stream, instead of standing in the place of one projection.
bool EndsStream(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::function<void()> MeasurementStream::Step(std::function<absl::Status()> work) {
  return OnExecutor(kAdmission, [this, work = std::move(work)] {
    const absl::Status status = work();
    if (!status.ok()) Fail(status);
  });
}

std::function<void(const absl::Status&)> MeasurementStream::Refused() {
  return [self = Self()](const absl::Status& why) { self->Fail(why); };
}

void MeasurementStream::Start() {
  StopTelling();
  wait_.Admitted();
  tally_.Started(wait_.seconds());
  {
    std::lock_guard lock(mutex_);
    started_ = true;
  }
  BindIfReady();
}

void MeasurementStream::BindIfReady() {
  {
    std::lock_guard lock(mutex_);
    if (!started_ || !input_complete_ || binding_) return;
    binding_ = true;
  }
  server_->executor.Continue(OnExecutor(kOriginal, [this] { Bind(); }), wait_.priority());
}

absl::Status MeasurementStream::BindDataset() {
  const Tensor& dataset =
      call_->stored != nullptr ? call_->stored->tensor : call_->dataset.Private();
  const auto start = std::chrono::steady_clock::now();
  TENON_RETURN_IF_ERROR(call_->UseLabels());
  TENON_RETURN_IF_ERROR(CheckValues(dataset, false, "dataset", cancel()));
  tally_.Prepared(std::chrono::steady_clock::now() - start);
  return call_->session->BindOriginal(dataset, cancel());
}

absl::Status MeasurementStream::KeepDataset() {
  ContentStore::PutOptions options;
  options.reservation = std::move(call_->dataset_reservation);
  options.original_side = call_->original_side;
  options.cancel = cancel();
  bool created = false;
  TENON_ASSIGN_OR_RETURN(auto kept,
                         server_->store->Put(ContentStore::Kind::kDataset, call_->owner,
                                             call_->dataset.Take(), std::move(options), &created));
  std::lock_guard lock(mutex_);
  kept_ = std::move(kept);
  return absl::OkStatus();
}

// What is kept with the data set has a lease there; our reservation of it goes.
void MeasurementStream::GiveUpKept(const measurement::RunInfo& info) {
  int64_t bytes = 0;
  for (const EngineResource& resource : info.resources) {
    if (resource.leased) bytes += resource.bytes;
  }
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  call_->reservation.Shrink(bytes);
}

void MeasurementStream::Bind() {
  tally_.BindBegan();
  absl::Status status = BindDataset();
  if (status.ok() && call_->keep_dataset) status = KeepDataset();
  RecordFault(call_->provider->name(), status, &server_->metrics);
  if (!status.ok()) return Fail(AsWireError(status, call_->header));
  tally_.BindEnded(*call_);
  server_->measurement_seconds.ObserveOriginal(call_->work,
                                               call_->session->original_info().total_seconds);
  GiveUpKept(call_->session->original_info());
  // The session has a copy of its own.
  call_->dataset.Take();
  call_->dataset_reservation.Release();
  std::vector<ItemPointer> waiting;
  {
    std::lock_guard lock(mutex_);
    bound_ = true;
    waiting.swap(waiting_);
  }
  for (const ItemPointer& item : waiting) ScoreLater(item);
  SendProgress();
  if (call_->serves_itself()) Feed();
  FinishIfDone();
}

void MeasurementStream::ScoreLater(const ItemPointer& item) {
  {
    std::lock_guard lock(mutex_);
    ready_.push_back(item);
  }
  server_->executor.Continue(OnExecutor(kScoring, [this] { Score(TakeBatch()); }),
                             wait_.priority());
}

// The oldest one that is ready, and those of its width that the provider gains from having with it.
// Empty when others took the one that this call was made for along.
std::vector<MeasurementStream::ItemPointer> MeasurementStream::TakeBatch() {
  const int limit = call_->files.empty() ? call_->session->batch_size() : 1;
  std::vector<ItemPointer> batch;
  std::lock_guard lock(mutex_);
  for (auto item = ready_.begin(); item != ready_.end();) {
    if (static_cast<int>(batch.size()) == std::max(1, limit)) break;
    if (batch.empty() || (*item)->columns == batch.front()->columns) {
      batch.push_back(*item);
      item = ready_.erase(item);
    } else {
      ++item;
    }
  }
  return batch;
}

absl::StatusOr<Tensor> MeasurementStream::TakeProjection(ProjectionItem* item) {
  item->begun = std::chrono::steady_clock::now();
  Tensor projection;
  if (call_->files.empty()) {
    projection = item->data.Take();
  } else {
    const absl::Status loaded = AtField(LoadFile(item, &projection), "projection");
    if (!loaded.ok()) return loaded;
  }
  const auto start = std::chrono::steady_clock::now();
  TENON_RETURN_IF_ERROR(CheckValues(projection, false, "projection", cancel()));
  tally_.Prepared(std::chrono::steady_clock::now() - start);
  return projection;
}

void MeasurementStream::Score(const std::vector<ItemPointer>& batch) {
  std::vector<Tensor> projections;
  std::vector<const Tensor*> usable;
  std::vector<ItemPointer> items;
  projections.reserve(batch.size());  // they are pointed to
  for (const ItemPointer& item : batch) {
    auto projection = TakeProjection(item.get());
    if (!projection.ok()) {
      item->result = projection.status();
      continue;
    }
    projections.push_back(*std::move(projection));
    usable.push_back(&projections.back());
    items.push_back(item);
  }
  if (usable.size() == 1) {
    items[0]->result = call_->session->Measure(*usable[0], cancel());
  } else if (!usable.empty()) {
    auto results = call_->session->MeasureBatch(usable, cancel());
    for (size_t i = 0; i < items.size(); ++i) items[i]->result = std::move(results[i]);
  }
  // Before the answers go out: with them the bytes count as given back.
  projections.clear();
  for (const ItemPointer& item : batch) {
    if (item->result.ok()) GiveUpKept(item->result->info);
    RecordFault(call_->provider->name(), item->result.status(), &server_->metrics);
    item->ended = std::chrono::steady_clock::now();
    Complete(item);
  }
}

// The header comes first, so that a file that does not fit takes no memory.
absl::Status MeasurementStream::LoadFile(ProjectionItem* item, Tensor* projection) {
  const std::string& name = call_->files[static_cast<size_t>(item->index)];
  TENON_ASSIGN_OR_RETURN(const NpyFile file, OpenServerFile(server_->settings.data_root, name));
  v1::TensorSpec wire;
  WriteTensorSpec(file.spec(), &wire);
  TENON_ASSIGN_OR_RETURN(const TensorSpec spec,
                         ReadMatrixSpec(wire, "projection.spec", server_->limits));
  TENON_RETURN_IF_ERROR(CheckRows(spec, "projection"));
  TENON_RETURN_IF_ERROR(AtField(ReserveExtra(spec, item), "projection.spec.shape"));
  TENON_ASSIGN_OR_RETURN(*projection, Tensor::Allocate(spec));
  const absl::Status read = file.Read(projection, cancel());
  TENON_RETURN_IF_ERROR(cancel()->Check());  // no fault of the file
  if (!read.ok()) return BadFile(name, read);
  item->columns = spec.shape[1];
  item->bytes = projection->buffer.size_bytes();
  tally_.Consumed();
  // It waited for nothing: reading is part of the work.
  item->complete = item->begun = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

void MeasurementStream::FeedInline(int64_t index) {
  const v1::Projection& projection =
      call_->header.inline_projections().projections(static_cast<int>(index));
  const ItemPointer item = NewItem(index, projection.name());
  const std::string field = StrCat("header.inline_projections.projections[", index, "]");
  const absl::Status opened = Open(projection, field, item.get());
  tally_.BytesReceived(static_cast<int64_t>(projection.inline_data().size()));
  if (opened.ok()) {
    tally_.Consumed();
    Ready(item);
  } else {
    Refuse(item, opened);
  }
}

bool MeasurementStream::FeedOne() {
  {
    std::lock_guard lock(mutex_);
    if (source_ended_) return false;
  }
  if (next_fed_ == *call_->projection_count()) {
    SourceEnded(true);
    return false;
  }
  if (!window_.AskRoom()) return false;
  const int64_t index = next_fed_++;
  if (call_->files.empty()) {
    FeedInline(index);
  } else {
    // A worker reads it.
    Ready(NewItem(index, ReplaceInvalidUtf8(call_->files[static_cast<size_t>(index)])));
  }
  return true;
}

void MeasurementStream::Feed() {
  std::unique_lock lock(mutex_);
  feed_again_ = true;
  if (feeding_) return;  // whoever is at it looks again
  feeding_ = true;
  while (std::exchange(feed_again_, false)) {
    lock.unlock();
    while (FeedOne()) {
    }
    lock.lock();
  }
  feeding_ = false;
  lock.unlock();
  FinishIfDone();
}

void MeasurementStream::Refuse(const ItemPointer& item, const absl::Status& status) {
  item->data = TensorReceiver();
  item->extra.Release();
  item->result = status;
  Complete(item);
}

void MeasurementStream::Complete(const ItemPointer& item) {
  window_.Complete(item, [this](const ItemPointer& next) { Deliver(next); });
  FinishIfDone();
}

void MeasurementStream::Deliver(const ItemPointer& item) {
  if (cancel()->cancelled()) return;
  if (!item->result.ok() && EndsStream(item->result.status())) {
    return Fail(AsWireError(item->result.status(), call_->header));
  }
  auto answer = MakeAnswer(*call_, server_->limits, item.get());
  if (!answer.ok()) return Fail(answer.status());
  const bool failed = answer->failed();
  if (failed) {
    tally_.Refused(answer->item.error().error());
  } else {
    tally_.Scored(*call_, *item);
    // Others may have been scored at the same time, on the same threads.
    server_->measurement_seconds.ObserveProjection(
        call_->work, item->result->info.total_seconds / call_->session->in_flight());
    for (const v1::SpecScores& spec : answer->item.scores().specs()) {
      if (spec.has_error()) tally_.Skipped(spec.error());
    }
  }
  item->extra.Release();
  Answer(*std::move(answer));
  SendProgress();
  if (failed && call_->header.execution().on_error() == v1::ON_ERROR_STOP) {
    dropping_ = true;
    window_.Abandon();
    SourceEnded(false);
  }
}

void MeasurementStream::Answer(ProjectionAnswer answer) {
  tally_.BytesSent(answer.payload_bytes);
  if (single_ == nullptr) {
    tally_.SendBegan();
    return Send(AnswerProducer(std::move(answer), [this] {
      tally_.SendEnded();
      AnswerWritten();
    }));
  }
  single_bytes_ += static_cast<int64_t>(answer.item.ByteSizeLong()) + 16;
  single_->add_items()->Swap(&answer.item);
  if (single_bytes_ + kSummaryBytes > server_->limits.answer_bytes()) {
    LeaveSingle(true);
  } else {
    AnswerWritten();
  }
}

void MeasurementStream::LeaveSingle(bool last_holds_place) {
  const auto single = std::exchange(single_, nullptr);
  v1::MeasureResponse accepted;
  accepted.mutable_accepted()->Swap(single->mutable_accepted());
  SendFrame(accepted);
  const int items = single->items_size();
  for (int i = 0; i < items; ++i) {
    ProjectionAnswer answer;
    answer.item.Swap(single->mutable_items(i));
    // All but the last gave up their places when they were kept.
    const bool holds_place = last_holds_place && i + 1 == items;
    tally_.SendBegan();
    Send(AnswerProducer(std::move(answer), [this, holds_place] {
      tally_.SendEnded();
      if (holds_place) AnswerWritten();
    }));
  }
}

void MeasurementStream::AnswerWritten() {
  if (!window_.Release()) return;
  if (call_->serves_itself()) {
    Feed();
  } else if (!dropping_) {
    ReadNext(Awaits::kNext);
  }
}

void MeasurementStream::SourceEnded(bool complete) {
  {
    std::lock_guard lock(mutex_);
    // An error that stops the stream may come after the source's own end.
    stream_complete_ = complete && (stream_complete_ || !source_ended_);
    source_ended_ = true;
  }
  FinishIfDone();
}

void MeasurementStream::FinishIfDone() {
  bool complete = false;
  std::string handle;
  {
    std::lock_guard lock(mutex_);
    // Without its input the original side is never built, and there is nothing to wait for.
    const bool worked = bound_ || !input_complete_;
    // While the source is read, `stop` may end it before its last item is in the window.
    if (!source_ended_ || feeding_ || !worked || finished_ || !window_.drained()) return;
    if (cancel()->cancelled()) return;  // failed or cancelled: no summary
    finished_ = true;
    complete = stream_complete_;
    // Given up before the client knows that the call is over: it may delete the data set then.
    const auto dataset = std::exchange(call_->stored != nullptr ? call_->stored : kept_, nullptr);
    if (dataset != nullptr) handle = dataset->handle;
  }
  const auto write_summary = [this, complete, handle](v1::MeasureSummary* summary) {
    tally_.WriteSummary(*call_, complete, window_.max_held(), handle, summary);
  };
  if (single_ != nullptr) {
    write_summary(single_->mutable_summary());
    const auto bytes = single_bytes_ + static_cast<int64_t>(single_->summary().ByteSizeLong());
    if (bytes > server_->limits.answer_bytes()) LeaveSingle(false);
  }
  FinishWith([this, write_summary](v1::MeasureResponse* response) {
    if (single_ != nullptr) {
      response->mutable_single()->Swap(single_.get());
    } else {
      write_summary(response->mutable_summary());
    }
    return true;
  });
}

void MeasurementStream::SendProgress() {
  const auto interval = call_->progress_interval();
  if (!interval) return;
  const auto now = std::chrono::steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    const bool due = !last_progress_ ||
                     std::chrono::duration<double>(now - *last_progress_).count() >= *interval;
    if (!due || progress_queued_) return;
    last_progress_ = now;
    progress_queued_ = true;
  }
  v1::MeasureResponse frame;
  v1::MeasureProgress* const progress = frame.mutable_progress();
  tally_.WriteProgress(*call_, progress);
  if (progress->phase() == v1::MEASURE_PHASE_QUEUED) {
    progress->set_queue_position(static_cast<int32_t>(wait_.position()));
  }
  SendProgressFrame(std::move(frame));
}

void MeasurementStream::SendProgressFrame(v1::MeasureResponse frame) {
  Send([this, frame = std::make_shared<v1::MeasureResponse>(std::move(frame)),
        sent = false](v1::MeasureResponse* out) mutable {
    if (!std::exchange(sent, true)) {
      out->Swap(frame.get());
      return true;
    }
    std::lock_guard lock(mutex_);
    progress_queued_ = false;
    return false;
  });
}

// The plan may be under way on another thread: nothing of the call is read.
void MeasurementStream::TellWaiting() {
  if (!wait_.waits()) return;
  {
    std::lock_guard lock(mutex_);
    if (progress_queued_) return;  // the client has not read the last one
    last_progress_ = std::chrono::steady_clock::now();
    progress_queued_ = true;
  }
  v1::MeasureResponse frame;
  v1::MeasureProgress* const progress = frame.mutable_progress();
  progress->set_phase(v1::MEASURE_PHASE_QUEUED);
  progress->set_queue_position(static_cast<int32_t>(wait_.position()));
  progress->set_elapsed_seconds(tally_.elapsed_seconds());
  SendProgressFrame(std::move(frame));
}

void MeasurementStream::StopTelling() {
  std::unique_ptr<Ticker> ticker;  // it waits for a tick under way, which may need the lock
  std::lock_guard lock(mutex_);
  ticker = std::move(ticker_);
}

}  // namespace tenon::server
