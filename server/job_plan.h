// From the header of a submission to a job that can be stored.

#ifndef TENON_SERVER_JOB_PLAN_H_
#define TENON_SERVER_JOB_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "server/contraction_codec.h"
#include "server/job_board.h"
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

// Checks the header, finds the plan and binds the job to the program that it leads to: the header
// that is stored names path, slices, threads, memory and fingerprint, so that nothing is left to be
// chosen when it runs. Errors have the fields of the wire, from "header." on.
absl::StatusOr<PlannedJob> PlanJob(v1::SubmitContractionHeader header, ServerState* state,
                                   const std::string& owner, const CancelToken* cancel);

// An error of a contraction's header as one of a submission's.
absl::Status AtContraction(const absl::Status& status);

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_PLAN_H_
