#include "backends/schedule/contraction_job.h"

#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/core/binary_scale.h"
#include "backends/schedule/compute_type.h"
#include "backends/schedule/kernel_work.h"
#include "backends/schedule/ordered_sum.h"

namespace tenon::schedule {
namespace {

using Clock = std::chrono::steady_clock;
using contraction::Expression;
using contraction::MemoryPlan;
using contraction::Path;
using contraction::Program;
using plugin::Compiled;
using plugin::Execution;
using plugin::Provider;

constexpr std::chrono::milliseconds kProgressInterval(200);

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Larger than any machine's memory, small enough that a few terms never overflow.
constexpr int64_t kHugeBytes = int64_t{1} << 50;

// count * size, or kHugeBytes when that is less.
int64_t CappedBytes(__int128 count, int64_t size) {
  return static_cast<int64_t>(std::min<__int128>(count * size, kHugeBytes));
}

std::vector<std::vector<int64_t>> Shapes(const std::vector<TensorSpec>& operands) {
  std::vector<std::vector<int64_t>> shapes;
  shapes.reserve(operands.size());
  for (const TensorSpec& spec : operands) shapes.push_back(spec.shape);
  return shapes;
}

// The slicer's refusal as the caller's target that can't be met.
absl::Status Unreachable(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  if (details.reason != Reason::kExceedsMemoryBudget) return status;
  Error error(Reason::kUnreachableTarget, std::string(ToStd(status.message())));
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
  return std::move(error).Field("target_size");
}

}  // namespace

struct ContractionJob::Impl {
  struct Lane {  // one provider's share of the job
    std::shared_ptr<Provider> provider;
    std::unique_ptr<Compiled> compiled;
    std::unique_ptr<Execution> execution;
    int workers = 1;
    int threads_per_worker = 1;
    int64_t groups_done = 0;
  };

  class GroupRun;

  ContractionRequest request;
  const CancelToken* cancel = nullptr;
  Expression expression;
  Path path;
  std::vector<int> sliced;
  DType dtype = DType::kFloat64;
  int threads = 1;
  int64_t first_group = 0, last_group = 0;
  int64_t unconstrained_workers = 1;
  // Destroyed bottom up: executions give their memory back before `memory` goes, compiled programs
  // go before the program they point to.
  std::shared_ptr<const Program> program;
  MemoryPlan plan;
  std::unique_ptr<plugin::HostMemory> memory;
  std::vector<Lane> lanes;
  std::vector<const void*> operands;
  ContractionReport report;
  std::optional<int64_t> exponent;  // of the latest result

  absl::Status MakePlan();
  absl::Status CheckGroupRange() const;
  absl::Status Lower();
  void DivideWorkers(int workers);
  void ComputeMemoryPlan();
  absl::Status FitBudget();
  absl::Status LowerToBudget();

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
  int64_t PartialSumBytes() const {
    return OrderedSum::BytesNeeded(*program, first_group, last_group, Window(), kHugeBytes);
  }
  double GroupShare() const {  // of all groups of the program, those of this job
    return static_cast<double>(last_group - first_group) /
           static_cast<double>(std::max<int64_t>(program->n_groups(), 1));
  }
  bool MaySlice() const { return request.allow_slicing && request.sliced.empty(); }

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
  absl::Status RunGroups(void* result, const ProgressFn& progress);
};

// Path and slices: the caller's when given, else found here.
absl::Status ContractionJob::Impl::MakePlan() {
  TENON_ASSIGN_OR_RETURN(expression,
                         contraction::MakeExpression(request.network, Shapes(request.operands)));
  const Clock::time_point start = Clock::now();
  if (request.path.has_value()) {
    TENON_ASSIGN_OR_RETURN(path,
                           contraction::MakePath(*request.path, request.network.inputs.size()));
  } else {
    path = contraction::GreedyPath(expression);
  }
  TENON_ASSIGN_OR_RETURN(sliced, contraction::MakeSliced(expression, request.sliced));
  if (MaySlice() && request.target_elements > 0) {
    auto found = contraction::SliceToTarget(expression, path, request.target_elements,
                                            request.allow_output_slicing);
    if (!found.ok()) return Unreachable(found.status());
    sliced = *std::move(found);
  }
  if (!request.path.has_value() || MaySlice()) report.planning_seconds = SecondsSince(start);
  return absl::OkStatus();
}

// A range covers whole blocks, or is a node of the tree of one block.
absl::Status ContractionJob::Impl::CheckGroupRange() const {
  const int64_t per_block = program->groups_per_block();
  const bool inside =
      first_group >= 0 && first_group < last_group && last_group <= program->n_groups();
  const bool whole_blocks = first_group % per_block == 0 && last_group % per_block == 0;
  const int64_t first = first_group % per_block;
  const bool node = inside &&
                    OrderedSum::IsNode(first, first + last_group - first_group, per_block) &&
                    first + last_group - first_group <= per_block;
  if (program->n_groups() == 0 || (inside && (whole_blocks || node))) return absl::OkStatus();
  return Error(Reason::kBadSlice,
               StrCat("slice groups [", first_group, ", ", last_group,
                      ") are no node of the sum of ", program->n_groups(), " groups"))
      .Field("execution.slice_groups")
      .Meta("groups", program->n_groups());
}

// Lowers, compiles for every provider and computes the plan of memory, with all workers wanted.
absl::Status ContractionJob::Impl::Lower() {
  const Clock::time_point start = Clock::now();
  for (Lane& lane : lanes) lane.compiled.reset();
  contraction::LoweringOptions options;
  options.dtype = dtype;
  options.accumulate_double = request.accumulate_double;
  options.varying = request.varying;
  options.normalize = request.normalize;
  TENON_ASSIGN_OR_RETURN(program, contraction::LowerProgram(expression, path, sliced, options));
  first_group = request.first_group;
  last_group = request.last_group == 0 ? program->n_groups() : request.last_group;
  TENON_RETURN_IF_ERROR(CheckGroupRange());
  for (Lane& lane : lanes) {
    tenon_compile_options compile{sizeof(tenon_compile_options), threads, 0, 0};
    TENON_ASSIGN_OR_RETURN(lane.compiled, lane.provider->Compile(program->descriptor(), compile));
  }
  DivideWorkers(threads);
  unconstrained_workers = plan.workers;
  report.compile_seconds += SecondsSince(start);
  return absl::OkStatus();
}

// Spreads up to `workers` workers over the providers; each gets at least one, and threads that are
// left over work inside the steps.
void ContractionJob::Impl::DivideWorkers(int workers) {
  const int64_t groups = std::max<int64_t>(last_group - first_group, 1);
  for (Lane& lane : lanes) {
    const int64_t share = std::max<int64_t>(workers / static_cast<int>(lanes.size()), 1);
    lane.workers = static_cast<int>(
        std::min({share, groups, std::max<int64_t>(lane.provider->info().max_workers, 1)}));
    lane.threads_per_worker = std::max(1, threads / static_cast<int>(lanes.size()) / lane.workers);
  }
  ComputeMemoryPlan();
}

void ContractionJob::Impl::ComputeMemoryPlan() {
  const int64_t size = DTypeSize(dtype);
  const tenon_program& descriptor = program->descriptor();
  __int128 operands = 0, constants = 0, library = 0;
  for (int i = 0; i < descriptor.n_operands; ++i) operands += descriptor.operand_elements[i];
  plan = MemoryPlan();
  for (const Lane& lane : lanes) {
    constants += __int128{descriptor.constant_elements} + descriptor.set_elements;
    library += lane.compiled->info().shared_bytes;
    plan.worker_library = std::max(plan.worker_library, lane.compiled->info().worker_bytes);
  }
  plan.operands = CappedBytes(operands, size);
  plan.results = CappedBytes(__int128{descriptor.block_elements} * descriptor.n_blocks, size);
  plan.prologue = CappedBytes(constants, size);
  plan.workers = Workers();
  plan.worker_library = CappedBytes(plan.worker_library, 1);
  plan.shared_library = CappedBytes(library, 1);
  plan.worker_arena = CappedBytes(descriptor.arena_elements, size);
  plan.partial_sums = WritesInPlace() ? 0 : PartialSumBytes();
}

// Fewer workers until the plan meets the budget.
absl::Status ContractionJob::Impl::FitBudget() {
  const int64_t budget = request.memory_budget_bytes > 0 ? request.memory_budget_bytes : kHugeBytes;
  for (int workers = Workers(); plan.Total() > budget && workers > 1; --workers) {
    DivideWorkers(workers - 1);
  }
  if (plan.Total() <= budget) return absl::OkStatus();
  return Error(Reason::kExceedsMemoryBudget,
               StrCat("the planned peak of ", plan.Total(), " bytes exceeds the budget of ", budget,
                      " bytes"))
      .Field("execution.memory_budget_bytes")
      .Meta("planned_peak_bytes", plan.Total())
      .Meta("memory_budget_bytes", budget)
      .Meta("smallest_budget_bytes", plan.Total());
}

// With a free hand over the slices, halves the largest intermediate until the budget is met.
absl::Status ContractionJob::Impl::LowerToBudget() {
  TENON_RETURN_IF_ERROR(Lower());
  absl::Status fits = FitBudget();
  double target = static_cast<double>(program->largest_intermediate_elements());
  // Slicing changes neither operands nor results.
  const bool hopeless = plan.operands + plan.results > request.memory_budget_bytes;
  while (!fits.ok() && MaySlice() && !hopeless && target > 1) {
    TENON_RETURN_IF_ERROR(cancel->Check());
    const Clock::time_point start = Clock::now();
    target /= 2;
    auto more = contraction::SliceToTarget(expression, path, target, request.allow_output_slicing);
    report.planning_seconds += SecondsSince(start);
    if (!more.ok()) break;
    if (*more == sliced) continue;
    sliced = *std::move(more);
    TENON_RETURN_IF_ERROR(Lower());
    fits = FitBudget();
  }
  return fits;
}

// Slices of the groups of this job.
int64_t ContractionJob::Impl::SlicesInRange() const {
  if (first_group == last_group) return 0;
  int64_t first_block, last_block, first, last, unused;
  GroupRange(first_group, &first_block, &first, &unused);
  GroupRange(last_group - 1, &last_block, &unused, &last);
  return (last_block - first_block) * program->descriptor().slices_per_block + last - first;
}

absl::Status ContractionJob::Impl::RunOneGroup(Lane& lane, int worker, int64_t group,
                                               void* partial_sum, int64_t* group_exponent) {
  int64_t block, first, last;
  GroupRange(group, &block, &first, &last);
  return lane.execution->RunGroup(worker, block, first, last, partial_sum, group_exponent);
}

// The only group of the only block: its partial sum is the result.
absl::Status ContractionJob::Impl::RunInPlace(void* result) {
  int64_t sum_exponent = 0;
  TENON_RETURN_IF_ERROR(RunOneGroup(lanes.front(), 0, first_group, result, &sum_exponent));
  if (request.normalize) {
    const int64_t count = program->descriptor().block_elements;
    exponent =
        ResultExponent(dtype, result, count, ScaleToUnit(dtype, result, sum_exponent, count));
  }
  report.slices_done += SlicesInRange();
  ++lanes.front().groups_done;
  return absl::OkStatus();
}

// One run over the groups: what its workers share.
class ContractionJob::Impl::GroupRun {
 public:
  GroupRun(Impl& job, void* sum_memory, void* result, const ProgressFn& progress)
      : job_(job),
        progress_(progress),
        sum_(*job.program, job.first_group, job.last_group, job.Window(), sum_memory, result) {
    now_ = job.NothingDone();
  }

  // A worker's life: takes groups until none is left or one has failed.
  void Work(Lane& lane, int worker) {
    OrderedSum::Claim claim;
    while (sum_.Next(&claim)) {
      absl::Status done = job_.cancel->Check();
      if (done.ok()) {
        done = job_.RunOneGroup(lane, worker, claim.group, claim.partial_sum, &claim.exponent);
      }
      if (!done.ok()) {
        sum_.Stop();
        std::lock_guard lock(mutex_);
        status_.Update(done);
        return;
      }
      sum_.Finish(claim);
      Count(lane, claim.group);
    }
  }

  absl::Status status() const { return status_; }
  // Once no worker is left and none has failed.
  int64_t FinishResult() { return sum_.FinishResult(); }
  int64_t slices_done() const { return now_.slices_done; }

 private:
  void Count(Lane& lane, int64_t group) {
    int64_t block, first, last;
    job_.GroupRange(group, &block, &first, &last);
    std::lock_guard lock(mutex_);
    now_.slices_done += last - first;
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
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  absl::Status status_;
  Progress now_;
  Clock::time_point last_progress_ = start_;
};

absl::Status ContractionJob::Impl::RunGroups(void* result, const ProgressFn& progress) {
  const int64_t sum_bytes = PartialSumBytes();
  void* sum_memory = memory->Allocate(sum_bytes, 64);
  if (sum_memory == nullptr) {
    return Error(Reason::kExceedsMemoryBudget,
                 StrCat("no memory for ", sum_bytes, " bytes of partial sums"))
        .Meta("requested_bytes", sum_bytes);
  }
  GroupRun run(*this, sum_memory, result, progress);
  {
    std::vector<std::jthread> others;
    for (Lane& lane : lanes) {
      for (int worker = 0; worker < lane.workers; ++worker) {
        if (&lane == &lanes.front() && worker == 0) continue;  // the calling thread's
        try {
          others.emplace_back([&run, &lane, worker] { run.Work(lane, worker); });
        } catch (const std::system_error&) {
          break;  // no more threads to be had: fewer workers do it, with the same bits
        }
      }
    }
    run.Work(lanes.front(), 0);
  }
  if (request.normalize && run.status().ok()) exponent = run.FinishResult();
  memory->Release(sum_memory, sum_bytes);
  report.slices_done += run.slices_done();
  return run.status();
}

ContractionJob::ContractionJob(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ContractionJob::~ContractionJob() = default;

absl::StatusOr<std::unique_ptr<ContractionJob>> ContractionJob::Prepare(
    const ContractionRequest& request, std::vector<std::shared_ptr<Provider>> providers,
    const CancelToken* cancel) {
  const Clock::time_point start = Clock::now();
  auto impl = std::make_unique<Impl>();
  impl->request = request;
  impl->cancel = cancel;
  if (providers.empty()) {
    return Error(Reason::kUnknownProvider, "no provider was named").Field("execution.providers");
  }
  TENON_ASSIGN_OR_RETURN(impl->dtype, ComputeType(request));
  for (std::shared_ptr<Provider>& provider : providers) {
    if (!provider->CanContract(static_cast<int32_t>(impl->dtype))) {
      return Error(Reason::kUnsupportedByProvider,
                   StrCat("provider '", provider->name(), "' does not contract in ",
                          DTypeName(impl->dtype)))
          .Field("execution.providers");
    }
    impl->lanes.push_back(Impl::Lane{std::move(provider), nullptr, nullptr});
  }
  const int available = tbb::this_task_arena::max_concurrency();
  impl->threads = request.threads > 0 ? request.threads : available;
  TENON_RETURN_IF_ERROR(impl->MakePlan());
  TENON_RETURN_IF_ERROR(impl->LowerToBudget());
  impl->report.setup_seconds = SecondsSince(start);
  return std::unique_ptr<ContractionJob>(new ContractionJob(std::move(impl)));
}

const Expression& ContractionJob::expression() const { return impl_->expression; }
const Path& ContractionJob::path() const { return impl_->path; }
const std::vector<int>& ContractionJob::sliced() const { return impl_->program->sliced_order(); }
const Program& ContractionJob::program() const { return *impl_->program; }
const MemoryPlan& ContractionJob::plan() const { return impl_->plan; }
int64_t ContractionJob::unconstrained_workers() const { return impl_->unconstrained_workers; }
DType ContractionJob::dtype() const { return impl_->dtype; }
int ContractionJob::threads() const { return impl_->threads; }

contraction::PathCost ContractionJob::cost() const {
  return contraction::ComputeCost(impl_->expression, impl_->path, impl_->sliced);
}

std::optional<int64_t> ContractionJob::exponent() const { return impl_->exponent; }

std::optional<double> ContractionJob::log10_scale() const {
  if (!impl_->exponent.has_value()) return std::nullopt;
  return Log10OfPowerOfTwo(*impl_->exponent);
}

std::string ContractionJob::fingerprint() const {
  return impl_->lanes.front().compiled->FingerprintHex();
}

std::optional<double> ContractionJob::predicted_seconds() const {
  const double slice = impl_->lanes.front().compiled->info().predicted_slice_seconds;
  if (slice < 0) return std::nullopt;
  const tenon_program& descriptor = impl_->program->descriptor();
  return slice * static_cast<double>(descriptor.n_blocks) *
         static_cast<double>(std::max<int64_t>(descriptor.slices_per_block, 1)) *
         impl_->GroupShare() / impl_->Workers();
}

std::string_view ContractionJob::StepKernelName(int step) const {
  return impl_->lanes.front().compiled->info().kernels[step];
}

double ContractionJob::shared_flops() const {
  const tenon_program& descriptor = impl_->program->descriptor();
  double products = 0;
  for (int i = 0; i < descriptor.n_steps; ++i) {
    const tenon_step& step = descriptor.steps[i];
    if (step.phase != TENON_PHASE_CONSTANT || step.kind != TENON_STEP_CONTRACT) continue;
    double size = 1;
    for (int m = 0; m < step.n_batch + step.n_m + step.n_n + step.n_k; ++m) {
      size *= static_cast<double>(step.modes[m].extent);
    }
    products += size;
  }
  return products * (IsComplex(impl_->dtype) ? 8 : 2);
}

absl::Status ContractionJob::Start(std::vector<const void*> operands) {
  const Clock::time_point start = Clock::now();
  TENON_RETURN_IF_ERROR(impl_->cancel->Check());
  impl_->operands = std::move(operands);
  // What providers may take: the plan less what the caller holds. Blocks are rounded up to cache
  // lines, hence the small allowance.
  const int64_t own = impl_->plan.Total() - impl_->plan.operands - impl_->plan.results;
  impl_->memory = std::make_unique<plugin::HostMemory>(own + (int64_t{1} << 16));
  for (Impl::Lane& lane : impl_->lanes) {
    tenon_execution_options options{};
    options.struct_size = sizeof(options);
    options.workers = lane.workers;
    options.threads_per_worker = lane.threads_per_worker;
    options.cancel = reinterpret_cast<const int32_t*>(impl_->cancel->flag());
    TENON_ASSIGN_OR_RETURN(lane.execution,
                           lane.compiled->Begin(*impl_->memory, impl_->operands, options));
  }
  impl_->report.dispatch_seconds += SecondsSince(start);
  return absl::OkStatus();
}

absl::Status ContractionJob::RunSet(const std::vector<const void*>& varying, void* result,
                                    const ProgressFn& progress) {
  const Clock::time_point start = Clock::now();
  TENON_RETURN_IF_ERROR(impl_->cancel->Check());
  size_t next = 0;
  for (size_t i = 0; i < impl_->request.varying.size(); ++i) {
    if (!impl_->request.varying[i]) continue;
    if (next == varying.size()) return Error(Reason::kInternal, "a varying operand is missing");
    impl_->operands[i] = varying[next++];
  }
  for (Impl::Lane& lane : impl_->lanes) {
    TENON_RETURN_IF_ERROR(lane.execution->BindSet(impl_->operands));
  }
  absl::Status status;
  if (impl_->WritesInPlace()) {
    status = impl_->RunInPlace(result);
  } else {
    if (impl_->last_group - impl_->first_group < impl_->program->n_groups()) {
      std::memset(result, 0, impl_->plan.results);
    }
    status = impl_->RunGroups(result, progress);
  }
  if (status.ok()) impl_->report.groups_done += impl_->last_group - impl_->first_group;
  impl_->report.dispatch_seconds += SecondsSince(start);
  // A provider reports "cancelled"; the token knows whether it was the client or the deadline.
  return status.code() == absl::StatusCode::kCancelled && !impl_->cancel->Check().ok()
             ? impl_->cancel->Check()
             : status;
}

ContractionJob::Progress ContractionJob::NothingDone() const { return impl_->NothingDone(); }

bool ContractionJob::host_timed() const {
  return std::all_of(impl_->lanes.begin(), impl_->lanes.end(), [](const Impl::Lane& lane) {
    if (lane.execution == nullptr) return false;
    const auto statistics = lane.execution->Statistics();
    return statistics.ok() && statistics->timing_scope == 1;
  });
}

ContractionReport ContractionJob::Report() const {
  ContractionReport report = impl_->report;
  double device_seconds = 0;
  for (const Impl::Lane& lane : impl_->lanes) {
    ContractionReport::PerProvider& one = report.providers.emplace_back();
    one.name = std::string(lane.provider->name());
    one.kernels = KernelsOf(*lane.compiled, *impl_->program);
    one.groups = lane.groups_done;
    one.workers = lane.workers;
    if (lane.execution == nullptr) continue;
    const auto statistics = lane.execution->Statistics();
    if (!statistics.ok()) continue;
    one.statistics = *statistics;
    AddWork(*statistics, *lane.compiled, *impl_->program, one.kernels);
    report.flops_done += statistics->flops;
    report.timing_scope = std::max(report.timing_scope, statistics->timing_scope);
    device_seconds = std::max(device_seconds, statistics->execution_seconds);
  }
  // On the host the work is complete when the calls return; devices mark it themselves.
  report.execution_seconds = report.timing_scope == 1   ? report.dispatch_seconds
                             : report.timing_scope == 2 ? device_seconds
                                                        : -1;
  report.measured_peak_bytes = impl_->plan.operands + impl_->plan.results +
                               (impl_->memory == nullptr ? 0 : impl_->memory->peak_bytes());
  return report;
}

}  // namespace tenon::schedule
