#include "backends/measurement/session.h"

#include <algorithm>
#include <new>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/metrics.h"
#include "backends/measurement/points.h"
#include "backends/measurement/session_impl.h"
#include "backends/measurement/session_memory.h"

namespace tenon::measurement {
namespace {

constexpr char kOutOfMemory[] = "the system refused memory for the scores";

// Seeds that were not given.
void DrawSeeds(std::vector<MeasureSpec>& specs) {
  std::random_device entropy;
  for (MeasureSpec& spec : specs) {
    const std::string name = SeedName(spec);
    // 32 bits: every generator takes them.
    if (!name.empty() && !spec.Has(name)) spec.parameters[name] = int64_t{entropy()};
  }
}

absl::Status CheckPrecomputed(const std::vector<MeasureSpec>& specs,
                              const SessionOptions& options) {
  for (size_t s = 0; s < specs.size(); ++s) {
    if (!specs[s].Has("precomputed_handle")) continue;
    const std::string& handle = specs[s].Text("precomputed_handle");
    if (handle.empty() || options.precomputed.contains(handle)) continue;
    return Error(Reason::kNotFound, absl::StrCat("no stored matrix is called '", handle, "'"))
        .Field(absl::StrCat("specs[", s, "].precomputed_handle"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Session::Impl::BindPrecomputed() {
  const int64_t n = options.rows;
  for (const MeasureSpec& spec : specs) {
    if (!spec.Has("precomputed_handle")) continue;
    const std::string& handle = spec.Text("precomputed_handle");
    if (handle.empty() || precomputed.contains(handle)) continue;
    TENON_RETURN_IF_ERROR(CheckShape(options.precomputed.at(handle)->spec, n, n, kPrecomputed));
    TENON_ASSIGN_OR_RETURN(precomputed[handle], Widen(*options.precomputed.at(handle),
                                                      options.compute_dtype, kPrecomputed));
  }
  return absl::OkStatus();
}

absl::Status Session::Impl::BindPoints(const Tensor& matrix) {
  TENON_RETURN_IF_ERROR(CheckShape(matrix.spec, options.rows, options.original_columns, kDataset));
  original_is_single = matrix.spec.dtype == DType::kFloat32;
  const bool checked = options.warm != nullptr && options.warm->is_checked();
  if (plan.points > 0) {
    TENON_ASSIGN_OR_RETURN(original, Widen(matrix, options.compute_dtype, kDataset));
  } else if (!checked) {
    // Nothing reads the points, but they have to be valid all the same.
    TENON_RETURN_IF_ERROR(CheckAllFinite(matrix, kDataset));
  }
  if (options.warm != nullptr) options.warm->SetChecked();
  return absl::OkStatus();
}

absl::Status Session::Impl::CheckOriginal(const CancelToken* cancel) {
  const Parallel parallel(plan.threads, FlagOf(cancel));
  MetricInput input = Input(parallel);
  for (const MeasureSpec& spec : specs) {
    input.precomputed = PrecomputedOf(spec);
    absl::Status status = CheckOriginalSide(spec, input);
    // The token knows why the work stopped.
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    if (!options.skip_failed_measures || !IsInvalidScore(status)) TENON_RETURN_IF_ERROR(status);
    original_errors.push_back(std::move(status));
  }
  return absl::OkStatus();
}

bool Session::Impl::needs_labels() const {
  return std::any_of(specs.begin(), specs.end(),
                     [](const MeasureSpec& spec) { return spec.info->needs_labels; });
}

absl::Status Session::Impl::BindOriginal(const Tensor& matrix, const CancelToken* cancel) {
  const auto start = std::chrono::steady_clock::now();
  if (classes.empty() && needs_labels()) {
    return Error(Reason::kLabelsRequired, "a measure needs labels and none were given")
        .Field("labels");
  }
  TENON_RETURN_IF_ERROR(BindPoints(matrix));
  TENON_RETURN_IF_ERROR(BindPrecomputed());
  TENON_ASSIGN_OR_RETURN(ResourceSet set, ResourceSet::Allocate(plan.original_keys, options.rows));
  const auto build_start = std::chrono::steady_clock::now();
  TENON_RETURN_IF_ERROR(Build(set, nullptr, plan.original_working, cancel, original_info));
  if (!set.resources.empty()) original_info.resource_seconds = SecondsSince(build_start);
  KeepForOthers(original_info, set);
  original_resources = std::move(set);
  ResourceSet warm;
  for (const auto& kept : plan.warm) warm.Add(kept);
  ReportReused(warm, original_info);
  for (const auto& kept : plan.warm) original_resources.Add(kept);
  TENON_RETURN_IF_ERROR(CheckOriginal(cancel));
  if (!plan.needs_points) original.buffer.Reset();
  original_info.total_seconds = SecondsSince(start);
  bound = true;
  return absl::OkStatus();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Plan(const std::vector<RawSpec>& specs,
                                                       const SessionOptions& options,
                                                       std::shared_ptr<plugin::Provider> provider,
                                                       std::shared_ptr<plugin::Provider> fallback) {
  if (options.rows < 2) {
    return Error(Reason::kTooFewRows,
                 absl::StrCat("the data set has ", options.rows, " rows, at least 2 are needed"))
        .Field("dataset")
        .Meta("rows", options.rows);
  }
  try {
    auto impl = std::make_unique<Impl>();
    TENON_ASSIGN_OR_RETURN(impl->specs, CheckSpecs(specs, options.rows));
    DrawSeeds(impl->specs);
    TENON_RETURN_IF_ERROR(CheckPrecomputed(impl->specs, options));
    impl->providers = {std::move(provider), std::move(fallback)};
    TENON_ASSIGN_OR_RETURN(impl->plan, PlanSession(impl->specs, options, impl->providers));
    impl->consumers = Consumers(impl->specs);
    impl->options = options;
    return std::unique_ptr<Session>(new Session(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, kOutOfMemory);
  }
}

absl::StatusOr<std::unique_ptr<Session>> Session::Prepare(
    const std::vector<RawSpec>& specs, const SessionOptions& options, const Labels& labels,
    std::shared_ptr<plugin::Provider> provider, std::shared_ptr<plugin::Provider> fallback) {
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                         Plan(specs, options, std::move(provider), std::move(fallback)));
  TENON_RETURN_IF_ERROR(session->SetLabels(labels));
  return session;
}

absl::Status Session::SetLabels(const Labels& labels) {
  if (!impl_->needs_labels()) return absl::OkStatus();
  try {
    TENON_ASSIGN_OR_RETURN(impl_->classes, ClassNumbers(labels, impl_->options.rows));
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, kOutOfMemory);
  }
}

const std::vector<MeasureSpec>& Session::specs() const { return impl_->specs; }
int64_t Session::planned_peak_bytes() const { return impl_->plan.Peak(); }
absl::StatusOr<int64_t> Session::projection_bytes(int64_t columns) const {
  return ProjectionPeak(columns, impl_->specs, impl_->options, impl_->plan, impl_->providers);
}
int64_t Session::original_bytes() const { return impl_->plan.Original(); }
int64_t Session::original_working_bytes() const {
  const SessionPlan& plan = impl_->plan;
  return plan.original_working > plan.in_flight * plan.Projection() ? plan.original_working : 0;
}
int64_t Session::warm_bytes() const {
  int64_t bytes = 0;
  for (const auto& kept : impl_->plan.warm) bytes += kept->resource.bytes;
  return bytes;
}
int64_t Session::planned_temporary_bytes() const {
  return impl_->plan.projection_temporary * impl_->plan.in_flight;
}

std::vector<RunInfo::Resource> Session::planned_original() const {
  std::vector<RunInfo::Resource> planned;
  const SessionPlan& plan = impl_->plan;
  for (const auto& keys : {plan.original_keys, plan.late_keys}) {
    for (const ResourceKey& key : keys) planned.push_back(impl_->Describe(key));
  }
  for (const auto& kept : plan.warm) {
    planned.push_back(impl_->Describe(kept->resource.key));
    planned.back().reused = true;
  }
  return planned;
}

std::vector<RunInfo::Resource> Session::planned_projection() const {
  std::vector<RunInfo::Resource> planned;
  for (const ResourceKey& key : impl_->plan.projection_keys) {
    planned.push_back(impl_->Describe(key));
    planned.back().working_bytes = impl_->plan.projection_working;
  }
  return planned;
}

int Session::in_flight() const { return impl_->plan.in_flight; }
std::string Session::in_flight_limit() const { return impl_->plan.in_flight_limit; }
int Session::batch_size() const { return impl_->plan.batch; }
std::string Session::batch_limit() const { return impl_->plan.batch_limit; }
const RunInfo& Session::original_info() const { return impl_->original_info; }

absl::Status Session::BindOriginal(const Tensor& original, const CancelToken* cancel) {
  try {
    return impl_->BindOriginal(original, cancel);
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, kOutOfMemory);
  }
}

absl::StatusOr<ProjectionScores> Session::Measure(const Tensor& projection,
                                                  const CancelToken* cancel) const {
  try {
    return impl_->Measure(projection, cancel);
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, kOutOfMemory);
  }
}

std::vector<absl::StatusOr<ProjectionScores>> Session::MeasureBatch(
    const std::vector<const Tensor*>& projections, const CancelToken* cancel) const {
  try {
    return impl_->MeasureBatch(projections, cancel);
  } catch (const std::bad_alloc&) {
    const absl::Status refused = Error(Reason::kExceedsMemoryBudget, kOutOfMemory);
    return std::vector<absl::StatusOr<ProjectionScores>>(projections.size(), refused);
  }
}

}  // namespace tenon::measurement
