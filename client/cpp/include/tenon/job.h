// Jobs: contractions that the server keeps, whatever becomes of the connection or of itself.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_JOB_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_JOB_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tenon/call.h"
#include "tenon/contract.h"
#include "tenon/v1/job.pb.h"

namespace tenon::client {

// What Client::SubmitJob takes.
struct JobRequest {
  // The contraction: no varying operands, no next_set, no progress. Its request_id makes the
  // submission idempotent: the same request again returns the job that it has made.
  ContractRequest contraction;
  // Text for people, at most 256 bytes.
  std::string display_name = "";
  // How long it is kept after its end, > 0. Absent: the server's default.
  std::optional<absl::Duration> ttl = std::nullopt;
  // It fails when it has run this long, > 0, interruptions not counted. Absent: no limit.
  std::optional<absl::Duration> max_run_time = std::nullopt;
};

// What Client::WatchJob and Client::ReadJobResult do when the connection or the server breaks: they
// try again, since a job outlives both. Where no server has answered at all, they do not.
using JobRetry = RetryPolicy;

// Called by Client::WatchJob, on the thread that called it. Both may be absent.
struct JobCallbacks {
  // The job as it is, then at every change of its state; as it is again after a break.
  std::function<void(const v1::Job&)> on_job = nullptr;
  std::function<void(const v1::ContractProgress&)> on_progress = nullptr;
};

// The result of a job that has succeeded.
struct JobResult {
  Tensor tensor;
  // With normalize: the true result is the tensor times 10 to this power.
  std::optional<double> log10_scale;
  v1::SetReport report;
};

// How Client::WatchJob watches.
struct JobWatchOptions {
  absl::Duration progress_interval = absl::Seconds(5);
  JobRetry retry;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_JOB_H_
