#include "backends/measurement/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/core/strings.h"
#include "backends/measurement/metrics.h"
#include "backends/measurement/resource_set.h"
#include "backends/measurement/session_memory.h"
#include "backends/measurement/session_plan.h"

namespace tenon::measurement {
namespace {

constexpr char kOutOfMemory[] = "the system refused memory for the scores";

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The fields of errors and, in messages, the short names that the literature uses.
struct MatrixName {
  const char* field;
  const char* text;
};
constexpr MatrixName kDataset = {"dataset", "data set (hd)"};
constexpr MatrixName kPrecomputed = {"precomputed_handle", "matrix of distances"};
constexpr MatrixName kProjection = {"projection", "projection (ld)"};

absl::Status CheckShape(const TensorSpec& spec, int64_t rows, int64_t columns,
                        const MatrixName& name) {
  const bool fits = spec.shape.size() == 2 && spec.shape[0] == rows &&
                    (columns == 0 ? spec.shape[1] >= 1 : spec.shape[1] == columns);
  if (fits) return absl::OkStatus();
  std::string shape;
  for (const int64_t extent : spec.shape)
    absl::StrAppend(&shape, shape.empty() ? "" : " x ", extent);
  const std::string wanted = columns == 0 ? "at least 1" : absl::StrCat(columns);
  return Error(Reason::kShapeMismatch,
               absl::StrCat(name.text, ": the shape is ", shape.empty() ? "a scalar" : shape,
                            ", expected are ", rows, " rows and ", wanted, " columns"))
      .Field(name.field)
      .Meta("rows", rows);
}

template <typename T>
absl::Status CheckFinite(const Tensor& tensor, const MatrixName& name) {
  const T* values = tensor.buffer.as<T>();
  const int64_t columns = tensor.spec.shape[1], count = tensor.spec.shape[0] * columns;
  for (int64_t p = 0; p < count; ++p) {
    if (std::isfinite(values[p])) continue;
    const int64_t row = p / columns, column = p % columns;
    return Error(Reason::kNotFinite, absl::StrCat(name.text, ": the value at row ", row,
                                                  ", column ", column, " is not finite"))
        .Field(name.field)
        .Meta("row", row)
        .Meta("column", column);
  }
  return absl::OkStatus();
}

absl::Status CheckAllFinite(const Tensor& matrix, const MatrixName& name) {
  if (matrix.spec.dtype == DType::kFloat32) return CheckFinite<float>(matrix, name);
  if (matrix.spec.dtype == DType::kFloat64) return CheckFinite<double>(matrix, name);
  return absl::OkStatus();
}

// The checked copy of `matrix`, whose shape is right, in the type that distances are computed in.
absl::StatusOr<Tensor> Widen(const Tensor& matrix, const SessionOptions& options,
                             const MatrixName& name) {
  auto copy = ConvertTensor(matrix, options.compute_dtype);
  if (!copy.ok()) {
    const ErrorDetails details = GetErrorDetails(copy.status());
    return Error(details.reason, absl::StrCat(name.text, ": ", copy.status().message()))
        .Field(name.field);
  }
  TENON_RETURN_IF_ERROR(options.compute_dtype == DType::kFloat32
                            ? CheckFinite<float>(*copy, name)
                            : CheckFinite<double>(*copy, name));
  return copy;
}

const int32_t* FlagOf(const CancelToken* cancel) {
  static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));
  return cancel == nullptr ? nullptr : reinterpret_cast<const int32_t*>(cancel->flag());
}

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

bool IsInvalidScore(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument;
}

// How a kind is built.
const char* AlgorithmOf(const ResourceKey& key, const SessionPlan& plan) {
  const auto has = [&](int32_t kind) {
    const auto is = [kind](const ResourceKey& other) { return other.kind == kind; };
    return std::any_of(plan.original_keys.begin(), plan.original_keys.end(), is) ||
           std::any_of(plan.warm.begin(), plan.warm.end(),
                       [&](const auto& kept) { return is(kept->resource.key); });
  };
  switch (key.kind) {
    case TENON_RESOURCE_KNN:
      return "blockwise_selection";
    case TENON_RESOURCE_SELECTED_RANKS:
      return has(TENON_RESOURCE_RANK_TABLE) ? "table" : "counted";
    case TENON_RESOURCE_RANK_TABLE:
      return "sorted";
    case TENON_RESOURCE_DENSITY:
      return "blockwise_two_pass_gaussian";
    case TENON_RESOURCE_PAIR_STATISTICS:
      return has(TENON_RESOURCE_CONDENSED) ? "condensed" : "streaming";
    case TENON_RESOURCE_CONDENSED:
      return "blockwise";
    default:
      return plan.is_external ? "external_buckets" : "buckets";
  }
}

}  // namespace

struct Session::Impl {
  std::vector<MeasureSpec> specs;
  SessionOptions options;
  std::vector<int32_t> classes;
  SessionProviders providers;
  SessionPlan plan;

  bool bound = false;
  Tensor original;
  bool original_is_single = false;
  std::map<std::string, Tensor> precomputed;  // by handle, in the compute type
  ResourceSet original_resources;
  std::vector<absl::Status> original_errors;  // per specification
  RunInfo original_info;
  // What the first projection builds for all: others wait for it.
  mutable std::mutex late_mutex;
  mutable bool late_built = false;
  mutable ResourceSet late_resources;

  absl::Status BindOriginal(const Tensor& matrix, const CancelToken* cancel);
  absl::Status BindPoints(const Tensor& matrix);
  absl::Status CheckOriginal(const CancelToken* cancel);
  absl::StatusOr<ProjectionScores> Measure(const Tensor& matrix, const CancelToken* cancel) const;
  absl::StatusOr<ResourceSet> BuildProjection(const Tensor& projection, int64_t working_bytes,
                                              const CancelToken* cancel, RunInfo& info) const;
  // Builds the outputs, each by its provider, and reports them. `projection` may be null.
  absl::Status Build(const ResourceSet& outputs, const Tensor* projection, int64_t working_bytes,
                     const CancelToken* cancel, RunInfo& info) const;
  absl::StatusOr<tenon_resource_statistics> BuildBy(plugin::Provider& provider,
                                                    const std::vector<tenon_resource>& outputs,
                                                    const Tensor* projection, int64_t working_bytes,
                                                    const CancelToken* cancel) const;
  void KeepForOthers(const RunInfo& info, ResourceSet& set) const;
  RunInfo::Resource Describe(const ResourceKey& key) const;
  void ReportReused(const ResourceSet& set, RunInfo& info) const;
  absl::Status BindPrecomputed();
  // Of the original side alone; the threads are the call's.
  MetricInput Input(const Parallel& parallel) const;
  tenon_matrix PrecomputedOf(const MeasureSpec& spec) const;
  absl::StatusOr<MeasureScores> EvaluateSpec(size_t s, MetricInput& input) const;
};

RunInfo::Resource Session::Impl::Describe(const ResourceKey& key) const {
  RunInfo::Resource entry;
  entry.kind = KindName(key.kind);
  entry.space = SpaceName(key.space);
  const plugin::Provider* provider = providers.For(key.kind);
  if (provider != nullptr) entry.provider = provider->name();
  entry.fallback_reason = providers.FallbackReason(key.kind);
  entry.algorithm = AlgorithmOf(key, plan);
  entry.k = key.k;
  if (key.kind == TENON_RESOURCE_DENSITY) entry.parameter = key.parameter;
  const auto bytes = ResourceBytes(key, options.rows);
  entry.bytes = bytes.ok() ? *bytes : 0;
  entry.consumers = ConsumersOf(specs, key);
  if (key.kind == TENON_RESOURCE_PAIR_ORDER || key.kind == TENON_RESOURCE_ORDERED_PAIR_STATISTICS) {
    entry.pair_strategy = plan.is_external ? "external" : "memory";
  }
  return entry;
}

void Session::Impl::ReportReused(const ResourceSet& set, RunInfo& info) const {
  for (const tenon_resource& resource : set.resources) {
    info.resources.push_back(Describe(resource.key));
    info.resources.back().reused = true;
  }
}

absl::StatusOr<tenon_resource_statistics> Session::Impl::BuildBy(
    plugin::Provider& provider, const std::vector<tenon_resource>& outputs,
    const Tensor* projection, int64_t working_bytes, const CancelToken* cancel) const {
  tenon_resource_request request = {};
  request.struct_size = sizeof(request);
  request.n_outputs = static_cast<int32_t>(outputs.size());
  request.outputs = outputs.data();
  request.threads = plan.threads;
  request.original = MatrixOf(options, true, options.original_columns);
  request.original.data = original.buffer.data();
  std::vector<tenon_resource> available;
  if (projection != nullptr) {
    request.embedded = MatrixOf(options, false, projection->spec.shape[1]);
    request.embedded.data = projection->buffer.data();
    available = original_resources.resources;
    available.insert(available.end(), late_resources.resources.begin(),
                     late_resources.resources.end());
    request.n_available = static_cast<int32_t>(available.size());
    request.available = available.data();
    if (plan.is_external) {
      request.temporary_directory = options.temporary_directory.c_str();
      request.temporary_bytes = plan.projection_temporary;
    }
  }
  request.working_memory_bytes = working_bytes;
  if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
  request.cancel = FlagOf(cancel);
  auto statistics = provider.BuildResources(request);
  // The token knows why the work stopped, the provider only that it did.
  if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
  return statistics;
}

absl::Status Session::Impl::Build(const ResourceSet& outputs, const Tensor* projection,
                                  int64_t working_bytes, const CancelToken* cancel,
                                  RunInfo& info) const {
  for (plugin::Provider* provider : {providers.asked.get(), providers.fallback.get()}) {
    std::vector<tenon_resource> part;
    for (const tenon_resource& output : outputs.resources) {
      if (providers.For(output.key.kind) == provider) part.push_back(output);
    }
    if (provider == nullptr || part.empty()) continue;
    const auto start = std::chrono::steady_clock::now();
    TENON_ASSIGN_OR_RETURN(const tenon_resource_statistics statistics,
                           BuildBy(*provider, part, projection, working_bytes, cancel));
    // Resources of one pass share its time evenly.
    const double seconds = SecondsSince(start) / static_cast<double>(part.size());
    for (const tenon_resource& resource : part) {
      RunInfo::Resource entry = Describe(resource.key);
      entry.build_seconds = seconds;
      entry.block_rows = statistics.block_rows;
      if (statistics.block_rows > 0) {
        entry.block_count = (options.rows + statistics.block_rows - 1) / statistics.block_rows;
      }
      entry.working_bytes = statistics.working_bytes;
      if (!entry.pair_strategy.empty()) {
        entry.temporary_bytes = statistics.temporary_bytes;
        entry.sorted_runs = statistics.sorted_runs;
      }
      if (resource.key.kind == TENON_RESOURCE_ORDERED_PAIR_STATISTICS) {
        entry.isotonic_blocks =
            static_cast<const OrderedPairStatistics*>(resource.data)->isotonic_blocks;
      }
      info.resources.push_back(std::move(entry));
    }
    info.temporary_peak_bytes = std::max(info.temporary_peak_bytes, statistics.temporary_bytes);
  }
  return absl::OkStatus();
}

// Hands what was built to the sessions to come, if they may have it. The set goes on with it.
void Session::Impl::KeepForOthers(const RunInfo& info, ResourceSet& set) const {
  if (options.warm == nullptr) return;
  const size_t first = info.resources.size() - set.resources.size();
  for (size_t r = 0; r < set.memory.size(); ++r) {
    const ResourceKey& key = set.resources[r].key;
    set.kept.push_back(options.warm->Keep(VariantOf(options, providers, key.kind), key,
                                          std::move(set.memory[r]),
                                          info.resources[first + r].build_seconds));
  }
  set.memory.clear();
}

MetricInput Session::Impl::Input(const Parallel& parallel) const {
  MetricInput input;
  input.n = options.rows;
  input.return_local = options.return_local;
  input.resources = original_resources.resources;
  input.classes = &classes;
  if (!classes.empty()) input.n_classes = 1 + *std::max_element(classes.begin(), classes.end());
  input.original = MatrixOf(options, true, options.original_columns);
  input.original.data = original.buffer.data();
  input.original_is_single = original_is_single;
  input.parallel = &parallel;
  return input;
}

absl::Status Session::Impl::BindPrecomputed() {
  const int64_t n = options.rows;
  for (const MeasureSpec& spec : specs) {
    if (!spec.Has("precomputed_handle")) continue;
    const std::string& handle = spec.Text("precomputed_handle");
    if (handle.empty() || precomputed.contains(handle)) continue;
    TENON_RETURN_IF_ERROR(CheckShape(options.precomputed.at(handle)->spec, n, n, kPrecomputed));
    TENON_ASSIGN_OR_RETURN(precomputed[handle],
                           Widen(*options.precomputed.at(handle), options, kPrecomputed));
  }
  return absl::OkStatus();
}

// The distances that `spec` names; `data` is null without any.
tenon_matrix Session::Impl::PrecomputedOf(const MeasureSpec& spec) const {
  tenon_matrix matrix = {};
  if (spec.Has("precomputed_handle") && !spec.Text("precomputed_handle").empty()) {
    matrix = MatrixOf(options, false, options.rows);
    matrix.data = precomputed.at(spec.Text("precomputed_handle")).buffer.data();
  }
  return matrix;
}

absl::StatusOr<MeasureScores> Session::Impl::EvaluateSpec(size_t s, MetricInput& input) const {
  const MeasureSpec& spec = specs[s];
  TENON_RETURN_IF_ERROR(original_errors[s]);
  input.precomputed = PrecomputedOf(spec);
  TENON_ASSIGN_OR_RETURN(MeasureScores scores, Evaluate(spec, input));
  const std::string seed = SeedName(spec);
  if (!seed.empty()) scores.seed = static_cast<uint64_t>(spec.Integer(seed));
  return scores;
}

absl::Status Session::Impl::BindPoints(const Tensor& matrix) {
  TENON_RETURN_IF_ERROR(CheckShape(matrix.spec, options.rows, options.original_columns, kDataset));
  original_is_single = matrix.spec.dtype == DType::kFloat32;
  const bool checked = options.warm != nullptr && options.warm->is_checked();
  if (plan.points > 0) {
    TENON_ASSIGN_OR_RETURN(original, Widen(matrix, options, kDataset));
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

absl::Status Session::Impl::BindOriginal(const Tensor& matrix, const CancelToken* cancel) {
  const auto start = std::chrono::steady_clock::now();
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

absl::StatusOr<ResourceSet> Session::Impl::BuildProjection(const Tensor& projection,
                                                           int64_t working_bytes,
                                                           const CancelToken* cancel,
                                                           RunInfo& info) const {
  TENON_ASSIGN_OR_RETURN(ResourceSet set,
                         ResourceSet::Allocate(plan.projection_keys, options.rows));
  std::unique_lock lock(late_mutex, std::defer_lock);
  ResourceSet late;
  if (!plan.late_keys.empty()) lock.lock();
  const bool first = !late_built && !plan.late_keys.empty();
  if (first) {
    TENON_ASSIGN_OR_RETURN(late, ResourceSet::Allocate(plan.late_keys, options.rows));
  } else if (lock.owns_lock()) {
    lock.unlock();
  }
  ReportReused(original_resources, info);
  if (!first) ReportReused(late_resources, info);
  ResourceSet outputs;
  outputs.Add(set);
  outputs.Add(late);
  const auto start = std::chrono::steady_clock::now();
  TENON_RETURN_IF_ERROR(Build(outputs, &projection, working_bytes, cancel, info));
  info.resource_seconds = SecondsSince(start);
  if (first) {
    // What was built last, as the outputs end with it.
    KeepForOthers(info, late);
    late_resources = std::move(late);
    late_built = true;
  }
  return set;
}

absl::StatusOr<ProjectionScores> Session::Impl::Measure(const Tensor& matrix,
                                                        const CancelToken* cancel) const {
  const auto start = std::chrono::steady_clock::now();
  if (!bound) return Error(Reason::kInternal, "the session has no data set yet");
  TENON_RETURN_IF_ERROR(CheckShape(matrix.spec, options.rows, 0, kProjection));
  TENON_ASSIGN_OR_RETURN(const int64_t working,
                         ProjectionWorking(matrix.spec.shape[1], specs, options, plan, providers));
  TENON_ASSIGN_OR_RETURN(const Tensor projection, Widen(matrix, options, kProjection));
  ProjectionScores result;
  TENON_ASSIGN_OR_RETURN(const ResourceSet set,
                         BuildProjection(projection, working, cancel, result.info));
  const Parallel parallel(plan.threads, FlagOf(cancel));
  MetricInput input = Input(parallel);
  input.embedded = MatrixOf(options, false, projection.spec.shape[1]);
  input.embedded.data = projection.buffer.data();
  input.embedded_is_single = matrix.spec.dtype == DType::kFloat32;
  input.resources.insert(input.resources.end(), late_resources.resources.begin(),
                         late_resources.resources.end());
  input.resources.insert(input.resources.end(), set.resources.begin(), set.resources.end());
  for (size_t s = 0; s < specs.size(); ++s) {
    const auto spec_start = std::chrono::steady_clock::now();
    auto scores = EvaluateSpec(s, input);
    // The token knows why the work stopped.
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    if (scores.ok()) {
      result.specs.push_back(*std::move(scores));
    } else if (options.skip_failed_measures && IsInvalidScore(scores.status())) {
      result.specs.emplace_back();
      result.specs.back().error = scores.status();
    } else {
      return scores.status();
    }
    result.info.spec_seconds.push_back(SecondsSince(spec_start));
    result.info.metric_seconds += result.info.spec_seconds.back();
  }
  result.info.total_seconds = SecondsSince(start);
  return result;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Prepare(
    const std::vector<RawSpec>& specs, const SessionOptions& options, Labels labels,
    std::shared_ptr<plugin::Provider> provider, std::shared_ptr<plugin::Provider> fallback) {
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
    const bool needs_labels =
        std::any_of(impl->specs.begin(), impl->specs.end(),
                    [](const MeasureSpec& spec) { return spec.info->needs_labels; });
    if (needs_labels) {
      TENON_ASSIGN_OR_RETURN(impl->classes, ClassNumbers(labels, options.rows));
    }
    impl->providers = {std::move(provider), std::move(fallback)};
    TENON_ASSIGN_OR_RETURN(impl->plan, PlanSession(impl->specs, options, impl->providers));
    impl->options = options;
    return std::unique_ptr<Session>(new Session(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, kOutOfMemory);
  }
}

const std::vector<MeasureSpec>& Session::specs() const { return impl_->specs; }
int64_t Session::planned_peak_bytes() const { return impl_->plan.Peak(); }
int64_t Session::original_bytes() const { return impl_->plan.Original(); }
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

}  // namespace tenon::measurement
