// From the header of a submission to a job that can be stored.

#ifndef TENON_SERVER_JOB_PLAN_H_
#define TENON_SERVER_JOB_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "server/contraction_codec.h"
#include "server/job_board.h"
#include "server/plan_finder.h"
#include "server/state.h"
#include "tenon/v1/job.pb.h"

namespace tenon::server {

// SHA-256 of a header, in hexadecimal; equal messages have the same.
std::string HeaderSha256(const v1::SubmitContractionHeader& header);

// What a header makes of a job, before the operands have come.
struct PlannedJob {
  ContractCall call;        // as it came
  NewJob job;               // without owner, hash and operands
  int64_t store_bytes = 0;  // that it may need in the store
};

// Plans one submission: finds the plan and binds the job to the program that it leads to. The
// header that is stored names path, slices, threads, memory and fingerprint, so that nothing is
// left to be chosen when it runs. Errors have the fields of the wire, from "header." on. One thread
// at a time.
class JobPlanner {
 public:
  // Checks the header. `state` and `cancel` outlive the planner.
  static absl::StatusOr<std::unique_ptr<JobPlanner>> Create(v1::SubmitContractionHeader header,
                                                            ServerState* state, std::string owner,
                                                            const CancelToken* cancel);
  JobPlanner(const JobPlanner&) = delete;
  JobPlanner& operator=(const JobPlanner&) = delete;

  // As PlanFinder.
  absl::StatusOr<bool> FindAtOnce();
  absl::Status Search();
  SearchNeed search_need() const { return finder_->search_need(); }
  // Once there is a plan; once.
  absl::StatusOr<PlannedJob> Bind();

 private:
  JobPlanner(v1::SubmitContractionHeader header, ServerState* state, std::string owner,
             const CancelToken* cancel)
      : state_(state), owner_(std::move(owner)), cancel_(cancel), bound_(std::move(header)) {}
  absl::Status ReadHeader();
  absl::StatusOr<PlannedJob> BindCall();
  // The plan with its path, whatever the caller wants to see of it.
  absl::StatusOr<v1::PlanSummary> FullPlan() const;

  ServerState* const state_;
  const std::string owner_;
  const CancelToken* const cancel_;
  v1::SubmitContractionHeader bound_;  // first as it came, then what is stored
  ContractCall call_;                  // as it came
  ContractCall planned_;  // without the bytes of operands; has the plan once it is found
  std::unique_ptr<PlanFinder> finder_;
};

// An error of a contraction's header as one of a submission's.
absl::Status AtContraction(const absl::Status& status);

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_PLAN_H_
