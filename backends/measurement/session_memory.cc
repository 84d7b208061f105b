#include "backends/measurement/session_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/core/strings.h"
#include "backends/core/tensor.h"
#include "backends/measurement/metrics.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int kPreferredInFlight = 2;  // one projection's serial steps hide behind another's loops

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

absl::Status BudgetError(int64_t budget, int64_t smallest) {
  return Error(Reason::kExceedsMemoryBudget,
               absl::StrCat("the measures need at least ", smallest,
                            " bytes of memory, the budget is ", budget, " bytes"))
      .Field("memory_budget_bytes")
      .Meta("budget_bytes", budget)
      .Meta("smallest_budget_bytes", smallest);
}

// A request for planning: keys without memory.
struct PlanningRequest {
  std::vector<tenon_resource> outputs, available;
  tenon_resource_request request = {};

  PlanningRequest(const std::vector<ResourceKey>& keys, int64_t columns,
                  const SessionOptions& options, const SessionPlan& plan) {
    for (const ResourceKey& key : keys) outputs.push_back({key, nullptr, 0});
    const auto offer = [&](const ResourceKey& key) {
      const auto bytes = ResourceBytes(key, options.rows);
      if (bytes.ok()) available.push_back({key, nullptr, *bytes});
    };
    for (const ResourceKey& key : plan.original_keys) offer(key);
    for (const auto& kept : plan.warm) offer(kept->resource.key);
    request.struct_size = sizeof(request);
    request.n_outputs = static_cast<int32_t>(outputs.size());
    request.outputs = outputs.data();
    request.threads = plan.threads;
    request.original = MatrixOf(options, true, options.original_columns);
    request.embedded = MatrixOf(options, false, columns);
    if (plan.is_external) request.temporary_directory = options.temporary_directory.c_str();
  }
  PlanningRequest(const PlanningRequest&) = delete;

  void OfferOriginalSide() {
    request.n_available = static_cast<int32_t>(available.size());
    request.available = available.data();
  }
};

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

absl::StatusOr<Working> WorkingOfRequest(const tenon_resource_request& request, int64_t held,
                                         int64_t budget, plugin::Provider& provider) {
  const int64_t available = budget == 0 ? kUnlimited : std::max<int64_t>(0, budget - held);
  const auto bytes = provider.WorkingMemory(request, available);
  if (bytes.ok() && (budget == 0 || held + *bytes <= budget)) return Working{*bytes, 0};
  if (!bytes.ok() && GetErrorDetails(bytes.status()).reason != Reason::kExceedsMemoryBudget) {
    return bytes.status();
  }
  TENON_ASSIGN_OR_RETURN(const int64_t smallest, SmallestAvailable(request, available, provider));
  return Working{0, held + smallest};
}

// Scratch for `keys` when `held` bytes are taken already: of the provider that needs most, for each
// builds its part by itself.
absl::StatusOr<Working> WorkingBytes(const std::vector<ResourceKey>& keys, int64_t columns,
                                     int64_t held, const SessionOptions& options,
                                     const SessionPlan& plan, const SessionProviders& providers,
                                     bool for_projection) {
  const int64_t budget = options.memory_budget_bytes;
  Working working{0, budget > 0 && held > budget ? held : 0};
  for (plugin::Provider* provider : {providers.asked.get(), providers.fallback.get()}) {
    std::vector<ResourceKey> part;
    for (const ResourceKey& key : keys) {
      if (providers.For(key.kind) == provider) part.push_back(key);
    }
    if (provider == nullptr || part.empty()) continue;
    PlanningRequest planning(part, columns, options, plan);
    if (for_projection) planning.OfferOriginalSide();
    TENON_ASSIGN_OR_RETURN(const Working own,
                           WorkingOfRequest(planning.request, held, budget, *provider));
    working.bytes = std::max(working.bytes, own.bytes);
    working.smallest = std::max(working.smallest, own.smallest);
  }
  return working;
}

// What the first projection builds, which is the most.
std::vector<ResourceKey> ProjectionKeys(const SessionPlan& plan) {
  std::vector<ResourceKey> keys = plan.projection_keys;
  keys.insert(keys.end(), plan.late_keys.begin(), plan.late_keys.end());
  return keys;
}

// Scratch of the measures' last steps, which run one after the other.
int64_t LargestMetricWorking(int64_t columns, const std::vector<MeasureSpec>& specs,
                             const SessionOptions& options, const SessionPlan& plan) {
  const MetricShape shape = {options.rows, options.original_columns, columns, plan.threads,
                             options.return_local};
  int64_t largest = 0;
  for (const MeasureSpec& spec : specs) {
    largest = std::max(largest, MetricWorkingBytes(spec, shape));
  }
  return largest;
}

int WantedInFlight(const SessionOptions& options) {
  return options.in_flight > 0 ? options.in_flight : kPreferredInFlight;
}

void LimitInFlight(int64_t fits, const char* limit, SessionPlan& plan) {
  if (fits >= plan.in_flight) return;
  plan.in_flight = static_cast<int>(std::max<int64_t>(1, fits));
  plan.in_flight_limit = limit;
}

void SetInFlight(const SessionOptions& options, SessionPlan& plan) {
  const int wanted = WantedInFlight(options);
  plan.in_flight = std::min(wanted, plan.threads);
  plan.in_flight_limit = plan.in_flight < wanted ? "threads" : "requested";
  if (options.memory_budget_bytes > 0 && plan.Projection() > 0) {
    LimitInFlight((options.memory_budget_bytes - plan.Original()) / plan.Projection(), "memory",
                  plan);
  }
  if (plan.projection_temporary > 0) {
    LimitInFlight(options.temporary_budget_bytes / plan.projection_temporary, "temporary", plan);
  }
}

// All resources of a projection must gain, or the rest would be built one by one all the same.
void SetBatch(const SessionOptions& options, const SessionProviders& providers, SessionPlan& plan) {
  plan.batch_limit = "no_batchable_resource";
  if (plan.projection_keys.empty()) return;
  for (const ResourceKey& key : plan.projection_keys) {
    if (providers.For(key.kind) != providers.asked.get() || !providers.asked->CanBatch(key)) return;
  }
  const bool limited = options.batch_size > 0 && options.batch_size <= plan.in_flight;
  plan.batch = limited ? options.batch_size : plan.in_flight;
  plan.batch_limit = limited ? "requested" : "in_flight";
}

absl::Status PlanFiles(const SessionOptions& options, SessionPlan& plan) {
  if (!plan.is_external) return absl::OkStatus();
  constexpr int64_t kMostRows = int64_t{1} << 28;  // bytes of their pairs fit in 63 bits
  if (options.rows > kMostRows) {
    return Error(Reason::kOverflow, absl::StrCat("the pairs of ", options.rows,
                                                 " rows are too many to be put in order"));
  }
  plan.projection_temporary = TemporaryBytes(plan.projection_keys, options.rows);
  if (plan.projection_temporary <= options.temporary_budget_bytes) return absl::OkStatus();
  return Error(Reason::kExceedsTemporaryBudget,
               absl::StrCat("the order of all pairs needs ", plan.projection_temporary,
                            " bytes of temporary files, the budget is ",
                            options.temporary_budget_bytes, " bytes"))
      .Field("temporary_budget_bytes")
      .Meta("budget_bytes", options.temporary_budget_bytes)
      .Meta("smallest_budget_bytes", plan.projection_temporary);
}

// As plan.projection_fixed, for another width.
absl::StatusOr<int64_t> ProjectionFixed(int64_t columns, const SessionOptions& options,
                                        const SessionPlan& plan) {
  TENON_ASSIGN_OR_RETURN(
      const int64_t planned_copy,
      CheckedByteCount({options.compute_dtype, {options.rows, options.max_embedded_columns}}));
  TENON_ASSIGN_OR_RETURN(const int64_t copy,
                         CheckedByteCount({options.compute_dtype, {options.rows, columns}}));
  return plan.projection_fixed - planned_copy + copy;
}

}  // namespace

tenon_matrix MatrixOf(const SessionOptions& options, bool original, int64_t columns) {
  tenon_matrix matrix = {};
  matrix.dtype = static_cast<int32_t>(options.compute_dtype);
  matrix.geodesic = original && options.geodesic ? 1 : 0;
  matrix.rows = options.rows;
  matrix.columns = columns;
  return matrix;
}

absl::Status PlanMemory(const std::vector<MeasureSpec>& specs, const SessionOptions& options,
                        const SessionProviders& providers, SessionPlan& plan) {
  const int64_t columns = options.max_embedded_columns, budget = options.memory_budget_bytes;
  TENON_RETURN_IF_ERROR(AddFixedBytes(specs, options, plan));
  TENON_RETURN_IF_ERROR(PlanFiles(options, plan));
  TENON_ASSIGN_OR_RETURN(
      const Working original,
      WorkingBytes(plan.original_keys, columns, plan.Original(), options, plan, providers, false));
  const int64_t held = plan.Original() + plan.projection_fixed;
  TENON_ASSIGN_OR_RETURN(const Working projection, WorkingBytes(ProjectionKeys(plan), columns, held,
                                                                options, plan, providers, true));
  plan.metric_working = LargestMetricWorking(columns, specs, options, plan);
  const int64_t with_metrics = held + plan.metric_working;
  const int64_t metrics = budget > 0 && with_metrics > budget ? with_metrics : 0;
  const int64_t smallest = std::max({original.smallest, projection.smallest, metrics});
  if (smallest > 0) return BudgetError(budget, smallest);
  plan.original_working = original.bytes;
  plan.projection_working = projection.bytes;
  SetInFlight(options, plan);
  SetBatch(options, providers, plan);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ProjectionWorking(int64_t columns, const std::vector<MeasureSpec>& specs,
                                          const SessionOptions& options, const SessionPlan& plan,
                                          const SessionProviders& providers) {
  if (columns <= options.max_embedded_columns) return plan.projection_working;
  TENON_ASSIGN_OR_RETURN(const int64_t held, ProjectionFixed(columns, options, plan));
  const int64_t budget = options.memory_budget_bytes;
  SessionOptions one = options;  // as if one such projection had its share to itself
  if (budget > 0) {
    one.memory_budget_bytes = std::max<int64_t>(1, (budget - plan.Original()) / plan.in_flight);
  }
  TENON_ASSIGN_OR_RETURN(Working working, WorkingBytes(ProjectionKeys(plan), columns, held, one,
                                                       plan, providers, true));
  const int64_t with_metrics = held + LargestMetricWorking(columns, specs, options, plan);
  if (budget > 0 && with_metrics > one.memory_budget_bytes) {
    working.smallest = std::max(working.smallest, with_metrics);
  }
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

absl::StatusOr<int64_t> ProjectionPeak(int64_t columns, const std::vector<MeasureSpec>& specs,
                                       const SessionOptions& options, const SessionPlan& plan,
                                       const SessionProviders& providers) {
  if (columns <= options.max_embedded_columns) return plan.Projection();
  TENON_ASSIGN_OR_RETURN(const int64_t working,
                         ProjectionWorking(columns, specs, options, plan, providers));
  TENON_ASSIGN_OR_RETURN(const int64_t fixed, ProjectionFixed(columns, options, plan));
  return fixed + std::max(working, LargestMetricWorking(columns, specs, options, plan));
}

}  // namespace tenon::measurement
