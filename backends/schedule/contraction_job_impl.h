// What a ContractionJob holds. For contraction_job*.cc alone.

#ifndef TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_IMPL_H_
#define TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_IMPL_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/schedule/checkpoint.h"
#include "backends/schedule/contraction_job.h"
#include "backends/schedule/prepared_contraction.h"
#include "backends/schedule/set_stack.h"

namespace tenon::schedule {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct ContractionJob::Impl {
  struct Lane {  // one provider's share of the job
    const PreparedContraction::Lane* plan = nullptr;
    std::unique_ptr<plugin::Execution> execution;
    // See group_run.h. Of what follows, a running GroupRun has the lock.
    bool out = false;     // takes no group in this job any more
    bool paused = false;  // until another lane has finished a group
    int faults = 0;
    int64_t groups_done = 0, groups_failed = 0, groups_taken_over = 0;

    // What a fault costs the lane.
    void NoteFault(plugin::Fault fault) {
      ++faults;
      out = out || fault == plugin::Fault::kSticky || faults > 1;
      paused = !out;
    }
    std::string name() const { return std::string(plan->provider->name()); }
  };

  class GroupRun;

  std::shared_ptr<const PreparedContraction> prepared;
  const CancelToken* cancel = nullptr;
  int64_t sets_done = 0;
  // Destroyed bottom up: executions give their memory back before `memory` goes.
  std::unique_ptr<plugin::HostMemory> memory;
  SetStack stack;
  std::vector<Lane> lanes;
  std::vector<const void*> operands;
  ContractionReport report;
  std::optional<int64_t> exponent;  // of the latest result
  absl::Status first_fault;         // of a lane, in any run; OK while there was none
  bool checkpointed = false;        // SetCheckpoint was called: there is one run
  Checkpoint* checkpoint = nullptr;
  ResumePoint resume;
  GroupFn group_observer;

  Progress NothingDone() const {
    Progress progress;
    progress.slices_total = prepared->SlicesInRange();
    progress.flops_total = prepared->program->total_flops() * prepared->GroupShare();
    return progress;
  }
  absl::Status RunOneGroup(Lane& lane, int worker, int64_t group, void* partial_sum,
                           int64_t* group_exponent);
  absl::Status LaneFailed(Lane& lane, absl::Status error);
  absl::Status BindOperands();
  absl::Status RunOnSomeLane(void* result, int64_t* sum_exponent);
  absl::Status RunInPlace(void* result);
  absl::Status RunBound(void* result, const ProgressFn& progress);
  std::vector<std::jthread> StartOthers(GroupRun& run);
  absl::Status RunGroups(void* result, const ProgressFn& progress);
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_IMPL_H_
