// How a session builds resources and says what was built.

#include <algorithm>
#include <utility>

#include "backends/core/error.h"
#include "backends/measurement/session_impl.h"
#include "backends/measurement/session_memory.h"

namespace tenon::measurement {
namespace {

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
  entry.consumers = consumers.Of(key);
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

std::vector<tenon_resource> Session::Impl::Available() const {
  std::vector<tenon_resource> available = original_resources.resources;
  available.insert(available.end(), late_resources.resources.begin(),
                   late_resources.resources.end());
  return available;
}

tenon_resource_request Session::Impl::Request(const std::vector<tenon_resource>& outputs,
                                              const std::vector<tenon_resource>& available,
                                              const OneProjection* one, int64_t working_bytes,
                                              const CancelToken* cancel) const {
  tenon_resource_request request = {};
  request.struct_size = sizeof(request);
  request.n_outputs = static_cast<int32_t>(outputs.size());
  request.outputs = outputs.data();
  request.threads = plan.threads;
  request.original = MatrixOf(options, true, options.original_columns);
  request.original.data = original.buffer.data();
  if (one != nullptr) {
    request.embedded = MatrixOf(options, false, one->points.spec.shape[1]);
    request.embedded.data = one->points.buffer.data();
    request.n_available = static_cast<int32_t>(available.size());
    request.available = available.data();
    if (plan.is_external) {
      request.temporary_directory = options.temporary_directory.c_str();
      request.temporary_bytes = plan.projection_temporary;
    }
  }
  request.working_memory_bytes = working_bytes;
  request.cancel = FlagOf(cancel);
  return request;
}

void Session::Impl::ReportBuilt(const std::vector<tenon_resource>& part,
                                const tenon_resource_statistics& statistics, double seconds,
                                RunInfo& info) const {
  for (const tenon_resource& resource : part) {
    RunInfo::Resource entry = Describe(resource.key);
    // Resources of one pass share its time evenly.
    entry.build_seconds = seconds / static_cast<double>(part.size());
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

absl::Status Session::Impl::Build(const ResourceSet& outputs, const OneProjection* one,
                                  int64_t working_bytes, const CancelToken* cancel,
                                  RunInfo& info) const {
  const std::vector<tenon_resource> available = Available();
  for (plugin::Provider* provider : {providers.asked.get(), providers.fallback.get()}) {
    std::vector<tenon_resource> part;
    for (const tenon_resource& output : outputs.resources) {
      if (providers.For(output.key.kind) == provider) part.push_back(output);
    }
    if (provider == nullptr || part.empty()) continue;
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    const auto start = std::chrono::steady_clock::now();
    const auto statistics =
        provider->BuildResources(Request(part, available, one, working_bytes, cancel));
    // The token knows why the work stopped, the provider only that it did.
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    if (!statistics.ok()) return statistics.status();
    ReportBuilt(part, *statistics, SecondsSince(start), info);
  }
  return absl::OkStatus();
}

// Hands what was built to the sessions to come, if they may have it. The set goes on with it.
void Session::Impl::KeepForOthers(RunInfo& info, ResourceSet& set) const {
  if (options.warm == nullptr) return;
  for (size_t r = 0; r < set.memory.size(); ++r) {
    const ResourceKey& key = set.resources[r].key;
    const int64_t bytes = set.memory[r].size_bytes();
    // Orders of pairs look the same in a report; then each entry stands for one.
    const auto built = std::find_if(
        info.resources.begin(), info.resources.end(), [&](const RunInfo::Resource& entry) {
          return !entry.reused && !entry.leased && entry.bytes == bytes &&
                 entry.kind == KindName(key.kind) && entry.space == SpaceName(key.space) &&
                 entry.k == key.k &&
                 (key.kind != TENON_RESOURCE_DENSITY || entry.parameter == key.parameter);
        });
    const bool known = built != info.resources.end();
    set.kept.push_back(options.warm->Keep(VariantOf(options, providers, key.kind), key,
                                          std::move(set.memory[r]),
                                          known ? built->build_seconds : 0));
    if (known) built->leased = set.kept.back()->lease != nullptr;
  }
  set.memory.clear();
}

}  // namespace tenon::measurement
