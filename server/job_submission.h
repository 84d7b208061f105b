// One call of JobService.SubmitContraction.

#ifndef TENON_SERVER_JOB_SUBMISSION_H_
#define TENON_SERVER_JOB_SUBMISSION_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "server/admission.h"
#include "server/chunk_view.h"
#include "server/contraction_upload.h"
#include "server/job_board.h"
#include "server/job_plan.h"
#include "server/queue_wait.h"
#include "server/state.h"
#include "server/unary.h"
#include "server/write_watchdog.h"
#include "tenon/v1/job.pb.h"

namespace tenon::server {

// Parses the frames itself, as UploadReactor does, and for the same reason. Takes its turns as a
// contraction does: for a slot, for a search where the plan takes one, and for the memory of the
// upload; whoever ends the call takes it out of the line. Nothing is read while it waits. Deletes
// itself after OnDone.
class JobSubmission final : public grpc::ServerReadReactor<grpc::ByteBuffer>,
                            private WatchedStream {
 public:
  // state->jobs is not null.
  JobSubmission(grpc::CallbackServerContext* context, ServerState* state, std::string owner,
                grpc::ByteBuffer* response);

 private:
  using Stage = absl::Status (JobSubmission::*)();

  void Read();
  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  absl::Status OnFrame();
  absl::Status OnHeader();
  absl::Status OnChunk(const ChunkView& chunk);
  absl::Status OnHalfClose();

  // The stages, in order: in a slot of the executor, in one of the searches, in the executor again,
  // and where the store is written.
  absl::Status Plan();
  absl::Status Search();
  absl::Status Admit();
  absl::Status BeginUpload();
  absl::Status Store();
  // By a holder. An error ends the call.
  void Do(Stage stage);
  // A task that does a stage of planning, with the call held until it has run or is dropped.
  std::function<void()> Step(Stage stage);
  std::function<void(const absl::Status&)> Refused();
  // The end of the call takes it out of the line, unless it came before it was there.
  void LeaveIfOver();
  absl::Status Answer(const v1::SubmitContractionResponse& response);

  // Whoever works on the call holds it: a reaction, a wait in a line, a task, the end from outside.
  // It ends when nobody does and it is known how; the first to know decides.
  std::shared_ptr<JobSubmission> Hold();
  void Release();
  void End(const absl::Status& outcome);
  bool ended();

  // It writes nothing before the end.
  bool WriteStalledSince(std::chrono::steady_clock::time_point) override { return false; }
  void CutSlowReader() override {}
  ClientWaits WaitsForClient() override;
  void EndCall(const absl::Status& why) override;

  grpc::CallbackServerContext* const context_;
  ServerState* const state_;
  const std::string owner_;
  grpc::ByteBuffer* const response_;
  CallRecord record_;
  CancelToken cancel_;
  QueueWait wait_;
  grpc::ByteBuffer received_;
  v1::SubmitContractionRequest request_;
  int64_t frames_ = 0;  // that came
  bool header_seen_ = false;
  std::string request_id_, header_sha256_;
  std::unique_ptr<JobPlanner> planner_;
  std::optional<PlannedJob> planned_;
  JobPlace place_;
  Reservation memory_;  // of the upload
  std::unique_ptr<ContractUpload> upload_;

  std::mutex mutex_;
  int holders_ = 0;
  bool finished_ = false;
  std::optional<ClientWaits::TimePoint> waits_since_;  // a read that has not returned
  std::optional<absl::Status> outcome_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_SUBMISSION_H_
