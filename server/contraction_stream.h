// One call of ContractionService.Contract.

#ifndef TENON_SERVER_CONTRACTION_STREAM_H_
#define TENON_SERVER_CONTRACTION_STREAM_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/bidi_stream.h"
#include "server/contraction_upload.h"
#include "server/contraction_work.h"
#include "server/state.h"
#include "server/tensor_sender.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// Three parties: gRPC's reading reaction (frames into buffers), the executor (plans, then runs sets
// while there are complete ones and less than two results wait for the client), and whoever
// completes a write. Sets that wait are run together, as many as the program computes in one run;
// "two results" then means those of two runs. The executor has one task of a call at a time.
// `upload_` belongs to the reader; while the reader waits for a buffer (reader_waits_) it belongs
// to the executor's task.
class ContractStream final : public BidiStream<v1::ContractRequest, v1::ContractResponse> {
 public:
  ContractStream(grpc::CallbackServerContext* context, ServerState* state);

 private:
  using Clock = std::chrono::steady_clock;

  void OnFrame(const v1::ContractRequest& frame) override;
  void OnHalfClose() override;
  void OnEnd() override;
  std::shared_ptr<ContractStream> self() {
    return std::static_pointer_cast<ContractStream>(this->shared_from_this());
  }

  // The reader.
  absl::Status OnHeader(v1::ContractHeader* header);
  void Advance();
  bool ProvideInputs();

  // The executor.
  absl::Status Plan();
  absl::Status Admit();
  bool IsSmall() const;
  absl::Status AnswerSmall();
  void SendAccepted();
  bool ShouldRun() const;  // with mutex_ held
  int SetsTogether() const { return static_cast<int>(work_->job().sets_together()); }
  void Wake();
  void RunSets();
  absl::Status RunStack();
  std::vector<std::unique_ptr<SetInputs>> TakeStack();
  void ReturnInputs(std::unique_ptr<SetInputs> inputs);
  void SendResult(ContractWork::Result result);
  void SendInlineResult(ContractWork::Result result);
  void SendChunkedResult(ContractWork::Result result);
  void FillInline(const ContractWork::Result& result, v1::ContractResult* out) const;
  void ResultSent(std::shared_ptr<Tensor> tensor);
  void SendProgress(int64_t set, const schedule::ContractionJob::Progress& progress);
  void RecordWork();
  std::optional<double> SecondsToDeadline() const;
  void WriteReport(v1::ContractionReport* report);

  ServerState* const state_;
  const Clock::time_point header_time_ = Clock::now();
  bool header_seen_ = false;      // the reader's
  bool header_complete_ = false;  // set before anything else runs: no frame may follow the header
  std::unique_ptr<ContractWork> work_;
  std::unique_ptr<ContractUpload> upload_;
  bool fixed_taken_ = false;                      // the operands that do not vary are with work_
  int inputs_made_ = 1;                           // sets of buffers for varying operands
  Clock::time_point start_time_, accepted_time_;  // out of the queue; ready for chunks
  Clock::time_point last_progress_;
  std::atomic<bool> progress_pending_{false};
  std::atomic<int64_t> received_bytes_{0}, sent_bytes_{0};

  Clock::duration last_run_{0};  // the executor's: what the latest stack took

  std::mutex mutex_;
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
