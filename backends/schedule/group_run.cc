#include "backends/schedule/group_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "backends/core/cpu_share.h"
#include "backends/core/error.h"
#include "backends/plugin/provider_health.h"

namespace tenon::schedule {
namespace {

constexpr std::chrono::milliseconds kProgressInterval(200);

bool Contains(const std::vector<int>& lanes, int lane) {
  return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
}

}  // namespace

ContractionJob::Impl::GroupRun::GroupRun(Impl& job, void* sum_memory, void* result,
                                         const ProgressFn& progress, Checkpoint* checkpoint,
                                         const ResumePoint& resume)
    : job_(job),
      progress_(progress),
      sum_(*job.prepared->program, job.prepared->first_group, job.prepared->last_group,
           job.prepared->Window(), sum_memory, result, checkpoint) {
  sum_.Resume(resume);
  now_ = job.NothingDone();
  resumed_slices_ = job.prepared->SlicesBelow(resume.next_group);
  now_.slices_done = resumed_slices_;
}

void ContractionJob::Impl::GroupRun::Work(int lane, int worker) {
  Task task;
  // Several providers' threads are not on one machine's cores alone.
  const auto has_turn = [&] {
    if (job_.lanes.size() == 1) CpuShare::AwaitTurn(worker, over_);
    return true;
  };
  while (has_turn() && Next(lane, &task)) {
    absl::Status done = RunTask(lane, worker, task);
    if (done.ok()) {
      Finish(lane, task);
    } else {
      Fail(lane, std::move(task), std::move(done));
    }
    task = Task();
  }
  over_ = true;  // nothing is left for those who are held back
  CpuShare::WakeAll();
}

void ContractionJob::Impl::GroupRun::WithoutWorkers(int lane) {
  std::lock_guard lock(mutex_);
  job_.lanes[lane].out = true;
  if (IsHopeless()) End(job_.first_fault);
}

bool ContractionJob::Impl::GroupRun::MayWork(int lane) const {
  return !job_.lanes[lane].out && !job_.lanes[lane].paused;
}

bool ContractionJob::Impl::GroupRun::Take(int lane, Task* task) {
  if (!MayWork(lane)) return false;
  const auto fitting =
      std::find_if(returned_.begin(), returned_.end(),
                   [lane](const Task& returned) { return !Contains(returned.failed_on, lane); });
  if (fitting != returned_.end()) {
    *task = std::move(*fitting);
    returned_.erase(fitting);
  } else if (!sum_.TryNext(&task->claim)) {
    return false;
  }
  task->faults_before = job_.lanes[lane].faults;
  ++running_;
  return true;
}

// The next task for this lane, waiting as long as one may come; false when none will.
bool ContractionJob::Impl::GroupRun::Next(int lane, Task* task) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (ended_ || job_.lanes[lane].out) return false;
    if (Take(lane, task)) return true;
    // Without another lane nothing comes back.
    const bool may_return = job_.lanes.size() > 1 && running_ > 0;
    if (sum_.AllClaimed() && returned_.empty() && !may_return) return false;
    changed_.wait(lock);
  }
}

absl::Status ContractionJob::Impl::GroupRun::RunTask(int lane, int worker, Task& task) {
  Lane& on = job_.lanes[lane];
  const auto slot = on.plan->provider->gate().Enter(&job_, *job_.cancel);
  TENON_RETURN_IF_ERROR(slot.status());
  return job_.RunOneGroup(on, worker, task.claim.group, task.claim.partial_sum,
                          &task.claim.exponent);
}

void ContractionJob::Impl::GroupRun::Finish(int lane, const Task& task) {
  sum_.Finish(task.claim);
  Combine();
  CountDone(lane, task);
}

// Combines what is next in order; whoever waits for a buffer is told after each group.
void ContractionJob::Impl::GroupRun::Combine() {
  for (;;) {
    const absl::StatusOr<bool> combined = sum_.CombineNext();
    if (!combined.ok()) {
      std::lock_guard lock(mutex_);
      End(combined.status());
      return;
    }
    if (!*combined) return;
    {
      std::lock_guard lock(mutex_);  // nobody is between looking and waiting
    }
    changed_.notify_all();
  }
}

void ContractionJob::Impl::GroupRun::CountDone(int lane, const Task& task) {
  const PreparedContraction::Group at = job_.prepared->GroupAt(task.claim.group);
  std::lock_guard lock(mutex_);
  --running_;
  Lane& on = job_.lanes[lane];
  ++on.groups_done;
  if (!task.failed_on.empty()) {
    ++on.groups_taken_over;
    job_.report.moves.push_back(
        {task.claim.group, job_.lanes[task.failed_on.back()].name(), on.name(), task.fault});
  }
  for (Lane& other : job_.lanes) {
    if (&other != &on) other.paused = false;
  }
  changed_.notify_all();
  now_.slices_done += at.last_slice - at.first_slice;
  if (!progress_ || Clock::now() - last_progress_ < kProgressInterval) return;
  last_progress_ = Clock::now();
  const auto total = static_cast<double>(std::max<int64_t>(now_.slices_total, 1));
  now_.flops_done = now_.flops_total * (static_cast<double>(now_.slices_done) / total);
  now_.elapsed_seconds = SecondsSince(start_);
  now_.left_seconds = now_.elapsed_seconds *
                      static_cast<double>(now_.slices_total - now_.slices_done) /
                      static_cast<double>(slices_done());
  progress_(now_);
}

void ContractionJob::Impl::GroupRun::Fail(int lane, Task task, absl::Status error) {
  std::lock_guard lock(mutex_);
  --running_;
  const plugin::Fault fault = plugin::ClassifyFault(error);
  if (fault == plugin::Fault::kNone || job_.lanes.size() == 1) return End(error);
  Lane& on = job_.lanes[lane];
  ++on.groups_failed;
  job_.first_fault.Update(error);
  // Groups that ran side by side fail together: that is one fault, unless the device is lost.
  if (task.faults_before == on.faults) {
    on.NoteFault(fault);
  } else if (fault == plugin::Fault::kSticky) {
    on.out = true;
  }
  task.failed_on.push_back(lane);
  task.fault = std::move(error);
  returned_.push_back(std::move(task));
  if (IsHopeless()) End(job_.first_fault);
  changed_.notify_all();
}

// Whether what is left will never be done: a group has no lane left, or nobody works and nobody
// may.
bool ContractionJob::Impl::GroupRun::IsHopeless() const {
  bool may_go_on = running_ > 0;
  for (const Task& task : returned_) {
    bool has_lane = false;
    for (int lane = 0; lane < static_cast<int>(job_.lanes.size()); ++lane) {
      if (job_.lanes[lane].out || Contains(task.failed_on, lane)) continue;
      has_lane = true;
      may_go_on = may_go_on || MayWork(lane);
    }
    if (!has_lane) return true;
  }
  bool all_out = true;
  for (int lane = 0; lane < static_cast<int>(job_.lanes.size()); ++lane) {
    all_out = all_out && job_.lanes[lane].out;
    may_go_on = may_go_on || (MayWork(lane) && sum_.HasNext());
  }
  return (all_out && !sum_.AllClaimed()) || !may_go_on;
}

void ContractionJob::Impl::GroupRun::End(const absl::Status& status) {
  status_.Update(status);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace tenon::schedule
