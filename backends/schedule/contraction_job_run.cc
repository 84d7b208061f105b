// The running half of a ContractionJob: sets, groups, workers.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/core/binary_scale.h"
#include "backends/core/cpu_share.h"
#include "backends/schedule/contraction_job_impl.h"
#include "backends/schedule/ordered_sum.h"

namespace tenon::schedule {
namespace {

constexpr std::chrono::milliseconds kProgressInterval(200);

}  // namespace

absl::Status ContractionJob::Impl::RunOneGroup(Lane& lane, int worker, int64_t group,
                                               void* partial_sum, int64_t* group_exponent) {
  const PreparedContraction::Group at = prepared->GroupAt(group);
  return lane.execution->RunGroup(worker, at.block, at.first_slice, at.last_slice, partial_sum,
                                  group_exponent);
}

// The only group of the only block: its partial sum is the result.
absl::Status ContractionJob::Impl::RunInPlace(void* result) {
  int64_t sum_exponent = 0;
  TENON_RETURN_IF_ERROR(
      RunOneGroup(lanes.front(), 0, prepared->first_group, result, &sum_exponent));
  if (prepared->normalize) {
    const DType dtype = prepared->dtype;
    const int64_t count = prepared->program->descriptor().block_elements;
    exponent =
        ResultExponent(dtype, result, count, ScaleToUnit(dtype, result, sum_exponent, count));
  }
  report.slices_done += prepared->SlicesInRange();
  ++lanes.front().groups_done;
  return absl::OkStatus();
}

// One run over the groups: what its workers share.
class ContractionJob::Impl::GroupRun {
 public:
  GroupRun(Impl& job, void* sum_memory, void* result, const ProgressFn& progress)
      : job_(job),
        progress_(progress),
        sum_(*job.prepared->program, job.prepared->first_group, job.prepared->last_group,
             job.prepared->Window(), sum_memory, result) {
    now_ = job.NothingDone();
  }

  // A worker's life: takes groups until none is left or one has failed.
  void Work(Lane& lane, int worker) {
    OrderedSum::Claim claim;
    // Several providers' threads are not on one machine's cores alone.
    const auto has_turn = [&] {
      if (job_.lanes.size() == 1) CpuShare::AwaitTurn(worker, over_);
      return true;
    };
    while (has_turn() && sum_.Next(&claim)) {
      absl::Status done = job_.cancel->Check();
      if (done.ok()) {
        done = job_.RunOneGroup(lane, worker, claim.group, claim.partial_sum, &claim.exponent);
      }
      if (!done.ok()) {
        sum_.Stop();
        std::lock_guard lock(mutex_);
        status_.Update(done);
        break;
      }
      sum_.Finish(claim);
      Count(lane, claim.group);
    }
    over_ = true;  // nothing is left for those who are held back
    CpuShare::WakeAll();
  }

  absl::Status status() const { return status_; }
  // Once no worker is left and none has failed.
  int64_t FinishResult() { return sum_.FinishResult(); }
  int64_t slices_done() const { return now_.slices_done; }

 private:
  void Count(Lane& lane, int64_t group) {
    const PreparedContraction::Group at = job_.prepared->GroupAt(group);
    std::lock_guard lock(mutex_);
    now_.slices_done += at.last_slice - at.first_slice;
    ++lane.groups_done;
    if (!progress_ || Clock::now() - last_progress_ < kProgressInterval) return;
    last_progress_ = Clock::now();
    const double part = static_cast<double>(now_.slices_done) /
                        static_cast<double>(std::max<int64_t>(now_.slices_total, 1));
    now_.flops_done = now_.flops_total * part;
    now_.elapsed_seconds = SecondsSince(start_);
    now_.left_seconds = now_.elapsed_seconds * (1 / part - 1);
    progress_(now_);
  }

  Impl& job_;
  const ProgressFn& progress_;
  OrderedSum sum_;
  std::atomic<bool> over_{false};
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  absl::Status status_;
  Progress now_;
  Clock::time_point last_progress_ = start_;
};

// Threads for all workers but the first, which is the calling thread's. Work that is done sooner
// than threads start stays with the first: bits do not depend on who does it.
std::vector<std::jthread> ContractionJob::Impl::StartOthers(GroupRun& run) {
  constexpr double kWorthThreadsSeconds = 1e-4;
  std::vector<std::jthread> others;
  const double seconds = prepared->predicted_run_seconds * prepared->Workers();
  if (lanes.size() == 1 && seconds >= 0 && seconds < kWorthThreadsSeconds) return others;
  for (Lane& lane : lanes) {
    for (int worker = 0; worker < lane.plan->workers; ++worker) {
      if (&lane == &lanes.front() && worker == 0) continue;
      try {
        others.emplace_back([&run, &lane, worker] { run.Work(lane, worker); });
      } catch (const std::system_error&) {
        break;  // no more threads to be had: fewer workers do it, with the same bits
      }
    }
  }
  return others;
}

absl::Status ContractionJob::Impl::RunGroups(void* result, const ProgressFn& progress) {
  const int64_t sum_bytes = prepared->PartialSumBytes();
  void* sum_memory = memory->Allocate(sum_bytes, 64);
  if (sum_memory == nullptr) {
    return Error(Reason::kExceedsMemoryBudget,
                 StrCat("no memory for ", sum_bytes, " bytes of partial sums"))
        .Meta("requested_bytes", sum_bytes);
  }
  GroupRun run(*this, sum_memory, result, progress);
  {
    const std::vector<std::jthread> others = StartOthers(run);
    run.Work(lanes.front(), 0);
  }
  if (prepared->normalize && run.status().ok()) exponent = run.FinishResult();
  memory->Release(sum_memory, sum_bytes);
  report.slices_done += run.slices_done();
  return run.status();
}

absl::Status ContractionJob::Start(std::vector<const void*> operands) {
  const Clock::time_point start = Clock::now();
  TENON_RETURN_IF_ERROR(impl_->cancel->Check());
  impl_->operands = std::move(operands);
  // What providers may take: the plan less what the caller holds. Blocks are rounded up to cache
  // lines, hence the small allowance.
  const PreparedContraction& prepared = *impl_->prepared;
  const int64_t own = prepared.plan.Total() - prepared.plan.operands - prepared.plan.results;
  impl_->memory = std::make_unique<plugin::HostMemory>(own + (int64_t{1} << 16));
  TENON_RETURN_IF_ERROR(impl_->stack.Allocate(*prepared.program, prepared.varying, prepared.sets,
                                              impl_->memory.get(), &impl_->operands));
  for (Impl::Lane& lane : impl_->lanes) {
    tenon_execution_options options{};
    options.struct_size = sizeof(options);
    options.workers = lane.plan->workers;
    options.threads_per_worker = lane.plan->threads / lane.plan->workers;
    options.threads = lane.plan->threads;
    options.cancel = reinterpret_cast<const int32_t*>(impl_->cancel->flag());
    TENON_ASSIGN_OR_RETURN(lane.execution,
                           lane.plan->compiled->Begin(*impl_->memory, impl_->operands, options));
  }
  impl_->report.dispatch_seconds += SecondsSince(start);
  return absl::OkStatus();
}

// One run with the operands that are bound.
absl::Status ContractionJob::Impl::RunBound(void* result, const ProgressFn& progress) {
  for (Lane& lane : lanes) TENON_RETURN_IF_ERROR(lane.execution->BindSet(operands));
  if (prepared->WritesInPlace()) {
    TENON_RETURN_IF_ERROR(RunInPlace(result));
  } else {
    if (prepared->GroupShare() < 1) std::memset(result, 0, prepared->ResultBytes());
    TENON_RETURN_IF_ERROR(RunGroups(result, progress));
  }
  report.groups_done += prepared->last_group - prepared->first_group;
  return absl::OkStatus();
}

absl::Status ContractionJob::RunSets(std::span<const OperandSet> sets, const ProgressFn& progress) {
  const Clock::time_point start = Clock::now();
  Impl& job = *impl_;
  TENON_RETURN_IF_ERROR(job.cancel->Check());
  const std::vector<bool>& varying = job.prepared->varying;
  const size_t wanted = std::count(varying.begin(), varying.end(), true);
  for (const OperandSet& set : sets) {
    if (set.varying.size() < wanted)
      return Error(Reason::kInternal, "a varying operand is missing");
  }
  if (sets.empty() || static_cast<int64_t>(sets.size()) > sets_to_fill()) {
    return Error(Reason::kInternal, StrCat(sets.size(), " sets do not fit in a stack"));
  }
  absl::Status status;
  if (job.prepared->sets == 1) {
    auto next = sets.front().varying.begin();
    for (size_t i = 0; i < varying.size(); ++i) {
      if (varying[i]) job.operands[i] = *next++;
    }
    status = job.RunBound(sets.front().result, progress);
  } else {
    const int64_t first_slot = job.sets_done % job.prepared->sets;
    job.stack.Gather(sets, first_slot);
    status = job.RunBound(job.stack.results(), progress);
    if (status.ok()) job.stack.Scatter(sets, first_slot);
  }
  job.sets_done += static_cast<int64_t>(sets.size());
  job.report.dispatch_seconds += SecondsSince(start);
  // A provider reports "cancelled"; the token knows whether it was the client or the deadline.
  return status.code() == absl::StatusCode::kCancelled && !job.cancel->Check().ok()
             ? job.cancel->Check()
             : status;
}

absl::Status ContractionJob::RunSet(const std::vector<const void*>& varying, void* result,
                                    const ProgressFn& progress) {
  const OperandSet set{varying, result};
  return RunSets({&set, 1}, progress);
}

}  // namespace tenon::schedule
