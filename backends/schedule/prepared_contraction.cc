#include "backends/schedule/prepared_contraction.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/figure.h"
#include "backends/schedule/compute_type.h"
#include "backends/schedule/ordered_sum.h"
#include "backends/schedule/peak_refusal.h"
#include "backends/schedule/set_stack.h"

namespace tenon::schedule {
namespace {

using Clock = std::chrono::steady_clock;
using contraction::MemoryPlan;
using plugin::Provider;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// count * size, or kMostPlannedBytes when that is less.
int64_t CappedBytes(__int128 count, int64_t size) {
  return static_cast<int64_t>(std::min<__int128>(count * size, kMostPlannedBytes));
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
  // Builders return themselves: nothing is moved yet.
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);  // NOLINT
  return std::move(error).Field("target_size");
}

class Preparation {
 public:
  Preparation(const ContractionRequest& request, const CancelToken* cancel,
              PreparedContraction& out)
      : request_(request), cancel_(cancel), out_(out) {}

  absl::Status AddProviders(const std::vector<std::shared_ptr<Provider>>& providers);
  absl::Status MakePlan(int64_t max_sets);
  absl::Status LowerToBudget();
  absl::Status CheckStackTarget() const;

 private:
  absl::Status CheckGroupRange() const;
  absl::Status Lower(int64_t intermediate_bytes = 0);
  void DivideWorkers(int workers);
  void ComputeMemoryPlan();
  absl::Status FitBudget();
  absl::Status ReduceReuse(absl::Status refusal, bool at_any_price);
  // Stacks are rather made smaller than sliced.
  bool MaySlice() const {
    return request_.allow_slicing && request_.sliced.empty() && out_.sets == 1;
  }

  const ContractionRequest& request_;
  const CancelToken* const cancel_;
  PreparedContraction& out_;
};

absl::Status Preparation::AddProviders(const std::vector<std::shared_ptr<Provider>>& providers) {
  if (providers.empty()) {
    return Error(Reason::kUnknownProvider, "no provider was named").Field("execution.providers");
  }
  for (const std::shared_ptr<Provider>& provider : providers) {
    if (!provider->CanContract(static_cast<int32_t>(out_.dtype))) {
      return Error(Reason::kUnsupportedByProvider,
                   StrCat("provider '", provider->name(), "' does not contract in ",
                          DTypeName(out_.dtype)))
          .Field("execution.providers");
    }
    out_.lanes.push_back(PreparedContraction::Lane{provider, nullptr});
  }
  return absl::OkStatus();
}

// Path, slices and sets computed together: the caller's when given, else found here.
absl::Status Preparation::MakePlan(int64_t max_sets) {
  TENON_ASSIGN_OR_RETURN(out_.expression,
                         contraction::MakeExpression(request_.network, Shapes(request_.operands)));
  const Clock::time_point start = Clock::now();
  if (request_.path.has_value()) {
    TENON_ASSIGN_OR_RETURN(out_.path,
                           contraction::MakePath(*request_.path, request_.network.inputs.size()));
  }
  StackChoice choice =
      ChooseStack(out_.expression, request_.varying, request_.path ? &out_.path : nullptr,
                  request_.expected_sets, max_sets, DTypeSize(out_.dtype));
  out_.sets = choice.sets;
  out_.path = std::move(choice.path);
  TENON_ASSIGN_OR_RETURN(out_.sliced, contraction::MakeSliced(out_.expression, request_.sliced));
  if (MaySlice() && request_.target_elements > 0) {
    auto found = contraction::SliceToTarget(out_.expression, out_.path, request_.target_elements,
                                            request_.allow_output_slicing);
    if (!found.ok()) return Unreachable(found.status());
    out_.sliced = *std::move(found);
  }
  if (!request_.path.has_value() || MaySlice()) out_.planning_seconds = SecondsSince(start);
  return absl::OkStatus();
}

// A range covers whole blocks, or is a node of the tree of one block.
absl::Status Preparation::CheckGroupRange() const {
  const int64_t per_block = out_.program->groups_per_block();
  const bool inside = out_.first_group >= 0 && out_.first_group < out_.last_group &&
                      out_.last_group <= out_.program->n_groups();
  const bool whole_blocks = out_.first_group % per_block == 0 && out_.last_group % per_block == 0;
  const int64_t first = out_.first_group % per_block;
  const bool node =
      inside && OrderedSum::IsNode(first, first + out_.last_group - out_.first_group, per_block) &&
      first + out_.last_group - out_.first_group <= per_block;
  if (out_.program->n_groups() == 0 || (inside && (whole_blocks || node))) return absl::OkStatus();
  return Error(Reason::kBadSlice,
               StrCat("slice groups [", out_.first_group, ", ", out_.last_group,
                      ") are no node of the sum of ", out_.program->n_groups(), " groups"))
      .Field("execution.slice_groups")
      .Meta("groups", out_.program->n_groups());
}

// Lowers, compiles for every provider and computes the plan of memory, with all workers wanted.
// `intermediate_bytes` as in LoweringOptions.
absl::Status Preparation::Lower(int64_t intermediate_bytes) {
  const Clock::time_point start = Clock::now();
  TENON_RETURN_IF_ERROR(cancel_->Check());
  for (PreparedContraction::Lane& lane : out_.lanes) lane.compiled.reset();
  contraction::LoweringOptions options;
  options.dtype = out_.dtype;
  options.accumulate_double = request_.accumulate_double;
  options.varying = request_.varying;
  options.normalize = request_.normalize;
  options.intermediate_bytes = intermediate_bytes;
  TENON_ASSIGN_OR_RETURN(out_.program, contraction::LowerProgram(
                                           StackSets(out_.expression, request_.varying, out_.sets),
                                           out_.path, out_.sliced, options));
  TENON_RETURN_IF_ERROR(cancel_->Check());
  out_.first_group = request_.first_group;
  out_.last_group = request_.last_group == 0 ? out_.program->n_groups() : request_.last_group;
  TENON_RETURN_IF_ERROR(CheckGroupRange());
  for (PreparedContraction::Lane& lane : out_.lanes) {
    tenon_compile_options compile{sizeof(tenon_compile_options), out_.threads, 0, 0};
    TENON_ASSIGN_OR_RETURN(lane.compiled,
                           lane.provider->Compile(out_.program->descriptor(), compile));
  }
  DivideWorkers(out_.threads);
  out_.unconstrained_workers = out_.plan.workers;
  out_.compile_seconds += SecondsSince(start);
  return absl::OkStatus();
}

// Spreads up to `workers` workers over the providers; each gets at least one, and threads that are
// left over work inside the steps.
void Preparation::DivideWorkers(int workers) {
  const int64_t groups = std::max<int64_t>(out_.last_group - out_.first_group, 1);
  for (PreparedContraction::Lane& lane : out_.lanes) {
    const int64_t share = std::max<int64_t>(workers / static_cast<int>(out_.lanes.size()), 1);
    lane.workers = static_cast<int>(
        std::min({share, groups, std::max<int64_t>(lane.provider->info().max_workers, 1)}));
    lane.threads = std::max(out_.threads / static_cast<int>(out_.lanes.size()), lane.workers);
  }
  ComputeMemoryPlan();
}

void Preparation::ComputeMemoryPlan() {
  const int64_t size = DTypeSize(out_.dtype);
  const tenon_program& descriptor = out_.program->descriptor();
  __int128 operands = 0, constants = 0, library = 0;
  for (int i = 0; i < descriptor.n_operands; ++i) operands += descriptor.operand_elements[i];
  out_.plan = MemoryPlan();
  for (const PreparedContraction::Lane& lane : out_.lanes) {
    constants += __int128{descriptor.constant_elements} + descriptor.set_elements;
    library += lane.compiled->info().shared_bytes;
    const tenon_compiled_info& info = lane.compiled->info();
    const __int128 threads_beyond = (lane.threads - 1) / lane.workers;  // of a worker
    out_.plan.worker_library =
        std::max(out_.plan.worker_library,
                 CappedBytes(info.worker_bytes + threads_beyond * info.thread_bytes, 1));
  }
  out_.plan.operands = CappedBytes(operands, size);
  out_.plan.results = out_.ResultBytes();
  out_.plan.prologue = CappedBytes(constants, size);
  out_.plan.workers = out_.Workers();
  out_.plan.shared_library = CappedBytes(library, 1);
  out_.plan.worker_arena =
      CappedBytes(descriptor.arena_elements - out_.program->kept_elements(), size);
  out_.plan.worker_kept = CappedBytes(out_.program->kept_elements(), size);
  out_.plan.partial_sums = out_.WritesInPlace() ? 0 : out_.PartialSumBytes();
  out_.plan.stack = out_.StackBytes();
}

// Fewer workers until the plan meets the budget.
absl::Status Preparation::FitBudget() {
  const int64_t budget =
      request_.memory_budget_bytes > 0 ? request_.memory_budget_bytes : kMostPlannedBytes;
  for (int workers = out_.Workers(); out_.plan.Total() > budget && workers > 1; --workers) {
    DivideWorkers(workers - 1);
  }
  if (out_.plan.Total() <= budget) return absl::OkStatus();
  return PeakRefusal(out_.plan.Total(), budget);
}

// Gives up reuse between slices until one worker fits. When that does not help, or unless
// `at_any_price` more than doubles the flops, the budget is refused.
absl::Status Preparation::ReduceReuse(absl::Status refusal, bool at_any_price) {
  constexpr double kFairPrice = 2;
  const int64_t shares = static_cast<int64_t>(out_.lanes.size());  // of prologue and arena
  const int64_t others = out_.plan.Total() - out_.plan.prologue -
                         out_.plan.workers * (out_.plan.worker_arena + out_.plan.worker_kept);
  const int64_t available = (request_.memory_budget_bytes - others) / shares;
  if (available <= 0) return refusal;
  const double flops = out_.program->total_flops();
  TENON_RETURN_IF_ERROR(Lower(available));
  absl::Status fits = FitBudget();
  if (!fits.ok() || at_any_price || out_.program->total_flops() <= kFairPrice * flops) return fits;
  return refusal;
}

// With a free hand over the slices, halves the largest intermediate until the budget is met.
absl::Status Preparation::LowerToBudget() {
  TENON_RETURN_IF_ERROR(Lower());
  absl::Status fits = FitBudget();
  if (out_.sets > 1) return fits;  // a smaller stack costs less than shared steps run in every one
  if (!fits.ok()) fits = ReduceReuse(std::move(fits), /*at_any_price=*/!MaySlice());
  double target = static_cast<double>(out_.program->largest_intermediate_elements());
  // Slicing changes neither operands nor results.
  const bool hopeless = out_.plan.operands + out_.plan.results > request_.memory_budget_bytes;
  while (!fits.ok() && MaySlice() && !hopeless && target > 1) {
    TENON_RETURN_IF_ERROR(cancel_->Check());
    const Clock::time_point start = Clock::now();
    target /= 2;
    auto more = contraction::SliceToTarget(out_.expression, out_.path, target,
                                           request_.allow_output_slicing);
    out_.planning_seconds += SecondsSince(start);
    if (!more.ok()) break;
    if (*more == out_.sliced) continue;
    out_.sliced = *std::move(more);
    TENON_RETURN_IF_ERROR(Lower());
    fits = FitBudget();
    if (!fits.ok()) fits = ReduceReuse(std::move(fits), /*at_any_price=*/false);
  }
  // No slices helped: then rather slow than not at all.
  if (!fits.ok() && MaySlice() && !hopeless) {
    TENON_RETURN_IF_ERROR(Lower());
    fits = FitBudget();
    if (!fits.ok()) fits = ReduceReuse(std::move(fits), /*at_any_price=*/true);
  }
  return fits;
}

// A stack whose results exceed the caller's target is refused, so that a smaller one is tried.
absl::Status Preparation::CheckStackTarget() const {
  if (out_.sets == 1 || request_.target_elements <= 0) return absl::OkStatus();
  const int64_t largest = out_.program->largest_intermediate_elements();
  if (static_cast<double>(largest) <= request_.target_elements) return absl::OkStatus();
  return Error(Reason::kExceedsMemoryBudget,
               StrCat("the results of ", out_.sets, " sets have up to ", largest, " elements"));
}

// With stacks of at most `max_sets` sets.
absl::StatusOr<std::shared_ptr<PreparedContraction>> MakeStack(
    const ContractionRequest& request, const std::vector<std::shared_ptr<Provider>>& providers,
    int threads, const CancelToken* cancel, int64_t max_sets) {
  auto prepared = std::make_shared<PreparedContraction>();
  prepared->varying = request.varying;
  prepared->normalize = request.normalize;
  prepared->threads = threads;
  TENON_ASSIGN_OR_RETURN(prepared->dtype, ComputeType(request));
  Preparation preparation(request, cancel, *prepared);
  TENON_RETURN_IF_ERROR(preparation.AddProviders(providers));
  TENON_RETURN_IF_ERROR(preparation.MakePlan(max_sets));
  TENON_RETURN_IF_ERROR(preparation.LowerToBudget());
  TENON_RETURN_IF_ERROR(preparation.CheckStackTarget());
  prepared->predicted_run_seconds = prepared->PredictRunSeconds();
  prepared->cost = contraction::ComputeCost(prepared->expression, prepared->path, prepared->sliced);
  prepared->unsliced_cost =
      prepared->sliced.empty() ? prepared->cost
                               : contraction::ComputeCost(prepared->expression, prepared->path, {});
  return prepared;
}

}  // namespace

// The largest stack that fits, down to single sets.
absl::StatusOr<std::shared_ptr<const PreparedContraction>> PreparedContraction::Make(
    const ContractionRequest& request, const std::vector<std::shared_ptr<Provider>>& providers,
    int threads, const CancelToken* cancel) {
  int64_t max_sets = request.max_sets_together > 0 ? request.max_sets_together : INT64_MAX;
  if (request.normalize || request.expected_sets <= 1) max_sets = 1;
  max_sets = std::min(max_sets, request.expected_sets);
  for (;; max_sets /= 2) {
    auto prepared = MakeStack(request, providers, threads, cancel, std::max<int64_t>(max_sets, 1));
    if (prepared.ok()) return std::shared_ptr<const PreparedContraction>(*std::move(prepared));
    const Reason reason = GetErrorDetails(prepared.status()).reason;
    const bool too_large = reason == Reason::kExceedsMemoryBudget || reason == Reason::kOverflow;
    if (max_sets <= 1 || !too_large) return prepared.status();
  }
}

int64_t PreparedContraction::ResultBytes() const {
  const tenon_program& descriptor = program->descriptor();
  return CappedBytes(__int128{descriptor.block_elements} * descriptor.n_blocks, DTypeSize(dtype));
}

int64_t PreparedContraction::StackBytes() const {
  return SetStack::BytesNeeded(*program, varying, sets, kMostPlannedBytes);
}

int64_t PreparedContraction::PartialSumBytes() const {
  return OrderedSum::BytesNeeded(*program, first_group, last_group, Window(), kMostPlannedBytes);
}

PreparedContraction::Group PreparedContraction::GroupAt(int64_t group) const {
  Group at;
  at.block = group / program->groups_per_block();
  at.first_slice = group % program->groups_per_block() * program->group_slices();
  at.last_slice =
      std::min(at.first_slice + program->group_slices(), program->descriptor().slices_per_block);
  return at;
}

int64_t PreparedContraction::SlicesInRange() const { return SlicesBelow(last_group); }

int64_t PreparedContraction::SlicesBelow(int64_t group) const {
  if (group <= first_group) return 0;
  const Group first = GroupAt(first_group), last = GroupAt(group - 1);
  return (last.block - first.block) * program->descriptor().slices_per_block + last.last_slice -
         first.first_slice;
}

double PreparedContraction::PredictRunSeconds() const {
  const Lane& lane = lanes.front();
  const tenon_program& descriptor = program->descriptor();
  const double slices = static_cast<double>(descriptor.n_blocks) *
                        static_cast<double>(std::max<int64_t>(descriptor.slices_per_block, 1)) *
                        GroupShare();
  if (const auto run = lane.compiled->Predict(lane.workers, lane.threads)) {
    return run->once_seconds + run->slice_seconds * slices / Workers();
  }
  const tenon_compiled_info& info = lane.compiled->info();
  if (info.predicted_slice_seconds < 0) return -1;
  return std::max(0.0, info.predicted_once_seconds) +
         info.predicted_slice_seconds * slices / Workers();
}

}  // namespace tenon::schedule
