// One Measure call.

#ifndef TENON_SERVER_MEASUREMENT_STREAM_H_
#define TENON_SERVER_MEASUREMENT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/bidi_stream.h"
#include "server/measurement_answer.h"
#include "server/measurement_report.h"
#include "server/measurement_request.h"
#include "server/measurement_window.h"
#include "server/queue_wait.h"
#include "server/state.h"
#include "server/ticker.h"
#include "tenon/v1/measurement.pb.h"

namespace tenon::server {

// Three sides share this object. The *reader* (gRPC's thread, one frame at a time) keeps to the
// state table of measurement.proto, checks, and fills buffers. *Workers* (the executor's threads)
// build the original side, then score up to in_flight projections at once. *Delivery* (whichever
// thread completes the oldest projection) sends answers in order of arrival. The next projection is
// read only when an answer has been written and made room.
class MeasurementStream final
    : public BidiStream<v1::MeasureRequest, v1::MeasureResponse, PlainFrame> {
 public:
  MeasurementStream(grpc::CallbackServerContext* context, ServerState* state);
  ~MeasurementStream() override;

 private:
  using ItemPointer = ProjectionWindow::ItemPointer;
  // The states of measurement.proto.
  enum class State {
    kStart,
    kDataset,
    kLabels,
    kIdle,
    kProjection,
    kSkipping,
    kServing,
    kStopped,
    kClosed
  };
  static std::string_view StateName(State state);
  // The frame that a stream in this state waits for.
  static std::string AwaitedFrame(State state);

  // The reader's side.
  void OnFrame(const v1::MeasureRequest& frame) override;
  void OnChunk(int field, const ChunkView& chunk) override;
  std::span<const int> chunk_fields() const override;
  void OnHalfClose() override;
  absl::Status Dispatch(const v1::MeasureRequest& frame);
  absl::Status OnHeader(v1::MeasureHeader* header);
  // The way to admission, step by step: the header, temporary files, memory. Each step begins the
  // next, at once or, on the executor, when its turn has come; the last one reads on.
  absl::Status Plan(v1::MeasureHeader header);
  // DEADLINE_INFEASIBLE when not even one score can come in time.
  absl::Status CheckDeadline();
  absl::Status ReserveScratch();
  absl::Status ReserveMemory();
  absl::Status Admit(Reservation memory);
  absl::Status OnDatasetChunk(const ChunkView& chunk);
  absl::Status OnLabels(const v1::Labels& part);
  absl::Status OnProjection(const v1::Projection& projection);
  absl::Status OnProjectionChunk(const ChunkView& chunk);
  void OnStop();
  absl::Status EndOfDataset();
  void EndOfInput();  // data set and labels are there
  void ContinueReading();
  absl::Status ReserveExtra(const TensorSpec& spec, ProjectionItem* item);
  // A buffer for the projection, filled if its bytes stand inside. Errors are the projection's.
  absl::Status Open(const v1::Projection& projection, const std::string& field,
                    ProjectionItem* item);
  absl::Status CheckRows(const TensorSpec& spec, const std::string& field) const;
  ItemPointer NewItem(int64_t index, const std::string& name);
  void Ready(const ItemPointer& item);

  // The workers' side. The phases are what the watch calls them.
  static constexpr std::string_view kAdmission = "admission", kOriginal = "original",
                                    kScoring = "scoring";
  template <typename Work>
  std::function<void()> OnExecutor(std::string_view phase, Work work) {
    return [self = Self(), phase, work = std::move(work)] {
      if (self->cancel()->cancelled()) return;  // the stream ends by itself
      const WorkWatch::Entry entry(&self->server_->work_watch, self->cancel(),
                                   MethodName(Method::kMeasure), phase, self->RequestId());
      if (const auto seconds = self->RunTask(work)) {
        self->server_->metrics.ObserveCancellation(*seconds);
      }
    };
  }
  // A task that does what may fail the call.
  std::function<void()> Step(std::function<absl::Status()> work);
  std::function<void(const absl::Status&)> Refused();
  void Start();
  void BindIfReady();
  void Bind();
  absl::Status BindDataset();
  void ScoreLater(const ItemPointer& item);
  absl::Status KeepDataset();
  void GiveUpKept(const measurement::RunInfo& info);
  std::vector<ItemPointer> TakeBatch();
  absl::StatusOr<Tensor> TakeProjection(ProjectionItem* item);
  void Score(const std::vector<ItemPointer>& batch);
  void Feed();  // the source that is not the client
  bool FeedOne();
  void FeedInline(int64_t index);
  absl::Status LoadFile(ProjectionItem* item, Tensor* projection);

  // Delivery.
  void Complete(const ItemPointer& item);
  void Refuse(const ItemPointer& item, const absl::Status& status);
  void Deliver(const ItemPointer& item);
  void Answer(ProjectionAnswer answer);
  void AnswerWritten();
  // The answer does not fit in one message. `last_holds_place`: that of the latest item was not
  // given up yet.
  void LeaveSingle(bool last_holds_place);
  void SourceEnded(bool complete);
  void FinishIfDone();
  void SendProgress();
  // One frame that no other overtakes: progress_queued_ was set for it.
  void SendProgressFrame(v1::MeasureResponse frame);
  void TellWaiting();  // progress, until it has a slot
  void StopTelling();

  void OnEnd() override;
  bool Busy() override { return !window_.drained(); }
  std::shared_ptr<MeasurementStream> Self();
  std::string RequestId() const {
    std::lock_guard lock(mutex_);
    return request_id_;
  }

  ServerState* const server_;
  MeasureTally tally_;
  QueueWait wait_;
  ProjectionWindow window_;

  // The reader's own.
  State state_ = State::kStart;
  ItemPointer current_;
  int64_t next_index_ = 0;
  std::vector<Reservation> label_reservations_;

  // Set by the reader at the header, or before the workers come.
  std::unique_ptr<MeasureCall> call_;

  // Delivery's own: the single frame, while it may still become one.
  std::unique_ptr<v1::MeasureSingle> single_;
  int64_t single_bytes_ = 0;

  std::atomic<bool> dropping_{false};  // ON_ERROR_STOP: what comes is ignored

  mutable std::mutex mutex_;
  std::string request_id_;  // for the log, also of a refused header
  bool started_ = false, input_complete_ = false, binding_ = false, bound_ = false;
  std::vector<ItemPointer> waiting_;  // complete before the original side was built
  std::deque<ItemPointer> ready_;     // to be scored
  bool feeding_ = false, feed_again_ = false;
  int64_t next_fed_ = 0;  // whoever feeds
  bool source_ended_ = false, stream_complete_ = false, finished_ = false;
  std::shared_ptr<const StoredContent> kept_;  // the data set, once it is stored
  std::optional<std::chrono::steady_clock::time_point> last_progress_;
  bool progress_queued_ = false;
  std::unique_ptr<Ticker> ticker_;  // of progress while it waits in the queues
};

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_STREAM_H_
