#include "backends/measurement/session_plan.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/core/strings.h"
#include "backends/core/tensor.h"
#include "backends/measurement/metrics.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int kPreferredInFlight = 2;  // one projection's serial steps hide behind another's loops

absl::Status Unsupported(const plugin::Provider& provider, std::string_view what) {
  return Error(Reason::kUnsupportedByProvider, absl::StrCat("provider '", ToAbsl(provider.name()),
                                                            "' does not build ", ToAbsl(what)))
      .Field("provider");
}

absl::Status CollectKeys(const std::vector<MeasureSpec>& specs, const plugin::Provider& provider,
                         SessionPlan& plan) {
  for (const MeasureSpec& spec : specs) {
    for (const ResourceKey& key : Requirements(spec)) {
      if (!provider.CanBuild(key.kind)) {
        return Unsupported(provider, absl::StrCat("'", ToAbsl(KindName(key.kind)), "', which ",
                                                  spec.info->id, " needs"));
      }
      const bool original = key.space == TENON_RESOURCE_ORIGINAL;
      MergeKey(key, original ? plan.original_keys : plan.projection_keys);
      plan.needs_points |=
          key.kind == TENON_RESOURCE_SELECTED_RANKS || key.kind == TENON_RESOURCE_PAIR_STATISTICS;
    }
    plan.needs_points |= MetricOf(spec).original_points;
  }
  return absl::OkStatus();
}

// Ranks of a projection's neighbours need all distances of the original space; its own neighbours
// come out of the same pass, unless a measure wants to see them before.
void SplitLateKeys(const std::vector<MeasureSpec>& specs, SessionPlan& plan) {
  for (const MeasureSpec& spec : specs) {
    if (MetricOf(spec).check_original == nullptr) continue;
    for (const ResourceKey& key : Requirements(spec)) {
      if (key.kind == TENON_RESOURCE_KNN && key.space == TENON_RESOURCE_ORIGINAL) return;
    }
  }
  const bool full_pass =
      std::any_of(plan.projection_keys.begin(), plan.projection_keys.end(),
                  [](const ResourceKey& key) { return key.kind == TENON_RESOURCE_SELECTED_RANKS; });
  if (!full_pass) return;
  const auto late =
      std::stable_partition(plan.original_keys.begin(), plan.original_keys.end(),
                            [](const ResourceKey& key) { return key.kind != TENON_RESOURCE_KNN; });
  plan.late_keys.assign(late, plan.original_keys.end());
  plan.original_keys.erase(late, plan.original_keys.end());
}

absl::StatusOr<int64_t> BytesOf(const std::vector<ResourceKey>& keys, int64_t n) {
  int64_t sum = 0;
  for (const ResourceKey& key : keys) {
    TENON_ASSIGN_OR_RETURN(const int64_t bytes, ResourceBytes(key, n));
    if (__builtin_add_overflow(sum, bytes, &sum)) {
      return Error(Reason::kOverflow, "the bytes of the resources do not fit in 63 bits");
    }
  }
  return sum;
}

absl::Status AddFixedBytes(const std::vector<MeasureSpec>& specs, const SessionOptions& options,
                           SessionPlan& plan) {
  const int64_t n = options.rows;
  if (plan.needs_points || !plan.original_keys.empty()) {
    TENON_ASSIGN_OR_RETURN(
        plan.points, CheckedByteCount({options.compute_dtype, {n, options.original_columns}}));
  }
  TENON_ASSIGN_OR_RETURN(plan.original_resources, BytesOf(plan.original_keys, n));
  TENON_ASSIGN_OR_RETURN(const int64_t late, BytesOf(plan.late_keys, n));
  plan.original_resources += late;
  TENON_ASSIGN_OR_RETURN(
      const int64_t projection,
      CheckedByteCount({options.compute_dtype, {n, options.max_embedded_columns}}));
  TENON_ASSIGN_OR_RETURN(const int64_t resources, BytesOf(plan.projection_keys, n));
  int64_t local_scores = 0;
  for (const MeasureSpec& spec : specs) {
    if (spec.Has("precomputed_handle") && !spec.Text("precomputed_handle").empty()) {
      TENON_ASSIGN_OR_RETURN(const int64_t matrix,
                             CheckedByteCount({options.compute_dtype, {n, n}}));
      plan.precomputed += matrix;
    }
    plan.labels = std::max(plan.labels, spec.info->needs_labels ? n * int64_t{4} : int64_t{0});
    if (!options.return_local) continue;
    for (const OutputInfo& output : spec.info->outputs) {
      local_scores += output.local_key.empty() ? 0 : n * int64_t{sizeof(double)};
    }
  }
  plan.projection_fixed = projection + resources + local_scores;
  return absl::OkStatus();
}

tenon_resource_request PlanningRequest(const SessionOptions& options, const SessionPlan& plan,
                                       const std::vector<tenon_resource>& outputs) {
  tenon_resource_request request = {};
  request.struct_size = sizeof(request);
  request.n_outputs = static_cast<int32_t>(outputs.size());
  request.outputs = outputs.data();
  request.threads = plan.threads;
  request.original = MatrixOf(options, true, options.original_columns);
  request.embedded = MatrixOf(options, false, options.max_embedded_columns);
  return request;
}

absl::Status BudgetError(int64_t budget, int64_t smallest) {
  return Error(Reason::kExceedsMemoryBudget,
               absl::StrCat("the measures need at least ", smallest,
                            " bytes of memory, the budget is ", budget, " bytes"))
      .Field("memory_budget_bytes")
      .Meta("budget_bytes", budget)
      .Meta("smallest_budget_bytes", smallest);
}

// Scratch for one step of a session.
struct Working {
  int64_t bytes = 0;     // as planned, 0 if the step does not fit
  int64_t smallest = 0;  // budget with which the step would fit; 0 if it fits
};

// The least `available` for which the provider finds a plan; `refused` is one it refused.
absl::StatusOr<int64_t> SmallestAvailable(const tenon_resource_request& request, int64_t refused,
                                          plugin::Provider& provider) {
  int64_t enough = std::max<int64_t>(1, refused);
  do {
    if (enough > kUnlimited / 2) return provider.WorkingMemory(request, kUnlimited);
    enough *= 2;
  } while (!provider.WorkingMemory(request, enough).ok());
  while (enough - refused > 1) {
    const int64_t middle = refused + (enough - refused) / 2;
    (provider.WorkingMemory(request, middle).ok() ? enough : refused) = middle;
  }
  return enough;
}

// Scratch for `keys` when `held` bytes are taken already.
absl::StatusOr<Working> WorkingBytes(const std::vector<ResourceKey>& keys, int64_t held,
                                     const SessionOptions& options, const SessionPlan& plan,
                                     plugin::Provider& provider) {
  const int64_t budget = options.memory_budget_bytes;
  if (keys.empty()) return Working{0, budget > 0 && held > budget ? held : 0};
  std::vector<tenon_resource> outputs;
  for (const ResourceKey& key : keys) outputs.push_back({key, nullptr, 0});
  const tenon_resource_request request = PlanningRequest(options, plan, outputs);
  const int64_t available = budget == 0 ? kUnlimited : std::max<int64_t>(0, budget - held);
  const auto bytes = provider.WorkingMemory(request, available);
  if (bytes.ok() && (budget == 0 || held + *bytes <= budget)) return Working{*bytes, 0};
  if (!bytes.ok() && GetErrorDetails(bytes.status()).reason != Reason::kExceedsMemoryBudget) {
    return bytes.status();
  }
  TENON_ASSIGN_OR_RETURN(const int64_t smallest, SmallestAvailable(request, available, provider));
  return Working{0, held + smallest};
}

// Scratch of the measures' last steps, which run one after the other.
int64_t LargestMetricWorking(const std::vector<MeasureSpec>& specs, const SessionOptions& options,
                             const SessionPlan& plan) {
  const MetricShape shape = {options.rows, options.original_columns, options.max_embedded_columns,
                             plan.threads, options.return_local};
  int64_t largest = 0;
  for (const MeasureSpec& spec : specs) {
    largest = std::max(largest, MetricWorkingBytes(spec, shape));
  }
  return largest;
}

// What the first projection builds, which is the most.
std::vector<ResourceKey> ProjectionKeys(const SessionPlan& plan) {
  std::vector<ResourceKey> keys = plan.projection_keys;
  keys.insert(keys.end(), plan.late_keys.begin(), plan.late_keys.end());
  return keys;
}

int WantedInFlight(const SessionOptions& options) {
  return options.in_flight > 0 ? options.in_flight : kPreferredInFlight;
}

void SetInFlight(const SessionOptions& options, SessionPlan& plan) {
  const int wanted = WantedInFlight(options);
  plan.in_flight = std::min(wanted, plan.threads);
  plan.in_flight_limit = plan.in_flight < wanted ? "threads" : "requested";
  if (options.memory_budget_bytes == 0 || plan.Projection() == 0) return;
  const int64_t fits = (options.memory_budget_bytes - plan.Original()) / plan.Projection();
  if (fits < plan.in_flight) {
    plan.in_flight = static_cast<int>(std::max<int64_t>(1, fits));
    plan.in_flight_limit = "memory";
  }
}

}  // namespace

absl::StatusOr<int64_t> ProjectionWorking(int64_t columns, const SessionOptions& options,
                                          const SessionPlan& plan, plugin::Provider& provider) {
  if (columns <= options.max_embedded_columns) return plan.projection_working;
  TENON_ASSIGN_OR_RETURN(
      const int64_t planned_copy,
      CheckedByteCount({options.compute_dtype, {options.rows, options.max_embedded_columns}}));
  TENON_ASSIGN_OR_RETURN(const int64_t copy,
                         CheckedByteCount({options.compute_dtype, {options.rows, columns}}));
  const int64_t held = plan.projection_fixed - planned_copy + copy;
  const int64_t budget = options.memory_budget_bytes;
  SessionOptions one = options;  // as if one such projection had its share to itself
  one.max_embedded_columns = columns;
  if (budget > 0) {
    one.memory_budget_bytes = std::max<int64_t>(1, (budget - plan.Original()) / plan.in_flight);
  }
  TENON_ASSIGN_OR_RETURN(const Working working,
                         WorkingBytes(ProjectionKeys(plan), held, one, plan, provider));
  if (working.smallest == 0) {
    const int64_t available = budget > 0 ? one.memory_budget_bytes - held : kUnlimited;
    return std::min(available, std::max(plan.projection_working, working.bytes));
  }
  // A larger budget may also admit more projections at once, up to those wanted.
  const int64_t at_once = std::min(WantedInFlight(options), plan.threads);
  const int64_t smallest = plan.Original() + at_once * working.smallest;
  return Error(Reason::kExceedsMemoryBudget,
               absl::StrCat("a projection (ld) of ", columns, " columns needs a memory budget of ",
                            smallest, " bytes, the budget is ", budget, " bytes"))
      .Field("projection")
      .Meta("columns", columns)
      .Meta("memory_budget_bytes", budget)
      .Meta("smallest_budget_bytes", smallest);
}

tenon_matrix MatrixOf(const SessionOptions& options, bool original, int64_t columns) {
  tenon_matrix matrix = {};
  matrix.dtype = static_cast<int32_t>(options.compute_dtype);
  matrix.geodesic = original && options.geodesic ? 1 : 0;
  matrix.rows = options.rows;
  matrix.columns = columns;
  return matrix;
}

absl::StatusOr<SessionPlan> PlanSession(const std::vector<MeasureSpec>& specs,
                                        const SessionOptions& options, plugin::Provider& provider) {
  SessionPlan plan;
  if (!(provider.info().resource_dtypes >> static_cast<int>(options.compute_dtype) & 1u)) {
    return Unsupported(provider,
                       absl::StrCat("resources in ", ToAbsl(DTypeName(options.compute_dtype))));
  }
  plan.threads = options.threads > 0
                     ? options.threads
                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  TENON_RETURN_IF_ERROR(CollectKeys(specs, provider, plan));
  SplitLateKeys(specs, plan);
  TENON_RETURN_IF_ERROR(AddFixedBytes(specs, options, plan));
  TENON_ASSIGN_OR_RETURN(const Working original, WorkingBytes(plan.original_keys, plan.Original(),
                                                              options, plan, provider));
  TENON_ASSIGN_OR_RETURN(const Working projection,
                         WorkingBytes(ProjectionKeys(plan), plan.Original() + plan.projection_fixed,
                                      options, plan, provider));
  plan.metric_working = LargestMetricWorking(specs, options, plan);
  const int64_t with_metrics = plan.Original() + plan.projection_fixed + plan.metric_working;
  const int64_t budget = options.memory_budget_bytes;
  const int64_t metrics_smallest = budget > 0 && with_metrics > budget ? with_metrics : 0;
  const int64_t smallest = std::max({original.smallest, projection.smallest, metrics_smallest});
  if (smallest > 0) return BudgetError(budget, smallest);
  plan.original_working = original.bytes;
  plan.projection_working = projection.bytes;
  SetInFlight(options, plan);
  return plan;
}

}  // namespace tenon::measurement
