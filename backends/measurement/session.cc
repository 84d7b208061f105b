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

// Resources and the memory that they lie in.
struct ResourceSet {
  std::vector<tenon_resource> resources;
  std::vector<Buffer> memory;

  static absl::StatusOr<ResourceSet> Allocate(const std::vector<ResourceKey>& keys, int64_t n) {
    ResourceSet set;
    for (const ResourceKey& key : keys) {
      TENON_ASSIGN_OR_RETURN(const int64_t bytes, ResourceBytes(key, n));
      TENON_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(bytes));
      set.resources.push_back({key, buffer.data(), bytes});
      set.memory.push_back(std::move(buffer));
    }
    return set;
  }
};

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

// Adds what was built (or reused) to a report. Resources of one call share its time evenly.
void Report(const ResourceSet& set, const plugin::Provider& provider,
            const tenon_resource_statistics& statistics, bool reused, RunInfo& info) {
  for (const tenon_resource& resource : set.resources) {
    RunInfo::Resource entry;
    entry.kind = KindName(resource.key.kind);
    entry.space = SpaceName(resource.key.space);
    entry.provider = provider.name();
    entry.k = resource.key.k;
    entry.bytes = resource.bytes;
    entry.block_rows = statistics.block_rows;
    entry.build_seconds =
        std::max(0.0, statistics.execution_seconds) / static_cast<double>(set.resources.size());
    entry.reused = reused;
    info.resources.push_back(std::move(entry));
  }
}

}  // namespace

struct Session::Impl {
  std::vector<MeasureSpec> specs;
  SessionOptions options;
  std::vector<int32_t> classes;
  std::shared_ptr<plugin::Provider> provider;
  SessionPlan plan;

  bool bound = false;
  Tensor original;
  bool original_is_single = false;
  std::map<std::string, Tensor> precomputed;  // by handle, in the compute type
  ResourceSet original_resources;
  RunInfo original_info;
  // What the first projection builds for all: others wait for it.
  mutable std::mutex late_mutex;
  mutable bool late_built = false;
  mutable ResourceSet late_resources;

  absl::Status BindOriginal(const Tensor& matrix, const CancelToken* cancel);
  absl::StatusOr<ProjectionScores> Measure(const Tensor& matrix, const CancelToken* cancel) const;
  absl::StatusOr<tenon_resource_statistics> Build(const ResourceSet& outputs,
                                                  const Tensor* projection, int64_t working_bytes,
                                                  const CancelToken* cancel) const;
  tenon_resource_request Request(const ResourceSet& outputs) const;
  absl::StatusOr<ResourceSet> BuildProjection(const Tensor& projection, int64_t working_bytes,
                                              const CancelToken* cancel, RunInfo& info) const;
  absl::Status BindPrecomputed();
  // Of the original side alone; the threads are the call's.
  MetricInput Input(const Parallel& parallel) const;
  tenon_matrix PrecomputedOf(const MeasureSpec& spec) const;
  absl::StatusOr<MeasureScores> EvaluateSpec(const MeasureSpec& spec, MetricInput& input) const;
};

tenon_resource_request Session::Impl::Request(const ResourceSet& outputs) const {
  tenon_resource_request request = {};
  request.struct_size = sizeof(request);
  request.n_outputs = static_cast<int32_t>(outputs.resources.size());
  request.outputs = outputs.resources.data();
  request.threads = plan.threads;
  request.original = MatrixOf(options, true, options.original_columns);
  request.original.data = original.buffer.data();
  return request;
}

absl::StatusOr<tenon_resource_statistics> Session::Impl::Build(const ResourceSet& outputs,
                                                               const Tensor* projection,
                                                               int64_t working_bytes,
                                                               const CancelToken* cancel) const {
  tenon_resource_request request = Request(outputs);
  std::vector<tenon_resource> available = original_resources.resources;
  if (projection != nullptr) {
    request.embedded = MatrixOf(options, false, projection->spec.shape[1]);
    request.embedded.data = projection->buffer.data();
    available.insert(available.end(), late_resources.resources.begin(),
                     late_resources.resources.end());
    request.n_available = static_cast<int32_t>(available.size());
    request.available = available.data();
  }
  request.working_memory_bytes = working_bytes;
  if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
  request.cancel = FlagOf(cancel);
  if (outputs.resources.empty()) return tenon_resource_statistics{};
  auto statistics = provider->BuildResources(request);
  // The token knows why the work stopped, the provider only that it did.
  if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
  return statistics;
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

absl::StatusOr<MeasureScores> Session::Impl::EvaluateSpec(const MeasureSpec& spec,
                                                          MetricInput& input) const {
  input.precomputed = PrecomputedOf(spec);
  TENON_ASSIGN_OR_RETURN(MeasureScores scores, Evaluate(spec, input));
  const std::string seed = SeedName(spec);
  if (!seed.empty()) scores.seed = static_cast<uint64_t>(spec.Integer(seed));
  return scores;
}

absl::Status Session::Impl::BindOriginal(const Tensor& matrix, const CancelToken* cancel) {
  const auto start = std::chrono::steady_clock::now();
  TENON_RETURN_IF_ERROR(CheckShape(matrix.spec, options.rows, options.original_columns, kDataset));
  TENON_ASSIGN_OR_RETURN(original, Widen(matrix, options, kDataset));
  original_is_single = matrix.spec.dtype == DType::kFloat32;
  TENON_RETURN_IF_ERROR(BindPrecomputed());
  TENON_ASSIGN_OR_RETURN(ResourceSet set, ResourceSet::Allocate(plan.original_keys, options.rows));
  TENON_ASSIGN_OR_RETURN(const tenon_resource_statistics statistics,
                         Build(set, nullptr, plan.original_working, cancel));
  original_info.resource_seconds = SecondsSince(start);
  Report(set, *provider, statistics, false, original_info);
  original_resources = std::move(set);
  const Parallel parallel(plan.threads, FlagOf(cancel));
  MetricInput input = Input(parallel);
  for (const MeasureSpec& spec : specs) {
    input.precomputed = PrecomputedOf(spec);
    const absl::Status status = CheckOriginalSide(spec, input);
    // The token knows why the work stopped.
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    TENON_RETURN_IF_ERROR(status);
  }
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
  const auto start = std::chrono::steady_clock::now();
  ResourceSet outputs;
  outputs.resources = set.resources;
  outputs.resources.insert(outputs.resources.end(), late.resources.begin(), late.resources.end());
  TENON_ASSIGN_OR_RETURN(const tenon_resource_statistics statistics,
                         Build(outputs, &projection, working_bytes, cancel));
  info.resource_seconds = SecondsSince(start);
  Report(original_resources, *provider, tenon_resource_statistics{}, true, info);
  if (first) {
    late_resources = std::move(late);
    late_built = true;
  }
  Report(late_resources, *provider, first ? statistics : tenon_resource_statistics{}, !first, info);
  Report(set, *provider, statistics, false, info);
  return set;
}

absl::StatusOr<ProjectionScores> Session::Impl::Measure(const Tensor& matrix,
                                                        const CancelToken* cancel) const {
  const auto start = std::chrono::steady_clock::now();
  if (!bound) return Error(Reason::kInternal, "the session has no data set yet");
  TENON_RETURN_IF_ERROR(CheckShape(matrix.spec, options.rows, 0, kProjection));
  TENON_ASSIGN_OR_RETURN(const int64_t working,
                         ProjectionWorking(matrix.spec.shape[1], options, plan, *provider));
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
  for (const MeasureSpec& spec : specs) {
    const auto spec_start = std::chrono::steady_clock::now();
    auto scores = EvaluateSpec(spec, input);
    // The token knows why the work stopped.
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    if (!scores.ok()) return scores.status();
    result.specs.push_back(*std::move(scores));
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
    TENON_ASSIGN_OR_RETURN(impl->plan, PlanSession(impl->specs, options, *provider));
    impl->options = options;
    impl->provider = std::move(provider);
    (void)fallback;
    return std::unique_ptr<Session>(new Session(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, kOutOfMemory);
  }
}

const std::vector<MeasureSpec>& Session::specs() const { return impl_->specs; }
int64_t Session::planned_peak_bytes() const { return impl_->plan.Peak(); }
int64_t Session::original_bytes() const { return impl_->plan.Original(); }
int64_t Session::planned_temporary_bytes() const { return 0; }
std::vector<RunInfo::Resource> Session::planned_original() const { return {}; }
std::vector<RunInfo::Resource> Session::planned_projection() const { return {}; }
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
