// One call of ContractionService.Contract.

#ifndef TENON_SERVER_CONTRACTION_STREAM_H_
#define TENON_SERVER_CONTRACTION_STREAM_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/bidi_stream.h"
#include "server/contraction_upload.h"
#include "server/contraction_work.h"
#include "server/queue_wait.h"
#include "server/state.h"
#include "server/tensor_sender.h"
#include "server/ticker.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// Three parties: gRPC's reading reaction (frames into buffers), the executor (plans, waits for
// memory without holding a thread, then runs sets while there are complete ones and less than two
// results wait for the client), and whoever completes a write. Sets that wait are run together, as
// many as the program computes in one run; "two results" then means those of two runs. The executor
// has one task of a call at a time. `upload_` belongs to the reader; while the reader waits for a
// buffer (reader_waits_) it belongs to the executor's task. Very short work is done by whoever
// finds it, the reader too, while the executor has nothing to do: what is said of the executor then
// holds for that thread.
class ContractStream final : public BidiStream<v1::ContractRequest, v1::ContractResponse> {
 public:
  ContractStream(grpc::CallbackServerContext* context, ServerState* state);

 private:
  using Clock = std::chrono::steady_clock;

  void OnFrame(const v1::ContractRequest& frame) override;
  void OnChunk(int field, const ChunkView& chunk) override;
  std::span<const int> chunk_fields() const override;
  void OnHalfClose() override;
  void OnEnd() override;
  bool Busy() override;
  std::shared_ptr<ContractStream> self() {
    return std::static_pointer_cast<ContractStream>(this->shared_from_this());
  }

  // The reader.
  absl::Status OnHeader(v1::ContractHeader* header);
  void Advance();
  bool ProvideInputs();

  // The way to admission, step by step; the next one begins when its turn has come.
  using Stage = absl::Status (ContractStream::*)();
  std::function<void()> Step(Stage stage);
  std::function<void(const absl::Status&)> Refused();
  absl::Status FindPlan();  // a request's slot
  absl::Status Search();    // a search's slot
  absl::Status Reserve();   // memory
  absl::Status Admitted();
  void TellWaiting();  // progress, until it is admitted
  void StopTelling();

  // The executor. `task` gets the watch's entry of its work.
  using WatchEntry = std::optional<WorkWatch::Entry>;
  template <typename Task>
  void Work(std::string_view phase, const Task& task) {
    WatchEntry entry;
    Enter(phase, &entry);
    const auto seconds = RunTask([&] { task(&entry); });
    if (seconds.has_value()) state_->metrics.ObserveCancellation(*seconds);
  }
  void Enter(std::string_view phase, WatchEntry* entry);
  bool MayRunAtOnce(std::optional<double> seconds) const;
  bool RunsAtOnce() const;  // a stack of sets
  bool IsSmall() const;
  absl::Status AnswerSmall();
  void SendAccepted();
  bool ShouldRun() const;  // with mutex_ held
  int SetsTogether() const { return static_cast<int>(work_->job().sets_together()); }
  void Wake();
  // `may_wait`: the thread may stand still for a moment, which those that read must not.
  void RunSets(bool may_wait);
  absl::Status RunStack(bool may_wait);
  std::vector<std::unique_ptr<SetInputs>> TakeStack(bool may_wait);
  void ReturnInputs(std::unique_ptr<SetInputs> inputs);
  void SendResult(ContractWork::Result result);
  void SendWholeResult(ContractWork::Result result);
  void SendChunkedResult(ContractWork::Result result);
  void FillWhole(const ContractWork::Result& result, v1::ContractResult* out);
  void ResultSent(std::shared_ptr<Tensor> tensor);
  void SendProgress(int64_t set, const schedule::ContractionJob::Progress& progress);
  void SendProgressFrame(v1::ContractResponse frame);
  void RecordWork();
  std::optional<double> SecondsToDeadline() const;
  void WriteReport(v1::ContractionReport* report);

  ServerState* const state_;
  const Clock::time_point header_time_ = Clock::now();
  QueueWait wait_;
  bool header_seen_ = false;      // the reader's
  std::string request_id_;        // also of a refused header; does not change once work is queued
  bool header_complete_ = false;  // set before anything else runs: no frame may follow the header
  std::unique_ptr<ContractWork> work_;
  std::unique_ptr<ContractUpload> upload_;
  WatchEntry* stage_entry_ = nullptr;  // of the stage that runs, for that alone
  bool fixed_taken_ = false;           // the operands that do not vary are with work_
  int inputs_made_ = 1;                // sets of buffers for varying operands
  Clock::time_point accepted_time_;    // ready for chunks
  Clock::time_point last_progress_;
  std::atomic<bool> progress_pending_{false};
  std::atomic<int64_t> received_bytes_{0}, sent_bytes_{0};
  std::atomic<bool> ran_{false};

  Clock::duration last_run_{0};  // the executor's: what the latest stack took

  std::mutex mutex_;
  std::unique_ptr<Ticker> ticker_;                // of progress while it waits and plans
  std::condition_variable set_ready_;             // ready_ has grown, or input_closed_
  std::deque<std::unique_ptr<SetInputs>> ready_;  // complete, to be run
  std::vector<std::unique_ptr<SetInputs>> free_inputs_;
  bool reader_waits_ = false;
  bool input_closed_ = false;  // no further set will come
  bool running_ = false;       // a task of RunSets is queued or running
  bool ended_ = false;         // all sets are run, or one has failed
  int unread_results_ = 0;     // being computed, or not yet written to the client
  double receive_seconds_ = 0, send_seconds_ = 0;
  std::optional<Clock::time_point> sending_since_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_STREAM_H_
