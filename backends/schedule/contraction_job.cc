#include "backends/schedule/contraction_job.h"

#include <tbb/task_arena.h>

#include <algorithm>
#include <utility>

#include "backends/core/binary_scale.h"
#include "backends/schedule/compute_type.h"
#include "backends/schedule/contraction_job_impl.h"
#include "backends/schedule/kernel_work.h"

namespace tenon::schedule {
namespace {

using contraction::Expression;
using contraction::MemoryPlan;
using contraction::Path;
using contraction::Program;
using plugin::Provider;

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

// Path, slices and sets computed together: the caller's when given, else found here.
absl::Status ContractionJob::Impl::MakePlan(int64_t max_sets) {
  TENON_ASSIGN_OR_RETURN(expression,
                         contraction::MakeExpression(request.network, Shapes(request.operands)));
  const Clock::time_point start = Clock::now();
  if (request.path.has_value()) {
    TENON_ASSIGN_OR_RETURN(path,
                           contraction::MakePath(*request.path, request.network.inputs.size()));
  }
  StackChoice choice = ChooseStack(expression, request.varying, request.path ? &path : nullptr,
                                   request.expected_sets, max_sets, DTypeSize(dtype));
  sets = choice.sets;
  path = std::move(choice.path);
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
// `intermediate_bytes` as in LoweringOptions.
absl::Status ContractionJob::Impl::Lower(int64_t intermediate_bytes) {
  const Clock::time_point start = Clock::now();
  for (Lane& lane : lanes) lane.compiled.reset();
  contraction::LoweringOptions options;
  options.dtype = dtype;
  options.accumulate_double = request.accumulate_double;
  options.varying = request.varying;
  options.normalize = request.normalize;
  options.intermediate_bytes = intermediate_bytes;
  TENON_ASSIGN_OR_RETURN(
      program, contraction::LowerProgram(StackSets(expression, request.varying, sets), path, sliced,
                                         options));
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
    const tenon_compiled_info& info = lane.compiled->info();
    const __int128 threads_beyond = lane.threads_per_worker - 1;
    plan.worker_library =
        std::max(plan.worker_library,
                 CappedBytes(info.worker_bytes + threads_beyond * info.thread_bytes, 1));
  }
  plan.operands = CappedBytes(operands, size);
  plan.results = ResultBytes();
  plan.prologue = CappedBytes(constants, size);
  plan.workers = Workers();
  plan.shared_library = CappedBytes(library, 1);
  plan.worker_arena = CappedBytes(descriptor.arena_elements - program->kept_elements(), size);
  plan.worker_kept = CappedBytes(program->kept_elements(), size);
  plan.partial_sums = WritesInPlace() ? 0 : PartialSumBytes();
  plan.stack = StackBytes();
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

// Gives up reuse between slices until one worker fits. When that does not help, or unless
// `at_any_price` more than doubles the flops, the budget is refused.
absl::Status ContractionJob::Impl::ReduceReuse(absl::Status refusal, bool at_any_price) {
  constexpr double kFairPrice = 2;
  const int64_t shares = static_cast<int64_t>(lanes.size());  // of prologue and arena
  const int64_t others =
      plan.Total() - plan.prologue - plan.workers * (plan.worker_arena + plan.worker_kept);
  const int64_t available = (request.memory_budget_bytes - others) / shares;
  if (available <= 0) return refusal;
  const double flops = program->total_flops();
  TENON_RETURN_IF_ERROR(Lower(available));
  const absl::Status fits = FitBudget();
  if (!fits.ok() || at_any_price || program->total_flops() <= kFairPrice * flops) return fits;
  return refusal;
}

// With a free hand over the slices, halves the largest intermediate until the budget is met.
absl::Status ContractionJob::Impl::LowerToBudget() {
  TENON_RETURN_IF_ERROR(Lower());
  absl::Status fits = FitBudget();
  if (sets > 1) return fits;  // a smaller stack costs less than shared steps run in every one
  if (!fits.ok()) fits = ReduceReuse(std::move(fits), /*at_any_price=*/!MaySlice());
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
    if (!fits.ok()) fits = ReduceReuse(std::move(fits), /*at_any_price=*/false);
  }
  // No slices helped: then rather slow than not at all.
  if (!fits.ok() && MaySlice()) {
    TENON_RETURN_IF_ERROR(Lower());
    fits = FitBudget();
    if (!fits.ok()) fits = ReduceReuse(std::move(fits), /*at_any_price=*/true);
  }
  return fits;
}

// A stack whose results exceed the caller's target is refused, so that a smaller one is tried.
absl::Status ContractionJob::Impl::CheckStackTarget() const {
  if (sets == 1 || request.target_elements <= 0) return absl::OkStatus();
  const int64_t largest = program->largest_intermediate_elements();
  if (static_cast<double>(largest) <= request.target_elements) return absl::OkStatus();
  return Error(Reason::kExceedsMemoryBudget,
               StrCat("the results of ", sets, " sets have up to ", largest, " elements"));
}

ContractionJob::ContractionJob(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ContractionJob::~ContractionJob() = default;

// The largest stack that fits, down to single sets.
absl::StatusOr<std::unique_ptr<ContractionJob>> ContractionJob::Prepare(
    const ContractionRequest& request, std::vector<std::shared_ptr<Provider>> providers,
    const CancelToken* cancel) {
  const Clock::time_point start = Clock::now();
  int64_t max_sets = request.max_sets_together > 0 ? request.max_sets_together : INT64_MAX;
  if (request.normalize || request.expected_sets <= 1) max_sets = 1;
  max_sets = std::min(max_sets, request.expected_sets);
  for (;; max_sets /= 2) {
    auto job = PrepareStack(request, providers, cancel, std::max<int64_t>(max_sets, 1));
    if (job.ok()) (*job)->impl_->report.setup_seconds = SecondsSince(start);
    if (max_sets <= 1 || job.ok()) return job;
    const Reason reason = GetErrorDetails(job.status()).reason;
    if (reason != Reason::kExceedsMemoryBudget && reason != Reason::kOverflow) return job;
  }
}

absl::StatusOr<std::unique_ptr<ContractionJob>> ContractionJob::PrepareStack(
    const ContractionRequest& request, std::vector<std::shared_ptr<Provider>> providers,
    const CancelToken* cancel, int64_t max_sets) {
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
  TENON_RETURN_IF_ERROR(impl->MakePlan(max_sets));
  TENON_RETURN_IF_ERROR(impl->LowerToBudget());
  TENON_RETURN_IF_ERROR(impl->CheckStackTarget());
  return std::unique_ptr<ContractionJob>(new ContractionJob(std::move(impl)));
}

const Expression& ContractionJob::expression() const { return impl_->expression; }
const Path& ContractionJob::path() const { return impl_->path; }
const std::vector<int>& ContractionJob::sliced() const { return impl_->program->sliced_order(); }
const Program& ContractionJob::program() const { return *impl_->program; }
const MemoryPlan& ContractionJob::plan() const { return impl_->plan; }
int64_t ContractionJob::unconstrained_workers() const { return impl_->unconstrained_workers; }
DType ContractionJob::dtype() const { return impl_->dtype; }
int64_t ContractionJob::sets_together() const { return impl_->sets; }
int64_t ContractionJob::sets_to_fill() const {
  return impl_->sets - impl_->sets_done % impl_->sets;
}
int ContractionJob::threads() const { return impl_->threads; }

TensorSpec ContractionJob::result_spec() const {
  TensorSpec spec = impl_->program->output_spec();
  if (impl_->sets > 1) spec.shape.erase(spec.shape.begin());
  return spec;
}

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
         impl_->GroupShare() / impl_->Workers() / static_cast<double>(impl_->sets);
}

std::string_view ContractionJob::StepKernelName(int step) const {
  return impl_->lanes.front().compiled->info().kernels[step];
}

double ContractionJob::shared_flops() const {
  const tenon_program& descriptor = impl_->program->descriptor();
  double flops = 0;
  for (int i = 0; i < descriptor.n_steps; ++i) {
    const tenon_step& step = descriptor.steps[i];
    if (step.phase == TENON_PHASE_CONSTANT) flops += StepFlops(step, impl_->dtype);
  }
  return flops;
}

double ContractionJob::OneSetFlops(double flops) const {
  const double shared = shared_flops();
  return shared + (flops - shared) / static_cast<double>(impl_->sets);
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
