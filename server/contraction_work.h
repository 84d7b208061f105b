// The engine's side of one contraction call: memory, operands, sets.

#ifndef TENON_SERVER_CONTRACTION_WORK_H_
#define TENON_SERVER_CONTRACTION_WORK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/schedule/contraction_job.h"
#include "server/admission.h"
#include "server/contraction_codec.h"
#include "server/contraction_upload.h"
#include "server/plan_finder.h"
#include "server/state.h"
#include "server/timeline.h"

namespace tenon::server {

// FindPlanAtOnce, then SearchPlan if that says so, then Prepare, then Admit, then CreateUpload,
// then SetFixed, then Start, then RunSets until all sets are run, all on one thread at a time. What
// it holds of the server's budget is given back when it is destroyed.
class ContractWork {
 public:
  // `state` and `cancel` outlive the work.
  ContractWork(ContractCall call, ServerState* state, const CancelToken* cancel)
      : state_(state),
        cancel_(cancel),
        call_(std::move(call)),
        finder_(&call_, state, cancel, nullptr) {
    if (call_.question.has_value()) call_.question->options.trials_made = &trials_;
  }

  // Predicted seconds of the work where finding its plan takes no time: it neither searches nor
  // compiles. Absent otherwise.
  std::optional<double> SecondsIfPlanned() const;
  // As PlanFinder.
  absl::StatusOr<bool> FindPlanAtOnce() { return finder_.FindAtOnce(); }
  absl::Status SearchPlan() { return finder_.Search(); }
  SearchNeed search_need() const { return finder_.search_need(); }
  int64_t search_trials() const { return trials_; }  // so far; from any thread
  // Compiles, and plans the memory. Errors have the header's fields; DEADLINE_INFEASIBLE.
  absl::Status Prepare();
  // `reservation`: planned_peak_bytes() of the budget.
  void Admit(Reservation reservation) { reservation_ = std::move(reservation); }
  // Takes the memory of the operands; the inline bytes leave the call.
  absl::StatusOr<std::unique_ptr<ContractUpload>> CreateUpload();
  // The operands that do not vary, as they came.
  void SetFixed(std::vector<Tensor> fixed) { fixed_ = std::move(fixed); }

  struct Result {
    int64_t set = 0;
    TensorSpec spec;
    std::shared_ptr<Tensor> tensor;    // give it back to Recycle; null with `shared`
    std::optional<SharedSpan> shared;  // where the bytes lie in the call's pool
    std::optional<double> log10_scale;
    v1::SetReport report;  // without checksum

    const std::byte* data() const {
      return shared.has_value() ? shared->data : tensor->buffer.data();
    }
    int64_t size_bytes() const {
      return shared.has_value() ? shared->size_bytes : tensor->buffer.size_bytes();
    }
  };
  // Computes what all sets share. Does nothing when called again.
  absl::Status Start();
  // The next sets, in order: as ContractionJob::RunSets.
  absl::StatusOr<std::vector<Result>> RunSets(std::span<const std::unique_ptr<SetInputs>> inputs,
                                              const schedule::ContractionJob::ProgressFn& progress);
  // The memory serves a later set; null is ignored. From any thread.
  void Recycle(std::shared_ptr<Tensor> tensor);

  const ContractCall& call() const { return call_; }
  const schedule::ContractionJob& job() const { return *job_; }
  schedule::ContractionJob& job() { return *job_; }
  // Made by Prepare.
  const v1::PlanSummary& plan_summary() const { return plan_summary_; }
  int64_t staging_bytes() const { return staging_bytes_; }
  int64_t planned_peak_bytes() const { return job_->plan().Total() + staging_bytes_; }
  double prepare_seconds() const { return prepare_seconds_; }
  int64_t sets_done() const { return sets_done_; }
  const Timeline& timeline() const { return timeline_; }  // empty unless it was asked for

 private:
  absl::Status CheckDeadline() const;
  bool WritesInPlace(const SetInputs& inputs) const {
    return inputs.result.has_value() && call_.result_dtype == job_->dtype();
  }
  absl::StatusOr<std::vector<const void*>> Varying(SetInputs* inputs);
  absl::StatusOr<Result> Finish(const SetInputs& inputs, std::shared_ptr<Tensor> tensor);
  absl::StatusOr<std::shared_ptr<Tensor>> TakeResult();

  ServerState* const state_;
  const CancelToken* const cancel_;
  Reservation reservation_;  // destroyed after what it stands for
  ContractCall call_;
  std::atomic<int64_t> trials_{0};
  PlanFinder finder_;
  v1::PlanSummary plan_summary_;
  Timeline timeline_;
  int64_t staging_bytes_ = 0;
  int64_t result_bytes_ = 0;                 // of one set
  std::optional<SharedSpan> result_region_;  // for set 0
  std::vector<Tensor> fixed_;                // per operand; of the compute type once started
  std::vector<Tensor> converted_;  // the current sets' varying operands in the compute type
  std::mutex mutex_;
  std::vector<std::shared_ptr<Tensor>> free_results_;
  std::unique_ptr<schedule::ContractionJob> job_;
  bool started_ = false;
  double prepare_seconds_ = 0;
  int64_t sets_done_ = 0;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_WORK_H_
