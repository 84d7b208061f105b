// What a JobBoard keeps of one job. For job_board*.cc alone.

#ifndef TENON_SERVER_JOB_ENTRY_H_
#define TENON_SERVER_JOB_ENTRY_H_

#include <google/protobuf/util/time_util.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "server/job_board.h"

namespace tenon::server {

struct JobBoard::Entry {
  JobRow row;   // without the messages, which are below
  v1::Job job;  // without the plan, which does not change
  std::shared_ptr<const v1::PlanSummary> plan;
  std::shared_ptr<const v1::SubmitContractionResponse> answer;
  int64_t base_bytes = 0;               // of its data, less blocks and levels
  std::shared_ptr<CancelToken> cancel;  // while a runner has it
  std::optional<std::chrono::steady_clock::time_point> run_deadline, not_before;
  bool dirty = false;  // what is stored is older
  std::vector<std::weak_ptr<JobListener>> listeners;

  bool ExpiredAt(TimePoint now) const {
    if (!job.has_expire_time()) return false;
    const int64_t micros =
        google::protobuf::util::TimeUtil::TimestampToMicroseconds(job.expire_time());
    return now >= TimePoint(std::chrono::microseconds(micros));
  }
};

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_ENTRY_H_
