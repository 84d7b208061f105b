#include "backends/measurement/session_plan.h"

#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/core/strings.h"
#include "backends/measurement/metrics.h"
#include "backends/measurement/session_memory.h"

namespace tenon::measurement {
namespace {

// From so many projections on, tables of the original space are cheaper to build than to do
// without.
constexpr int64_t kManyProjections = 4;
// Tables larger than this, or than half of a budget, are not built unasked.
constexpr int64_t kLargestTables = int64_t{1} << 30;

// What a plan may choose.
struct Choices {
  bool external = false;  // orders of pairs in files
  bool tables = false;    // ranks and distances of all pairs of the original space
};

absl::Status Unsupported(const plugin::Provider& provider, std::string_view what) {
  return Error(Reason::kUnsupportedByProvider, absl::StrCat("provider '", ToAbsl(provider.name()),
                                                            "' does not build ", ToAbsl(what)))
      .Field("provider");
}

bool HasKind(const std::vector<ResourceKey>& keys, int32_t kind) {
  return std::any_of(keys.begin(), keys.end(),
                     [kind](const ResourceKey& key) { return key.kind == kind; });
}

bool HasOriginal(const SessionPlan& plan, int32_t kind) {
  if (HasKind(plan.original_keys, kind)) return true;
  return std::any_of(plan.warm.begin(), plan.warm.end(),
                     [kind](const auto& kept) { return kept->resource.key.kind == kind; });
}

absl::Status CollectKeys(const std::vector<MeasureSpec>& specs, const SessionProviders& providers,
                         const Choices& choices, SessionPlan& plan) {
  for (const MeasureSpec& spec : specs) {
    for (const ResourceKey& key : Requirements(spec)) {
      if (providers.For(key.kind) == nullptr) {
        return Unsupported(*providers.asked, absl::StrCat("'", ToAbsl(KindName(key.kind)),
                                                          "', which ", spec.info->id, " needs"));
      }
      if (key.kind == TENON_RESOURCE_PAIR_ORDER && choices.external) continue;
      const bool original = key.space == TENON_RESOURCE_ORIGINAL;
      MergeKey(key, original ? plan.original_keys : plan.projection_keys);
    }
  }
  if (!choices.tables) return absl::OkStatus();
  if (HasKind(plan.projection_keys, TENON_RESOURCE_SELECTED_RANKS)) {
    plan.original_keys.push_back({TENON_RESOURCE_RANK_TABLE, TENON_RESOURCE_ORIGINAL, 0, 0});
  }
  if (HasKind(plan.projection_keys, TENON_RESOURCE_PAIR_STATISTICS)) {
    MergeKey({TENON_RESOURCE_CONDENSED, TENON_RESOURCE_ORIGINAL, 0, 0}, plan.original_keys);
  }
  return absl::OkStatus();
}

// Takes what an earlier session left, tables too that nobody asked for.
void TakeWarm(const SessionOptions& options, const SessionProviders& providers, SessionPlan& plan) {
  if (options.warm == nullptr) return;
  const auto find = [&](const ResourceKey& key) {
    return options.warm->Find(VariantOf(options, providers, key.kind), key);
  };
  std::erase_if(plan.original_keys, [&](const ResourceKey& key) {
    auto kept = find(key);
    if (kept != nullptr) plan.warm.push_back(kept);
    return kept != nullptr;
  });
  const std::pair<int32_t, int32_t> tables[] = {
      {TENON_RESOURCE_SELECTED_RANKS, TENON_RESOURCE_RANK_TABLE},
      {TENON_RESOURCE_PAIR_STATISTICS, TENON_RESOURCE_CONDENSED}};
  for (const auto& [user, table] : tables) {
    if (!HasKind(plan.projection_keys, user) || HasOriginal(plan, table)) continue;
    auto kept = find({table, TENON_RESOURCE_ORIGINAL, 0, 0});
    if (kept != nullptr) plan.warm.push_back(std::move(kept));
  }
}

bool ChecksNeighbors(const std::vector<MeasureSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(),
                     [](const MeasureSpec& spec) { return MetricOf(spec).checks_neighbors; });
}

// Without a table, ranks of a projection's neighbours need all distances of the original space; its
// own neighbours come out of the same pass.
void SplitLateKeys(const std::vector<MeasureSpec>& specs, const SessionProviders& providers,
                   SessionPlan& plan) {
  if (!HasKind(plan.projection_keys, TENON_RESOURCE_SELECTED_RANKS) || ChecksNeighbors(specs) ||
      HasOriginal(plan, TENON_RESOURCE_RANK_TABLE) ||
      providers.For(TENON_RESOURCE_KNN) != providers.For(TENON_RESOURCE_SELECTED_RANKS)) {
    return;
  }
  const auto late =
      std::stable_partition(plan.original_keys.begin(), plan.original_keys.end(),
                            [](const ResourceKey& key) { return key.kind != TENON_RESOURCE_KNN; });
  plan.late_keys.assign(late, plan.original_keys.end());
  plan.original_keys.erase(late, plan.original_keys.end());
}

bool NeedsPoints(const std::vector<MeasureSpec>& specs, const SessionPlan& plan) {
  const auto computes = [&](int32_t user, int32_t table) {
    return HasKind(plan.projection_keys, user) && !HasOriginal(plan, table);
  };
  return plan.is_external || computes(TENON_RESOURCE_SELECTED_RANKS, TENON_RESOURCE_RANK_TABLE) ||
         computes(TENON_RESOURCE_PAIR_STATISTICS, TENON_RESOURCE_CONDENSED) ||
         std::any_of(specs.begin(), specs.end(),
                     [](const MeasureSpec& spec) { return MetricOf(spec).original_points; });
}

absl::StatusOr<SessionPlan> PlanWith(const Choices& choices, const std::vector<MeasureSpec>& specs,
                                     const SessionOptions& options,
                                     const SessionProviders& providers) {
  SessionPlan plan;
  plan.threads = options.threads > 0
                     ? options.threads
                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  TENON_RETURN_IF_ERROR(CollectKeys(specs, providers, choices, plan));
  plan.is_external =
      choices.external && HasKind(plan.projection_keys, TENON_RESOURCE_ORDERED_PAIR_STATISTICS);
  TakeWarm(options, providers, plan);
  SplitLateKeys(specs, providers, plan);
  plan.needs_points = NeedsPoints(specs, plan);
  TENON_RETURN_IF_ERROR(PlanMemory(specs, options, providers, plan));
  return plan;
}

bool WantsTables(const SessionOptions& options, const SessionProviders& providers) {
  const bool many = options.expected_projections >= kManyProjections ||
                    (options.warm != nullptr && options.expected_projections == 0);
  if (!many || options.rows > kMaxPairOrderRows) return false;
  for (const int32_t kind : {TENON_RESOURCE_RANK_TABLE, TENON_RESOURCE_CONDENSED}) {
    if (providers.For(kind) == nullptr) return false;
  }
  return true;
}

bool TablesAreSmall(const SessionPlan& plan, const SessionOptions& options) {
  int64_t bytes = 0;
  for (const ResourceKey& key : plan.original_keys) {
    if (key.kind != TENON_RESOURCE_RANK_TABLE && key.kind != TENON_RESOURCE_CONDENSED) continue;
    bytes += *ResourceBytes(key, options.rows);
  }
  const int64_t budget = options.memory_budget_bytes;
  return bytes <= kLargestTables && (budget == 0 || bytes <= budget / 2);
}

bool IsMemoryError(const absl::Status& status) {
  return GetErrorDetails(status).reason == Reason::kExceedsMemoryBudget;
}

}  // namespace

plugin::Provider* SessionProviders::For(int32_t kind) const {
  if (asked->CanBuild(kind)) return asked.get();
  return fallback != nullptr && fallback->CanBuild(kind) ? fallback.get() : nullptr;
}

std::string SessionProviders::FallbackReason(int32_t kind) const {
  if (asked->CanBuild(kind)) return "";
  return absl::StrCat("provider '", ToAbsl(asked->name()), "' does not build '",
                      ToAbsl(KindName(kind)), "'");
}

OriginalSide::Variant VariantOf(const SessionOptions& options, const SessionProviders& providers,
                                int32_t kind) {
  const plugin::Provider* provider = providers.For(kind);
  return {provider == nullptr ? std::string() : std::string(provider->name()),
          options.compute_dtype, options.geodesic};
}

Consumers::Consumers(const std::vector<MeasureSpec>& specs) {
  const auto add = [&](const ResourceKey& key, size_t spec) {
    by_key_[{key.kind, key.space, key.parameter}].insert(static_cast<int>(spec));
  };
  for (size_t s = 0; s < specs.size(); ++s) {
    for (const ResourceKey& key : Requirements(specs[s])) {
      add(key, s);
      // Tables stand in for what is computed from them.
      if (key.kind == TENON_RESOURCE_SELECTED_RANKS) {
        add({TENON_RESOURCE_RANK_TABLE, TENON_RESOURCE_ORIGINAL, 0, 0}, s);
      }
      if (key.kind == TENON_RESOURCE_PAIR_STATISTICS) {
        add({TENON_RESOURCE_CONDENSED, TENON_RESOURCE_ORIGINAL, 0, 0}, s);
      }
    }
  }
}

std::vector<int> Consumers::Of(const ResourceKey& key) const {
  const auto found = by_key_.find({key.kind, key.space, key.parameter});
  if (found == by_key_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

absl::StatusOr<SessionPlan> PlanSession(const std::vector<MeasureSpec>& specs,
                                        const SessionOptions& options,
                                        const SessionProviders& providers) {
  for (const auto& provider : {providers.asked, providers.fallback}) {
    if (provider == nullptr) continue;
    if (!(provider->info().resource_dtypes >> static_cast<int>(options.compute_dtype) & 1u)) {
      return Unsupported(*provider,
                         absl::StrCat("resources in ", ToAbsl(DTypeName(options.compute_dtype))));
    }
  }
  Choices choices;
  choices.external = options.pair_ordering == PairOrdering::kExternal;
  auto plan = PlanWith(choices, specs, options, providers);
  if (!plan.ok() && IsMemoryError(plan.status()) && options.pair_ordering == PairOrdering::kAuto &&
      options.temporary_budget_bytes > 0) {
    choices.external = true;
    plan = PlanWith(choices, specs, options, providers);
  }
  if (!plan.ok() || !WantsTables(options, providers)) return plan;
  choices.tables = true;
  auto with_tables = PlanWith(choices, specs, options, providers);
  // Tables must not cost projections their place.
  if (with_tables.ok() && with_tables->in_flight >= plan->in_flight &&
      TablesAreSmall(*with_tables, options)) {
    return with_tables;
  }
  return plan;
}

}  // namespace tenon::measurement
