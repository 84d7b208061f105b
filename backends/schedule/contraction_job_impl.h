// What a ContractionJob holds. For contraction_job*.cc alone.

#ifndef TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_IMPL_H_
#define TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_IMPL_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/schedule/contraction_job.h"
#include "backends/schedule/ordered_sum.h"
#include "backends/schedule/set_stack.h"

namespace tenon::schedule {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Larger than any machine's memory, small enough that a few terms never overflow.
constexpr int64_t kHugeBytes = int64_t{1} << 50;

// count * size, or kHugeBytes when that is less.
inline int64_t CappedBytes(__int128 count, int64_t size) {
  return static_cast<int64_t>(std::min<__int128>(count * size, kHugeBytes));
}

struct ContractionJob::Impl {
  struct Lane {  // one provider's share of the job
    std::shared_ptr<plugin::Provider> provider;
    std::unique_ptr<plugin::Compiled> compiled;
    std::unique_ptr<plugin::Execution> execution;
    int workers = 1;
    int threads_per_worker = 1;
    int64_t groups_done = 0;
  };

  class GroupRun;

  ContractionRequest request;
  const CancelToken* cancel = nullptr;
  contraction::Expression expression;  // of one set
  int64_t sets = 1;                    // that one run computes
  int64_t sets_done = 0;
  contraction::Path path;
  std::vector<int> sliced;
  DType dtype = DType::kFloat64;
  int threads = 1;
  int64_t first_group = 0, last_group = 0;
  int64_t unconstrained_workers = 1;
  // Destroyed bottom up: executions give their memory back before `memory` goes, compiled programs
  // go before the program they point to.
  std::shared_ptr<const contraction::Program> program;
  contraction::MemoryPlan plan;
  std::unique_ptr<plugin::HostMemory> memory;
  SetStack stack;
  std::vector<Lane> lanes;
  std::vector<const void*> operands;
  ContractionReport report;
  std::optional<int64_t> exponent;  // of the latest result

  absl::Status MakePlan(int64_t max_sets);
  absl::Status CheckGroupRange() const;
  absl::Status Lower(int64_t intermediate_bytes = 0);
  void DivideWorkers(int workers);
  void ComputeMemoryPlan();
  absl::Status FitBudget();
  absl::Status ReduceReuse(absl::Status refusal, bool at_any_price);
  absl::Status LowerToBudget();
  absl::Status CheckStackTarget() const;

  bool WritesInPlace() const {
    return program->descriptor().n_blocks == 1 && last_group - first_group == 1;
  }
  int Workers() const {
    int workers = 0;
    for (const Lane& lane : lanes) workers += lane.workers;
    return workers;
  }
  int Window() const {
    return static_cast<int>(std::min<int64_t>(last_group - first_group, 2 * Workers()));
  }
  int64_t ResultBytes() const {  // of a run
    const tenon_program& descriptor = program->descriptor();
    return CappedBytes(__int128{descriptor.block_elements} * descriptor.n_blocks, DTypeSize(dtype));
  }
  int64_t PartialSumBytes() const {
    return OrderedSum::BytesNeeded(*program, first_group, last_group, Window(), kHugeBytes);
  }
  double GroupShare() const {  // of all groups of the program, those of this job
    return static_cast<double>(last_group - first_group) /
           static_cast<double>(std::max<int64_t>(program->n_groups(), 1));
  }
  // Stacks are rather made smaller than sliced.
  bool MaySlice() const { return request.allow_slicing && request.sliced.empty() && sets == 1; }
  int64_t StackBytes() const {
    return SetStack::BytesNeeded(*program, request.varying, sets, kHugeBytes);
  }

  void GroupRange(int64_t group, int64_t* block, int64_t* first, int64_t* last) const {
    *block = group / program->groups_per_block();
    *first = group % program->groups_per_block() * program->group_slices();
    *last = std::min(*first + program->group_slices(), program->descriptor().slices_per_block);
  }
  int64_t SlicesInRange() const;
  Progress NothingDone() const {
    Progress progress;
    progress.slices_total = SlicesInRange();
    progress.flops_total = program->total_flops() * GroupShare();
    return progress;
  }
  absl::Status RunOneGroup(Lane& lane, int worker, int64_t group, void* partial_sum,
                           int64_t* group_exponent);
  absl::Status RunInPlace(void* result);
  absl::Status RunBound(void* result, const ProgressFn& progress);
  absl::Status RunGroups(void* result, const ProgressFn& progress);
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_IMPL_H_
