// The life of a job: the table in job.proto.

#ifndef TENON_SERVER_JOB_STATE_H_
#define TENON_SERVER_JOB_STATE_H_

#include <optional>
#include <string>

#include "tenon/v1/job.pb.h"

namespace tenon::server {

// All of them, in the order of the table.
inline constexpr v1::JobState kJobStates[] = {v1::JOB_STATE_QUEUED,    v1::JOB_STATE_RUNNING,
                                              v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_CANCELLING,
                                              v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED,
                                              v1::JOB_STATE_CANCELLED};

// Whether no other state follows.
bool HasEnded(v1::JobState state);
bool MayMove(v1::JobState from, v1::JobState to);
// Where a job goes when it is asked to end; nullopt: it stays.
std::optional<v1::JobState> AfterCancel(v1::JobState state);
// "queued", as the label of metrics; a closed set.
std::string JobStateLabel(v1::JobState state);

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_STATE_H_
