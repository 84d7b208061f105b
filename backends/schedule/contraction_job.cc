#include "backends/schedule/contraction_job.h"

#include <tbb/task_arena.h>

#include <algorithm>
#include <utility>

#include "backends/core/binary_scale.h"
#include "backends/schedule/contraction_job_impl.h"
#include "backends/schedule/kernel_work.h"
#include "backends/schedule/program_cache.h"

namespace tenon::schedule {

using contraction::Expression;
using contraction::MemoryPlan;
using contraction::Path;
using contraction::Program;
using plugin::Provider;

namespace {

int ThreadsOf(const ContractionRequest& request) {
  return request.threads > 0 ? request.threads : tbb::this_task_arena::max_concurrency();
}

}  // namespace

ContractionJob::ContractionJob(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ContractionJob::~ContractionJob() = default;

absl::StatusOr<std::unique_ptr<ContractionJob>> ContractionJob::Prepare(
    const ContractionRequest& request, const std::vector<std::shared_ptr<Provider>>& providers,
    const CancelToken* cancel, ProgramCache* cache) {
  const Clock::time_point start = Clock::now();
  auto impl = std::make_unique<Impl>();
  impl->cancel = cancel;
  const int threads = ThreadsOf(request);
  std::string key;
  if (cache != nullptr) {
    key = PreparationKey(request, providers, threads);
    impl->prepared = cache->Find(key);
  }
  impl->report.cached = impl->prepared != nullptr;
  if (impl->prepared == nullptr) {
    TENON_ASSIGN_OR_RETURN(impl->prepared,
                           PreparedContraction::Make(request, providers, threads, cancel));
    if (cache != nullptr) cache->Insert(std::move(key), impl->prepared);
    impl->report.planning_seconds = impl->prepared->planning_seconds;
    impl->report.compile_seconds = impl->prepared->compile_seconds;
  }
  for (const PreparedContraction::Lane& lane : impl->prepared->lanes) {
    impl->lanes.emplace_back().plan = &lane;
  }
  impl->report.setup_seconds = SecondsSince(start);
  return std::unique_ptr<ContractionJob>(new ContractionJob(std::move(impl)));
}

std::optional<double> ContractionJob::SecondsIfPrepared(
    const ContractionRequest& request, const std::vector<std::shared_ptr<Provider>>& providers,
    ProgramCache* cache) {
  const auto prepared = cache->Peek(PreparationKey(request, providers, ThreadsOf(request)));
  if (prepared == nullptr || prepared->predicted_run_seconds < 0) return std::nullopt;
  return prepared->predicted_run_seconds;
}

const Expression& ContractionJob::expression() const { return impl_->prepared->expression; }
const Path& ContractionJob::path() const { return impl_->prepared->path; }
const std::vector<int>& ContractionJob::sliced() const {
  return impl_->prepared->program->sliced_order();
}
const Program& ContractionJob::program() const { return *impl_->prepared->program; }
const MemoryPlan& ContractionJob::plan() const { return impl_->prepared->plan; }
int64_t ContractionJob::unconstrained_workers() const {
  return impl_->prepared->unconstrained_workers;
}
DType ContractionJob::dtype() const { return impl_->prepared->dtype; }
int64_t ContractionJob::sets_together() const { return impl_->prepared->sets; }
int64_t ContractionJob::sets_to_fill() const {
  return impl_->prepared->sets - impl_->sets_done % impl_->prepared->sets;
}
int ContractionJob::threads() const { return impl_->prepared->threads; }

TensorSpec ContractionJob::result_spec() const {
  TensorSpec spec = impl_->prepared->program->output_spec();
  if (impl_->prepared->sets > 1) spec.shape.erase(spec.shape.begin());
  return spec;
}

const contraction::PathCost& ContractionJob::cost() const { return impl_->prepared->cost; }
const contraction::PathCost& ContractionJob::unsliced_cost() const {
  return impl_->prepared->unsliced_cost;
}

std::optional<int64_t> ContractionJob::exponent() const { return impl_->exponent; }

std::optional<double> ContractionJob::log10_scale() const {
  if (!impl_->exponent.has_value()) return std::nullopt;
  return Log10OfPowerOfTwo(*impl_->exponent);
}

std::string ContractionJob::fingerprint() const {
  return impl_->prepared->lanes.front().compiled->FingerprintHex();
}

std::optional<double> ContractionJob::predicted_seconds() const {
  const double seconds = impl_->prepared->predicted_run_seconds;
  if (seconds < 0) return std::nullopt;
  return seconds / static_cast<double>(impl_->prepared->sets);
}

std::string_view ContractionJob::StepKernelName(int step) const {
  return impl_->prepared->lanes.front().compiled->info().kernels[step];
}

std::optional<double> ContractionJob::StepPredictedSeconds(int step) const {
  const double* seconds = impl_->prepared->lanes.front().compiled->info().step_seconds;
  if (seconds == nullptr) return std::nullopt;
  return seconds[step];
}

double ContractionJob::shared_flops() const {
  const tenon_program& descriptor = impl_->prepared->program->descriptor();
  double flops = 0;
  for (int i = 0; i < descriptor.n_steps; ++i) {
    const tenon_step& step = descriptor.steps[i];
    if (step.phase == TENON_PHASE_CONSTANT) flops += StepFlops(step, impl_->prepared->dtype);
  }
  return flops;
}

double ContractionJob::OneSetFlops(double flops) const {
  const double shared = shared_flops();
  return shared + (flops - shared) / static_cast<double>(impl_->prepared->sets);
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
    one.name = std::string(lane.plan->provider->name());
    one.kernels = KernelsOf(*lane.plan->compiled, *impl_->prepared->program);
    one.groups = lane.groups_done;
    one.groups_failed = lane.groups_failed;
    one.groups_taken_over = lane.groups_taken_over;
    one.workers = lane.plan->workers;
    if (lane.execution == nullptr) continue;
    const auto statistics = lane.execution->Statistics();
    if (!statistics.ok()) continue;
    one.statistics = *statistics;
    AddWork(*statistics, *lane.plan->compiled, *impl_->prepared->program, one.kernels);
    report.flops_done += statistics->flops;
    report.timing_scope = std::max(report.timing_scope, statistics->timing_scope);
    device_seconds = std::max(device_seconds, statistics->execution_seconds);
  }
  // On the host the work is complete when the calls return; devices mark it themselves.
  report.execution_seconds = report.timing_scope == 1   ? report.dispatch_seconds
                             : report.timing_scope == 2 ? device_seconds
                                                        : -1;
  report.measured_peak_bytes = impl_->prepared->plan.operands + impl_->prepared->plan.results +
                               (impl_->memory == nullptr ? 0 : impl_->memory->peak_bytes());
  return report;
}

}  // namespace tenon::schedule
