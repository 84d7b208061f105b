// One call of JobService.SubmitContraction.

#ifndef TENON_SERVER_JOB_SUBMISSION_H_
#define TENON_SERVER_JOB_SUBMISSION_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
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
#include "server/state.h"
#include "server/unary.h"
#include "server/write_watchdog.h"
#include "tenon/v1/job.pb.h"

namespace tenon::server {

// Parses the frames itself, as UploadReactor does, and for the same reason. Deletes itself after
// OnDone. Plans in the executor, stores in `state->listing`, whose tasks may wait for disks.
class JobSubmission final : public grpc::ServerReadReactor<grpc::ByteBuffer>,
                            private WatchedStream {
 public:
  // state->jobs is not null.
  JobSubmission(grpc::CallbackServerContext* context, ServerState* state, std::string owner,
                grpc::ByteBuffer* response);

 private:
  // What follows a reaction: the next read, or the task that it has begun.
  enum class Next { kRead, kTask };

  void Read();
  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  absl::StatusOr<Next> OnFrame();
  absl::StatusOr<Next> OnChunk(const ChunkView& chunk);
  absl::StatusOr<Next> OnHalfClose();

  // The executor's.
  void Plan();
  absl::StatusOr<bool> PrepareUpload();
  absl::Status Store();
  absl::Status Respond(const v1::SubmitContractionResponse& response);

  // Whoever works on the call holds it: the constructor, a reaction, a task, the end from outside.
  // It ends when nobody does and it is known how; the first to know decides.
  void Release(std::optional<absl::Status> outcome = std::nullopt);

  ClientWaits WaitsForClient() override;
  // It writes nothing before the end.
  bool WriteStalledSince(std::chrono::steady_clock::time_point) override { return false; }
  void CutSlowReader() override {}
  void EndCall(const absl::Status& why) override;

  grpc::CallbackServerContext* const context_;
  ServerState* const state_;
  const std::string owner_;
  grpc::ByteBuffer* const response_;
  CallRecord record_;
  CancelToken cancel_;
  grpc::ByteBuffer received_;
  v1::SubmitContractionRequest request_;
  int64_t frames_ = 0;  // that came
  bool header_seen_ = false;
  std::optional<PlannedJob> planned_;
  JobPlace place_;
  Reservation memory_;  // of the upload
  std::unique_ptr<ContractUpload> upload_;

  std::mutex mutex_;
  int holders_ = 1;  // the constructor
  bool finished_ = false;
  std::optional<ClientWaits::TimePoint> waits_since_;  // a read that has not returned
  std::optional<absl::Status> outcome_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_SUBMISSION_H_
