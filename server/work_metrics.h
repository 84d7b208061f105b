// How the work of contractions gets into the metrics; the same for calls and for jobs.

#ifndef TENON_SERVER_WORK_METRICS_H_
#define TENON_SERVER_WORK_METRICS_H_

#include "backends/core/dtype.h"
#include "backends/schedule/contraction_job.h"
#include "server/metrics.h"
#include "server/timeline.h"

namespace tenon::server {

// Counts every slice group that the job runs, and has `timeline` tell of it unless that is null.
// Before the job's first set; both outlive the job.
void ObserveGroups(schedule::ContractionJob* job, Metrics* metrics, Timeline* timeline);

// Counts what a job did, once, after its last set or its failure.
void RecordContraction(const schedule::ContractionReport& report, DType dtype, Metrics* metrics);

// Counts `error` as a fault of the provider if it is one: errors of requests are none.
void RecordFault(std::string_view provider, const absl::Status& error, Metrics* metrics);

}  // namespace tenon::server

#endif  // TENON_SERVER_WORK_METRICS_H_
