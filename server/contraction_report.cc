#include "server/contraction_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "backends/contraction/path.h"
#include "backends/planner/search.h"
#include "server/status.h"
#include "server/tensor_codec.h"
#include "server/version.h"

namespace tenon::server {
namespace {

using contraction::PathCost;
using schedule::ContractionJob;

constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();

// What the plan was made for, or is being made for; weighted where no search is asked for. Without
// the time model, whose seconds come from elsewhere.
planner::Objective ObjectiveOf(const ContractCall& call) {
  planner::Objective objective;
  if (!call.provenance.has_value()) {
    return call.question.has_value() ? call.question->options.objective : objective;
  }
  switch (call.provenance->objective()) {
    case v1::SEARCH_OBJECTIVE_UNSPECIFIED:  // the engine's own path
      break;
    case v1::SEARCH_OBJECTIVE_LARGEST_INTERMEDIATE:
      objective.kind = planner::Objective::Kind::kLargest;
      break;
    case v1::SEARCH_OBJECTIVE_SECONDS:
      objective.kind = planner::Objective::Kind::kSeconds;
      break;
    default:
      objective.flops_weight = call.provenance->flops_weight();
      objective.read_write_weight = call.provenance->read_write_weight();
  }
  return objective;
}

// `seconds`: predicted for the whole cost, or kNoFigure.
double Log2Score(const planner::Objective& objective, const PathCost& cost, double share,
                 double seconds) {
  switch (objective.kind) {
    case planner::Objective::Kind::kLargest:
      return std::log2(cost.max_size);
    case planner::Objective::Kind::kSeconds:
      return std::log2(seconds * share);
    case planner::Objective::Kind::kWeighted:
      break;
  }
  // A weight of zero counts nothing, even of what is beyond the range.
  double score = 0;
  if (objective.flops_weight > 0) score += objective.flops_weight * cost.flops;
  if (objective.read_write_weight > 0) score += objective.read_write_weight * cost.read_write;
  return std::log2(score * share);
}

void WriteCost(const ContractCall& call, const PathCost& cost, double share, double seconds,
               v1::PlanCost* out) {
  out->set_log10_flops(std::log10(cost.flops * share));
  out->set_log2_largest_intermediate(std::log2(cost.max_size));
  out->set_log2_largest_step(std::log2(cost.max_step));
  out->set_log2_writes(std::log2(cost.write * share));
  out->set_log2_read_write(std::log2(cost.read_write * share));
  out->set_log2_peak(std::log2(cost.peak_size));
  out->set_log2_score(Log2Score(ObjectiveOf(call), cost, share, seconds));
}

// Costs of a slice and of all. `cost`: of the plan; `seconds`: predicted for all, absent without a
// model.
template <typename Message>
void WriteCosts(const ContractCall& call, const contraction::Expression& expression,
                const contraction::Path& path, const std::vector<int>& sliced, const PathCost& cost,
                std::optional<double> seconds, Message* out) {
  const double share = 1 / std::max(cost.slices, 1.0);
  WriteCost(call, cost, share, seconds.value_or(kNoFigure), out->mutable_per_slice());
  WriteCost(call, cost, 1, seconds.value_or(kNoFigure), out->mutable_total());
  if (seconds.has_value()) out->set_predicted_seconds(*seconds);
  const planner::Objective objective = ObjectiveOf(call);
  // Without slices everything runs once, as it is counted in the total.
  const bool as_counted = objective.kind == planner::Objective::Kind::kSeconds || sliced.empty();
  out->set_log2_score(as_counted
                          ? out->total().log2_score()
                          : std::log2(planner::PlanScore(expression, objective, {path, sliced})));
}

void WriteUnsliced(const ContractCall& call, const PathCost& cost, bool is_sliced,
                   std::optional<double> seconds, v1::PlanSummary* out) {
  WriteCost(call, cost, 1, is_sliced ? kNoFigure : seconds.value_or(kNoFigure),
            out->mutable_unsliced());
}

void WritePath(const contraction::Expression& expression, const contraction::Path& path,
               const std::vector<int>& sliced, v1::PlanSummary* out) {
  out->mutable_path()->set_format(v1::PATH_FORMAT_SSA);
  for (const auto& [left, right] : path.pairs) {
    v1::PathStep* step = out->mutable_path()->add_steps();
    step->add_operands(left);
    step->add_operands(right);
  }
  for (const int index : sliced) out->add_sliced_indices(expression.names[index]);
}

void WriteProvenance(const ContractCall& call, const ContractionJob& job, v1::PlanProvenance* out) {
  if (call.provenance.has_value()) {
    *out = *call.provenance;
    return;
  }
  out->set_source(call.plan_source);
  out->set_planner_version(Build().version);
  if (call.plan_source != v1::PLAN_SOURCE_SEARCH) return;
  // The engine's own greedy path.
  if (!job.sliced().empty()) out->set_slicing_mode(v1::SLICING_MODE_FIXED_TREE);
  out->set_objective(v1::SEARCH_OBJECTIVE_WEIGHTED);
  out->set_flops_weight(1);
  out->set_read_write_weight(64);
  out->add_methods(v1::SEARCH_METHOD_GREEDY);
  out->set_trials(1);
  out->set_stopped_by(v1::SEARCH_STOP_EXHAUSTED);
  out->set_search_seconds(job.Report().planning_seconds);
}

int64_t SliceCount(double slices) {
  constexpr double kLargest = 9.2e18;
  return slices < kLargest ? static_cast<int64_t>(slices) : std::numeric_limits<int64_t>::max();
}

// What hoisting saves of the flops that slices would run without it.
double HoistedSaving(const ContractionJob& job) {
  const double slices = static_cast<double>(job.program().descriptor().slices_per_block) *
                        static_cast<double>(job.program().descriptor().n_blocks);
  return job.OneSetFlops(job.program().hoisted_flops()) * std::max(slices - 1, 0.0);
}

void WriteTiming(const schedule::ContractionReport& work, const CallFigures& figures,
                 v1::Timing* out) {
  out->set_queue_seconds(figures.queue_seconds);
  out->set_input_receive_seconds(figures.input_receive_seconds);
  out->set_input_prepare_seconds(figures.input_prepare_seconds);
  out->set_setup_seconds(work.setup_seconds);
  out->set_dispatch_seconds(work.dispatch_seconds);
  if (work.execution_seconds >= 0) out->set_execution_seconds(work.execution_seconds);
  out->set_total_host_seconds(figures.input_prepare_seconds + work.setup_seconds +
                              work.dispatch_seconds);
  out->set_request_seconds(figures.request_seconds);
  out->set_timing_scope(static_cast<v1::TimingScope>(work.timing_scope));
  out->set_result_send_seconds(figures.result_send_seconds);
  if (work.planning_seconds > 0) out->set_planning_seconds(work.planning_seconds);
  if (!work.cached) out->set_compile_seconds(work.compile_seconds);
  out->set_received_bytes(figures.received_bytes);
  out->set_sent_bytes(figures.sent_bytes);
  for (const auto& provider : work.providers) {
    const tenon_run_statistics& run = provider.statistics;
    out->set_to_device_seconds(out->to_device_seconds() + run.transfer_in_seconds);
    out->set_from_device_seconds(out->from_device_seconds() + run.transfer_out_seconds);
    out->set_to_device_bytes(out->to_device_bytes() + run.transfer_in_bytes);
    out->set_from_device_bytes(out->from_device_bytes() + run.transfer_out_bytes);
  }
}

void WriteProvider(const schedule::ContractionReport::PerProvider& provider, DType dtype,
                   v1::ReportDetail detail, v1::ProviderReport* out) {
  const tenon_run_statistics& run = provider.statistics;
  out->set_provider(provider.name);
  out->set_slices(run.slices);
  out->set_groups(provider.groups);
  out->set_groups_moved_away(provider.groups_failed);
  out->set_groups_taken_over(provider.groups_taken_over);
  out->set_flops(MultiplyAdds(run.flops, dtype));
  out->set_real_flops(run.flops);
  out->set_workers(provider.workers);
  v1::Timing* timing = out->mutable_timing();
  timing->set_timing_scope(static_cast<v1::TimingScope>(run.timing_scope));
  timing->set_dispatch_seconds(run.dispatch_seconds);
  if (run.timing_scope != v1::TIMING_SCOPE_UNVERIFIED && run.execution_seconds >= 0) {
    timing->set_execution_seconds(run.execution_seconds);
  }
  timing->set_to_device_seconds(run.transfer_in_seconds);
  timing->set_from_device_seconds(run.transfer_out_seconds);
  timing->set_to_device_bytes(run.transfer_in_bytes);
  timing->set_from_device_bytes(run.transfer_out_bytes);
  if (detail != v1::REPORT_DETAIL_BRIEF) WriteKernels(provider, dtype, out->mutable_kernels());
}

// What each provider did; out->bytes_moved() is known.
void WriteProviders(const ContractCall& call, const schedule::ContractionReport& work,
                    const ContractionJob& job, v1::ContractionReport* out) {
  for (const auto& provider : work.providers) {
    v1::ProviderReport* report = out->add_providers();
    WriteProvider(provider, job.dtype(), call.detail, report);
    report->set_planned_peak_bytes(job.plan().Total());
    // One provider's memory is the job's; of several no share is known.
    if (work.providers.size() == 1) {
      report->set_bytes_moved(out->bytes_moved());
      report->set_measured_peak_bytes(work.measured_peak_bytes);
    }
  }
}

void WriteChoices(const ContractCall& call,
                  google::protobuf::RepeatedPtrField<v1::ProviderChoice>* out) {
  for (const auto& provider : call.providers) {
    v1::ProviderChoice* choice = out->Add();
    choice->set_requested(std::string(provider->name()));
    choice->set_actual(std::string(provider->name()));
  }
}

// Elements that the steps of one set read and write, in bytes.
double BytesMoved(const ContractionJob& job, int64_t sets) {
  return job.cost().read_write * static_cast<double>(DTypeSize(job.dtype())) *
         static_cast<double>(sets);
}

}  // namespace

double MultiplyAdds(double real_flops, DType dtype) {
  return real_flops / (IsComplex(dtype) ? 8 : 2);
}

TensorSpec ResultSpec(const ContractCall& call, const ContractionJob& job) {
  return {call.result_dtype, job.result_spec().shape};
}

void WritePlanFigures(const ContractCall& call, const ContractionJob& job, v1::PlanSummary* out) {
  const contraction::Program& program = job.program();
  const PathCost cost = job.cost();
  const double flops = MultiplyAdds(job.OneSetFlops(program.total_flops()), job.dtype());
  out->set_plan_id(call.plan_id);
  out->set_program_fingerprint(job.fingerprint());
  out->set_steps(static_cast<int64_t>(job.path().pairs.size()));
  out->set_flops(flops);
  out->set_log10_flops(std::log10(flops));
  out->set_largest_intermediate_elements(
      static_cast<double>(program.largest_intermediate_elements()));
  out->set_slices(SliceCount(cost.slices));
  out->set_log2_slices(std::log2(cost.slices));
  out->set_slice_groups(program.n_groups());
  out->set_hoisted_flops(MultiplyAdds(job.OneSetFlops(program.hoisted_flops()), job.dtype()));
  out->set_reused_flops(
      std::max(0.0, cost.flops - flops - MultiplyAdds(HoistedSaving(job), job.dtype())));
  out->set_shared_flops(call.varies() ? MultiplyAdds(job.shared_flops(), job.dtype()) : 0);
  if (const auto seconds = job.predicted_seconds()) out->set_predicted_seconds(*seconds);
}

void WritePlanSummary(const ContractCall& call, const ContractionJob& job, v1::PlanSummary* out) {
  WritePlanFigures(call, job, out);
  WriteUnsliced(call, job.unsliced_cost(), !job.sliced().empty(), job.predicted_seconds(), out);
  WriteCosts(call, job.expression(), job.path(), job.sliced(), job.cost(), job.predicted_seconds(),
             out);
  WriteProvenance(call, job, out->mutable_provenance());
  if (call.detail != v1::REPORT_DETAIL_BRIEF)
    WritePath(job.expression(), job.path(), job.sliced(), out);
}

namespace {

struct ReadPlan {
  contraction::Expression expression;
  planner::Plan plan;
};

// The plan in the call's request; the engine's own path where there is none.
absl::StatusOr<ReadPlan> PlanOf(const ContractCall& call) {
  ReadPlan read;
  TENON_ASSIGN_OR_RETURN(read.expression, ExpressionOf(call));
  if (call.request.path.has_value()) {
    TENON_ASSIGN_OR_RETURN(read.plan.path,
                           contraction::MakePath(*call.request.path, call.operands.size()));
  } else {
    read.plan.path = contraction::GreedyPath(read.expression);
  }
  TENON_ASSIGN_OR_RETURN(read.plan.sliced,
                         contraction::MakeSliced(read.expression, call.request.sliced));
  return read;
}

}  // namespace

absl::Status WritePlanCosts(const ContractCall& call, std::optional<double> seconds,
                            v1::PlanImprovement* out) {
  TENON_ASSIGN_OR_RETURN(const ReadPlan read, PlanOf(call));
  const planner::Plan& plan = read.plan;
  const PathCost cost = contraction::ComputeCost(read.expression, plan.path, plan.sliced);
  WriteCosts(call, read.expression, plan.path, plan.sliced, cost, seconds, out);
  out->set_slices(SliceCount(cost.slices));
  return absl::OkStatus();
}

absl::Status WritePlanWithoutProgram(const ContractCall& call, v1::PlanSummary* out) {
  TENON_ASSIGN_OR_RETURN(const ReadPlan read, PlanOf(call));
  const auto& [expression, plan] = read;
  const PathCost cost = contraction::ComputeCost(expression, plan.path, plan.sliced);
  out->set_plan_id(call.plan_id);
  out->set_steps(static_cast<int64_t>(plan.path.pairs.size()));
  out->set_flops(cost.flops);
  out->set_log10_flops(std::log10(cost.flops));
  out->set_largest_intermediate_elements(cost.max_size);
  out->set_slices(SliceCount(cost.slices));
  out->set_log2_slices(std::log2(cost.slices));
  WriteUnsliced(call, contraction::ComputeCost(expression, plan.path, {}), !plan.sliced.empty(),
                std::nullopt, out);
  WriteCosts(call, expression, plan.path, plan.sliced, cost, std::nullopt, out);
  if (call.provenance.has_value()) *out->mutable_provenance() = *call.provenance;
  if (call.detail != v1::REPORT_DETAIL_BRIEF) WritePath(expression, plan.path, plan.sliced, out);
  return absl::OkStatus();
}

void WriteMemoryPlan(const ContractionJob& job, int64_t staging_bytes, v1::MemoryPlan* out) {
  const contraction::MemoryPlan& plan = job.plan();
  out->set_total_bytes(plan.Total() + staging_bytes);
  out->set_operand_bytes(plan.operands);
  out->set_result_bytes(plan.results);
  out->set_prologue_bytes(plan.prologue);
  out->set_workers(static_cast<int32_t>(plan.workers));
  out->set_arena_bytes_per_worker(plan.worker_arena);
  out->set_kept_bytes_per_worker(plan.worker_kept);
  out->set_partial_sum_bytes(plan.partial_sums);
  out->set_library_bytes(plan.workers * plan.worker_library + plan.shared_library);
  out->set_staging_bytes(staging_bytes + plan.stack);
  out->set_reuse_reduced(job.program().given_up_results() > 0);
  out->set_unconstrained_workers(static_cast<int32_t>(job.unconstrained_workers()));
}

void WriteAccepted(const ContractCall& call, const ContractionJob& job, const v1::PlanSummary& plan,
                   int64_t staging_bytes, const Limits& limits,
                   std::optional<double> deadline_seconds, v1::ContractAccepted* out) {
  out->set_request_id(call.request_id);
  *out->mutable_plan() = plan;
  const bool brief = call.detail == v1::REPORT_DETAIL_BRIEF;
  if (!brief) WriteMemoryPlan(job, staging_bytes, out->mutable_memory());
  out->set_planned_peak_bytes(job.plan().Total() + staging_bytes);
  if (const auto seconds = job.predicted_seconds()) out->set_estimated_seconds(*seconds);
  v1::GrantedLimits* granted = out->mutable_granted();
  granted->set_memory_budget_bytes(call.memory_budget_bytes);
  granted->set_threads(job.threads());
  granted->set_max_chunk_bytes(static_cast<int32_t>(limits.max_chunk_bytes));
  granted->set_result_chunk_bytes(static_cast<int32_t>(call.result_chunk_bytes));
  if (call.progress_interval_seconds.has_value()) {
    granted->set_progress_interval_seconds(*call.progress_interval_seconds);
  }
  if (deadline_seconds.has_value()) granted->set_deadline_seconds(*deadline_seconds);
  granted->set_priority(ToWire(call.priority));
  WriteTensorSpec(ResultSpec(call, job), out->mutable_result_spec());
  if (!brief) WriteChoices(call, out->mutable_providers());
  out->set_sets_together(static_cast<int32_t>(job.sets_together()));
}

void WriteContractionReport(const ContractCall& call, const ContractionJob& job,
                            const v1::PlanSummary& plan, const CallFigures& figures,
                            v1::ContractionReport* out) {
  const schedule::ContractionReport work = job.Report();
  out->set_request_id(call.request_id);
  const bool brief = call.detail == v1::REPORT_DETAIL_BRIEF;
  if (!brief) *out->mutable_plan() = plan;
  WriteTiming(work, figures, out->mutable_timing());
  v1::MemoryReport* memory = out->mutable_memory();
  memory->set_planned_peak_bytes(figures.planned_peak_bytes);
  if (figures.sets > 0) {
    memory->set_measured_peak_bytes(work.measured_peak_bytes + figures.staging_bytes);
  }
  memory->set_memory_budget_bytes(call.memory_budget_bytes);
  if (!brief) WriteMemoryPlan(job, figures.staging_bytes, memory->mutable_plan());
  out->set_sets(figures.sets);
  out->set_slices(work.slices_done);
  out->set_slice_groups(work.groups_done);
  out->set_flops(MultiplyAdds(work.flops_done, job.dtype()));
  out->set_real_flops(work.flops_done);
  if (work.execution_seconds > 0) out->set_gflops(work.flops_done / work.execution_seconds / 1e9);
  out->set_bytes_moved(BytesMoved(job, figures.sets));
  const double saved = HoistedSaving(job);
  if (saved > 0)
    out->set_hoisted_fraction(saved / (saved + job.OneSetFlops(job.program().total_flops())));
  const bool alone = call.providers.size() == 1;
  if (!brief || !alone) WriteProviders(call, work, job, out);
  for (const schedule::ContractionReport::Move& move : work.moves) {
    v1::GroupMove* moved = out->add_moved_groups();
    moved->set_group(move.group);
    moved->set_from_provider(move.from);
    moved->set_to_provider(move.to);
    *moved->mutable_error() = ToErrorDetail(move.fault);
  }
  if (brief) return;
  if (figures.timeline != nullptr) figures.timeline->Write(out->mutable_timeline());
  WriteChoices(call, out->mutable_provider_choices());
  out->set_server_version(Build().version);
}

void WriteKernels(const schedule::ContractionReport::PerProvider& provider, DType dtype,
                  google::protobuf::RepeatedPtrField<v1::KernelUse>* out) {
  for (const auto& kernel : provider.kernels) {
    v1::KernelUse* use = out->Add();
    use->set_name(kernel.name);
    use->set_kind(kernel.kind);
    use->set_steps(kernel.steps);
    use->set_invocations(kernel.runs);
    use->set_flops(MultiplyAdds(kernel.flops, dtype));
    if (kernel.seconds.has_value()) use->set_seconds(*kernel.seconds);
    for (const std::string& refusal : kernel.refusals) use->add_refusals()->set_reason(refusal);
  }
}

}  // namespace tenon::server
