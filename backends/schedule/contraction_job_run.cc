// The running half of a ContractionJob: sets, workers, and what goes to one lane or another.

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/core/binary_scale.h"
#include "backends/core/error.h"
#include "backends/plugin/provider_health.h"
#include "backends/schedule/contraction_job_impl.h"
#include "backends/schedule/group_run.h"
#include "backends/schedule/ordered_sum.h"

namespace tenon::schedule {

absl::Status ContractionJob::Impl::RunOneGroup(Lane& lane, int worker, int64_t group,
                                               void* partial_sum, int64_t* group_exponent) {
  const PreparedContraction::Group at = prepared->GroupAt(group);
  const Clock::time_point start = Clock::now();
  absl::Status outcome = lane.execution->RunGroup(worker, at.block, at.first_slice, at.last_slice,
                                                  partial_sum, group_exponent);
  if (group_observer != nullptr) {
    const bool moves = lanes.size() > 1 && plugin::ClassifyFault(outcome) != plugin::Fault::kNone;
    group_observer({.provider = lane.plan->provider->name(),
                    .worker = worker,
                    .group = group,
                    .slices = at.last_slice - at.first_slice,
                    .begin = start,
                    .end = Clock::now(),
                    .outcome = outcome,
                    .moves = moves});
  }
  return outcome;
}

// What a call for a whole lane failed with: OK when the others can do without it.
absl::Status ContractionJob::Impl::LaneFailed(Lane& lane, absl::Status error) {
  if (plugin::ClassifyFault(error) == plugin::Fault::kNone || lanes.size() == 1) return error;
  lane.out = true;
  first_fault.Update(error);
  const bool others =
      std::any_of(lanes.begin(), lanes.end(), [](const Lane& other) { return !other.out; });
  return others ? absl::OkStatus() : first_fault;
}

absl::Status ContractionJob::Impl::BindOperands() {
  for (Lane& lane : lanes) {
    if (lane.out) continue;
    absl::Status bound = lane.execution->BindSet(operands);
    if (!bound.ok()) TENON_RETURN_IF_ERROR(LaneFailed(lane, std::move(bound)));
  }
  return absl::OkStatus();
}

// The only group, by the first lane that can.
absl::Status ContractionJob::Impl::RunOnSomeLane(void* result, int64_t* sum_exponent) {
  const int64_t group = prepared->first_group;
  const Lane* failed = nullptr;
  absl::Status fault;
  for (Lane& lane : lanes) {
    if (lane.out) continue;
    const auto slot = lane.plan->provider->gate().Enter(this, *cancel);
    TENON_RETURN_IF_ERROR(slot.status());
    absl::Status done = RunOneGroup(lane, 0, group, result, sum_exponent);
    if (done.ok()) {
      ++lane.groups_done;
      if (failed == nullptr) return done;
      ++lane.groups_taken_over;
      report.moves.push_back({group, failed->name(), lane.name(), std::move(fault)});
      return absl::OkStatus();
    }
    const plugin::Fault kind = plugin::ClassifyFault(done);
    if (kind == plugin::Fault::kNone || lanes.size() == 1) return done;
    ++lane.groups_failed;
    lane.NoteFault(kind);
    first_fault.Update(done);
    failed = &lane;
    fault = std::move(done);
  }
  return first_fault;
}

// The only group of the only block: its partial sum is the result.
absl::Status ContractionJob::Impl::RunInPlace(void* result) {
  const int64_t count = prepared->program->descriptor().block_elements;
  const DType dtype = prepared->dtype;
  const auto bytes = static_cast<size_t>(prepared->ResultBytes());
  int64_t sum_exponent = 0;
  if (!resume.blocks.empty()) {
    if (bytes > 0) std::memcpy(result, resume.blocks.front().data.data(), bytes);
    sum_exponent = resume.blocks.front().exponent;
  } else {
    TENON_RETURN_IF_ERROR(RunOnSomeLane(result, &sum_exponent));
    if (prepared->normalize) sum_exponent = ScaleToUnit(dtype, result, sum_exponent, count);
    report.slices_done += prepared->SlicesInRange();
    ++report.groups_done;
    if (checkpoint != nullptr) {
      TENON_RETURN_IF_ERROR(
          checkpoint->BlockDone(0, sum_exponent, {static_cast<const std::byte*>(result), bytes}));
      TENON_RETURN_IF_ERROR(checkpoint->Combined({prepared->last_group, {}}));
    }
  }
  if (prepared->normalize) exponent = ResultExponent(dtype, result, count, sum_exponent);
  return absl::OkStatus();
}

// Threads for all workers but the first, which is the calling thread's. Work that is done sooner
// than threads start stays with the first: bits do not depend on who does it.
std::vector<std::jthread> ContractionJob::Impl::StartOthers(GroupRun& run) {
  constexpr double kWorthThreadsSeconds = 1e-4;
  std::vector<std::jthread> others;
  const double seconds = prepared->predicted_run_seconds * prepared->Workers();
  if (lanes.size() == 1 && seconds >= 0 && seconds < kWorthThreadsSeconds) return others;
  for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
    bool started = lane == 0;  // by the calling thread
    for (int worker = lane == 0 ? 1 : 0; worker < lanes[lane].plan->workers; ++worker) {
      try {
        others.emplace_back([&run, lane, worker] { run.Work(lane, worker); });
        started = true;
      } catch (const std::system_error&) {
        break;  // no more threads to be had: fewer workers do it, with the same bits
      }
    }
    if (!started) run.WithoutWorkers(lane);
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
  // Sets that were done meanwhile count as what a pause waits for.
  for (Lane& lane : lanes) lane.paused = false;
  int64_t groups_before = 0, groups_after = 0;
  for (const Lane& lane : lanes) groups_before += lane.groups_done;
  GroupRun run(*this, sum_memory, result, progress, checkpoint, resume);
  resume = ResumePoint();  // its bytes are in place
  {
    const std::vector<std::jthread> others = StartOthers(run);
    run.Work(0, 0);
  }
  for (const Lane& lane : lanes) groups_after += lane.groups_done;
  report.groups_done += groups_after - groups_before;
  if (prepared->normalize && run.status().ok()) exponent = run.FinishResult();
  memory->Release(sum_memory, sum_bytes);
  report.slices_done += run.slices_done();
  return run.status();
}

absl::Status ContractionJob::SetCheckpoint(Checkpoint* checkpoint, ResumePoint resume) {
  Impl& job = *impl_;
  const PreparedContraction& prepared = *job.prepared;
  const bool varies =
      std::find(prepared.varying.begin(), prepared.varying.end(), true) != prepared.varying.end();
  if (varies || prepared.sets > 1 || job.sets_done > 0 || job.checkpointed) {
    return Error(Reason::kWrongJobState,
                 "checkpoints are for jobs of one operand set, before it is run");
  }
  TENON_RETURN_IF_ERROR(OrderedSum::CheckResumePoint(*prepared.program, prepared.first_group,
                                                     prepared.last_group, resume));
  job.checkpointed = true;
  job.checkpoint = checkpoint;
  job.resume = std::move(resume);
  return absl::OkStatus();
}

void ContractionJob::SetGroupObserver(GroupFn observer) {
  impl_->group_observer = std::move(observer);
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
    auto execution = lane.plan->compiled->Begin(*impl_->memory, impl_->operands, options);
    if (!execution.ok()) {
      TENON_RETURN_IF_ERROR(impl_->LaneFailed(lane, execution.status()));
      continue;
    }
    lane.execution = *std::move(execution);
  }
  impl_->report.dispatch_seconds += SecondsSince(start);
  return absl::OkStatus();
}

// One run with the operands that are bound.
absl::Status ContractionJob::Impl::RunBound(void* result, const ProgressFn& progress) {
  TENON_RETURN_IF_ERROR(BindOperands());
  if (prepared->WritesInPlace()) {
    TENON_RETURN_IF_ERROR(RunInPlace(result));
  } else {
    if (prepared->GroupShare() < 1) std::memset(result, 0, prepared->ResultBytes());
    TENON_RETURN_IF_ERROR(RunGroups(result, progress));
  }
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
  if (job.checkpointed && job.sets_done > 0) {
    return Error(Reason::kWrongJobState, "a job with checkpoints runs one operand set");
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
