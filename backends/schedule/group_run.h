// One run over the slice groups of a job: its providers' workers take groups until all are done,
// and groups that a provider fails move to another one.
//
// A lane is one provider's share of the job. Workers take the next group whenever they are free, so
// fast lanes do more; a group waits for its turn at the provider's gate, behind those of other
// jobs. Partial sums are combined in the order of the groups (ordered_sum.h), whoever did them.
//
// Faults, as plugin::ClassifyFault tells them, with more than one lane:
// - The group is run again by a lane that has not failed it.
// - A sticky fault takes the lane out of the job.
// - Any other fault costs a lane the one that it has to spare: it pauses until another lane has
//   finished a group, and the next fault takes it out. Groups that ran side by side when a lane
//   failed count as one fault.
// - When every lane that is left has failed a group, or nobody works and nobody may, the job ends
//   with the first fault. What says nothing of the device (cancellation, deadline, bad input) ends
//   it at once, and with a single lane every error does.

#ifndef TENON_BACKENDS_SCHEDULE_GROUP_RUN_H_
#define TENON_BACKENDS_SCHEDULE_GROUP_RUN_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "backends/schedule/contraction_job_impl.h"
#include "backends/schedule/ordered_sum.h"

namespace tenon::schedule {

class ContractionJob::Impl::GroupRun {
 public:
  // `resume` has been checked and is needed only here; all else outlives the run.
  GroupRun(Impl& job, void* sum_memory, void* result, const ProgressFn& progress,
           Checkpoint* checkpoint, const ResumePoint& resume);

  // A worker's life: takes groups until none is left for its lane, or the run ends.
  void Work(int lane, int worker);
  // No worker of this lane could be started.
  void WithoutWorkers(int lane);

  // Once no worker is left.
  absl::Status status() const { return status_; }
  int64_t FinishResult() { return sum_.FinishResult(); }  // when none has failed
  int64_t slices_done() const { return now_.slices_done - resumed_slices_; }

 private:
  struct Task {
    OrderedSum::Claim claim;
    std::vector<int> failed_on;  // lanes
    absl::Status fault;          // the latest
    int faults_before = 0;       // of the lane, when it took the task
  };

  bool Next(int lane, Task* task);
  bool Take(int lane, Task* task);
  bool MayWork(int lane) const;
  absl::Status RunTask(int lane, int worker, Task& task);
  void Finish(int lane, const Task& task);
  void Fail(int lane, Task task, absl::Status error);
  bool IsHopeless() const;
  void Combine();
  void End(const absl::Status& status);
  void CountDone(int lane, const Task& task);

  Impl& job_;
  const ProgressFn& progress_;
  OrderedSum sum_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> returned_;  // failed, to be done by another lane
  int running_ = 0;             // tasks that were taken and have not come back
  bool ended_ = false;
  std::atomic<bool> over_{false};  // a worker has found nothing left
  absl::Status status_;
  int64_t resumed_slices_ = 0;
  Progress now_;
  Clock::time_point last_progress_ = start_;
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_GROUP_RUN_H_
