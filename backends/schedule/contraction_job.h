// One contraction request inside the engine: planned, compiled, given memory, run set by set.
//
// Life: Prepare (no request-sized memory is taken) -> the caller admits plan().Total() bytes ->
// operands arrive in buffers of the caller -> Start -> RunSet per operand set -> Report. One thread
// drives a job; the job itself uses many.
//
// Sets computed together. When several sets are expected, the program computes a stack of
// sets_together() of them in one run (set_stack.h), and always does: set number n lies in slot
// n mod sets_together() of its run, and slots whose set has not come repeat another's operands. So
// the program, its fingerprint and the bits of a set are the same however many sets happened to be
// there; a lone set only costs the time of a whole stack. Who means to wait for each result before
// sending the next set says so by expecting one set, or leaves the number unknown.

#ifndef TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_H_
#define TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contraction/program.h"
#include "backends/core/cancel.h"
#include "backends/core/network.h"
#include "backends/plugin/provider.h"
#include "backends/schedule/checkpoint.h"
#include "backends/schedule/set_stack.h"

namespace tenon::schedule {

// What to contract and how. Zero or empty means "the engine's default" unless said otherwise.
struct ContractionRequest {
  Network network;
  std::vector<TensorSpec> operands;  // contraction types; they promote to one dtype
  std::vector<bool> varying;         // per operand; empty: none
  int64_t expected_sets = 0;         // sets that will come, 0 unknown: sets are not stacked
  int64_t max_sets_together = 0;     // 0: the engine's choice
  std::optional<DType> dtype;        // compute type; default: the promoted type of the operands
  bool accumulate_double = false;
  bool normalize = false;           // results are mantissas, see ContractionJob::exponent
  std::optional<PathSteps> path;    // absent: planned by the engine
  std::vector<std::string> sliced;  // goes with `path`
  // Whether indices may be sliced to meet the two limits below, when `sliced` is empty.
  bool allow_slicing = true;
  bool allow_output_slicing = false;        // those of the output too
  double target_elements = 0;               // largest pair result of a slice, 0 no limit
  int64_t memory_budget_bytes = 0;          // planned peak must fit, 0 no limit
  int threads = 0;                          // 0: all the process may use
  int64_t first_group = 0, last_group = 0;  // [first, last) of slice groups; 0,0: all
};

// Where the seconds went; see design "Timing and memory, said precisely".
struct ContractionReport {
  bool cached = false;          // nothing was planned, lowered or compiled
  double setup_seconds = 0;     // planning, lowering, compiling, or finding it in the cache
  double planning_seconds = 0;  // of them, finding a path and slices; 0 when both were given
  double compile_seconds = 0;   // of them, lowering and compiling
  double dispatch_seconds = 0;  // in Start and RunSet, on the host
  // From Start's and RunSet's begin to the completion of their work; negative when a provider can't
  // tell when it was complete.
  double execution_seconds = 0;
  int timing_scope = 1;  // as tenon_run_statistics, the weakest of the providers'
  int64_t slices_done = 0;
  int64_t groups_done = 0;
  double flops_done = 0;            // real floating-point operations
  int64_t measured_peak_bytes = 0;  // operands + results + what providers took
  struct Kernel {
    std::string name;
    std::string kind;                   // "contract" or "unary"
    int64_t steps = 0;                  // of the program that use it
    int64_t runs = 0;                   // over all slices and sets
    double flops = 0;                   // real floating-point operations
    std::optional<double> seconds;      // summed over workers; absent when steps are not timed
    std::vector<std::string> refusals;  // distinct: why better-listed kernels were not used
  };
  struct PerProvider {
    std::string name;
    tenon_run_statistics statistics{};
    int64_t groups = 0;             // completed
    int64_t groups_failed = 0;      // that it failed and gave back
    int64_t groups_taken_over = 0;  // of the completed, those that another provider had failed
    int workers = 0;
    std::vector<Kernel> kernels;  // most used first
  };
  std::vector<PerProvider> providers;
  // A group that one provider failed and another completed.
  struct Move {
    int64_t group = 0;
    std::string from, to;  // providers; the last that failed it
    absl::Status fault;
  };
  std::vector<Move> moves;  // in order of completion
};

class ProgramCache;  // backends/schedule/program_cache.h

class ContractionJob {
 public:
  // Slices and real flops done of total, over the current set. Called from a worker thread, at most
  // a few times per second, never by two at once; must not block.
  struct Progress {
    int64_t slices_done = 0, slices_total = 0;
    double flops_done = 0, flops_total = 0;
    double elapsed_seconds = 0;
    std::optional<double> left_seconds;
  };
  using ProgressFn = std::function<void(const Progress&)>;
  // The progress of a set that has not begun.
  Progress NothingDone() const;

  // Checks, plans, lowers and compiles. Everything that can be refused is refused here. `cancel`
  // outlives the job. Errors' fields are named after the parts of a request: "operands[i]...",
  // "output[i]", "index_sizes[...]", "path.steps[s]", "sliced[i]", "target_size",
  // "execution.providers", "execution.memory_budget_bytes", "execution.slice_groups",
  // "result.dtype".
  //
  // Besides the errors of the engine's checks: EXCEEDS_MEMORY_BUDGET (that of PeakRefusal) when one
  // worker does not fit and slicing does not help; UNREACHABLE_TARGET when no slicing reaches
  // target_elements; BAD_SLICE for a range of groups that is no node of the tree;
  // UNSUPPORTED_DTYPE, UNSUPPORTED_BY_PROVIDER.
  //
  // With a cache, which outlives the call, an equal request with the same providers is found there
  // instead; only what can be prepared is stored.
  static absl::StatusOr<std::unique_ptr<ContractionJob>> Prepare(
      const ContractionRequest& request,
      const std::vector<std::shared_ptr<plugin::Provider>>& providers, const CancelToken* cancel,
      ProgramCache* cache = nullptr);
  // Predicted seconds of one run, where Prepare would find the request in the cache and its
  // provider has a time model: then preparing takes microseconds. Absent otherwise.
  static std::optional<double> SecondsIfPrepared(
      const ContractionRequest& request,
      const std::vector<std::shared_ptr<plugin::Provider>>& providers, ProgramCache* cache);
  ~ContractionJob();

  // Of one set.
  const contraction::Expression& expression() const;
  const contraction::Path& path() const;
  // In the order in which slices are walked, outermost first.
  const std::vector<int>& sliced() const;
  // What one run computes: sets_together() sets, a leading axis of the output when there are
  // several.
  const contraction::Program& program() const;
  // Sets that one run computes: >= 1, and 1 with `normalize`, because a tensor has one exponent.
  int64_t sets_together() const;
  // Sets that the next call of RunSets may bring, 1 to sets_together().
  int64_t sets_to_fill() const;
  // The result of one set.
  TensorSpec result_spec() const;
  // Of one set, without hoisting and sharing.
  const contraction::PathCost& cost() const;
  // The same without slices.
  const contraction::PathCost& unsliced_cost() const;
  const contraction::MemoryPlan& plan() const;
  // Workers that would run if the budget did not matter.
  int64_t unconstrained_workers() const;
  DType dtype() const;
  // Threads that all workers have together.
  int threads() const;
  // Of the compiled program on the first provider: what decides the bits of the result.
  std::string fingerprint() const;
  // Of one set; absent when the first provider has no model.
  std::optional<double> predicted_seconds() const;
  // The implementation that the first provider chose for step `step` of program().
  std::string_view StepKernelName(int step) const;
  // Of one run on one thread, as the first provider predicts it; absent when it doesn't.
  std::optional<double> StepPredictedSeconds(int step) const;
  // Real flops of the steps that are run once for all sets; part of program().total_flops().
  double shared_flops() const;
  // The part of one set in `flops`, which are the shared and other flops of one run: all of the
  // shared ones and its share of the others.
  double OneSetFlops(double flops) const;

  // Has the only run of this job tell its state to `checkpoint` (null: nobody), which outlives the
  // run, and begin at `resume`, whose bytes are the caller's as far as plan() is concerned; they
  // are given back when the run begins. Once, before RunSets; the job then runs one set. Its bits
  // are those of a run that was never interrupted. Groups that `resume` holds count as done in
  // Progress, not as work in the report. WRONG_JOB_STATE: the job has varying operands, computes
  // sets together, or has begun. BAD_PARAMETER, field "resume", for a resume point that this
  // program can't have had: a group outside the range, missing, repeated or foreign blocks and
  // levels, data of another size.
  absl::Status SetCheckpoint(Checkpoint* checkpoint, ResumePoint resume);
  // One run of a slice group.
  struct GroupEvent {
    std::string_view provider;
    int worker = 0;  // of the provider, from 0
    int64_t group = 0, slices = 0;
    std::chrono::steady_clock::time_point begin, end;
    absl::Status outcome;
    bool moves = false;  // it failed, and another provider may take it over
  };
  // Told of every run of a slice group as it ends. Called from workers, by several at once; must
  // not block.
  using GroupFn = std::function<void(const GroupEvent& event)>;
  // Before Start; null: nobody is told.
  void SetGroupObserver(GroupFn observer);

  // Takes the memory; `operands` are in dtype() (see ConvertTensor) and outlive the job; varying
  // ones may be null. Once, before the first set. A provider that fails here takes no part, where
  // others are left.
  absl::Status Start(std::vector<const void*> operands);
  // Contracts the next sets_to_fill() sets or fewer, at least one, in their order; `varying` of
  // each replaces the varying operands, in operand order. They and the results, which are disjoint,
  // are needed until this returns. A result has result_spec() and is written completely (with a
  // group range: the partial sum of that range, other blocks zero). After an error the job may only
  // be asked for its report.
  //
  // What a provider fails is done by the others, where the request names several (group_run.h tells
  // how); when none is left, the first fault comes back: DEVICE_FAULT, NO_DEVICE, DEVICE_MEMORY or
  // INTERNAL, metadata provider.
  absl::Status RunSets(std::span<const OperandSet> sets, const ProgressFn& progress);
  // RunSets for a single set.
  absl::Status RunSet(const std::vector<const void*>& varying, void* result,
                      const ProgressFn& progress);
  // With normalize, of the latest result: the true one is `result` * 2^exponent. Its largest finite
  // magnitude (of complex numbers: of their parts) is in [0.5, 1); kNoExponent (see
  // backends/core/binary_scale.h) when all of it is zero; 0 when no finite element differs from
  // zero but some are NaN or infinite. Absent without normalize, and before the first set.
  //
  // No step over- or underflows as a whole. Elements that are smaller than the largest of their own
  // tensor by about half the element type's range may still underflow.
  std::optional<int64_t> exponent() const;
  // The same as a power of ten: exponent * log10(2), -infinity for a zero result.
  std::optional<double> log10_scale() const;
  // Whether work is complete when a call returns (timing scope 1, on all providers); before Start
  // that is not known and false.
  bool host_timed() const;
  ContractionReport Report() const;

 private:
  struct Impl;
  explicit ContractionJob(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_CONTRACTION_JOB_H_
