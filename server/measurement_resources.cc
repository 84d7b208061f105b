#include "server/measurement_resources.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "backends/core/error.h"
#include "backends/measurement/resource.h"

namespace tenon::server {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;

// The value of an enumeration of the contract whose name ends with `name`; 0 when there is none.
int EnumNumber(const EnumDescriptor* type, std::string_view name) {
  constexpr std::string_view kUnspecified = "UNSPECIFIED";
  const std::string& zero = type->value(0)->name();
  const std::string prefix = zero.substr(0, zero.size() - kUnspecified.size());
  const EnumValueDescriptor* value =
      type->FindValueByName(prefix + absl::AsciiStrToUpper(ToAbsl(name)));
  return value == nullptr ? 0 : value->number();
}

// The engine's kinds have names of their own.
std::string_view WireKind(std::string_view kind) {
  if (kind == "knn") return "neighbors";
  if (kind == "condensed") return "condensed_distances";
  if (kind == "selected_ranks") return "rank_comparisons";
  if (kind == "topographic") return "topographic_statistics";
  return kind;
}

void WriteKey(const EngineResource& resource, bool geodesic, v1::ResourceKey* out) {
  const std::string space = resource.space == "embedded" ? "projection" : resource.space;
  out->set_kind(static_cast<v1::ResourceKind>(
      EnumNumber(v1::ResourceKind_descriptor(), WireKind(resource.kind))));
  out->set_space(static_cast<v1::ResourceSpace>(EnumNumber(v1::ResourceSpace_descriptor(), space)));
  if (resource.k > 0) out->set_k(static_cast<int32_t>(resource.k));
  if (resource.kind == "density") out->set_sigma(resource.parameter);
  out->set_geodesic(geodesic && resource.space != "embedded");
}

v1::PairStrategy OrderStrategy(const EngineResource& resource) {
  return resource.pair_strategy == "external" ? v1::PAIR_STRATEGY_EXTERNAL
                                              : v1::PAIR_STRATEGY_CONDENSED;
}

// Each density tells the sigmas of all; so many, lest the reports grow with their square.
constexpr size_t kMaxFusedSigmas = 64;

// What resources that were built together have in common.
struct Companions {
  std::map<std::string, std::set<double>> sigmas;  // of densities, by space
  bool has_reused_order = false;                   // of pairs

  explicit Companions(const std::vector<EngineResource>& all) {
    for (const EngineResource& resource : all) {
      if (resource.kind == "density") sigmas[resource.space].insert(resource.parameter);
      has_reused_order |= resource.kind == "pair_order" && resource.reused;
    }
  }
};

// Writes the details of one resource.
class DetailWriter {
 public:
  DetailWriter(const EngineResource& resource, const Companions& companions,
               const ResourceContext& context, v1::ResourceReport* out)
      : resource_(resource), companions_(companions), context_(context), out_(out) {}

  void Write() {
    if (resource_.kind == "density") {
      WriteDensity(out_->mutable_density());
    } else if (resource_.kind == "pair_statistics") {
      WritePairs(out_->mutable_pair_statistics());
    } else if (resource_.kind == "pair_order" || resource_.kind == "ordered_pair_statistics") {
      WriteOrder(out_->mutable_ordered_pairs());
    } else if (resource_.kind == "knn" || resource_.kind == "selected_ranks") {
      WriteNeighbors(out_->mutable_neighbors());
    }
  }

 private:
  template <typename Details>
  void AddMeasures(Details* out) {
    std::set<std::string> ids;
    for (const int consumer : resource_.consumers) ids.insert(SpecAt(consumer).info->id);
    for (const std::string& id : ids) out->add_fused_measures(id);
  }

  void WriteDensity(v1::DensityDetails* out) {
    // The largest distance first, then the sums.
    out->set_distance_passes(2);
    for (const double sigma : companions_.sigmas.at(resource_.space)) {
      if (static_cast<size_t>(out->fused_sigmas_size()) == kMaxFusedSigmas) break;
      out->add_fused_sigmas(sigma);
    }
  }

  void WritePairs(v1::PairStatisticsDetails* out) {
    out->set_strategy(PairStrategyOf({resource_}));
    out->set_pair_count(measurement::PairCount(context_.rows));
    out->set_chunk_pairs(std::min(resource_.block_rows * context_.rows, out->pair_count()));
    out->set_reduction_passes(1);
    AddMeasures(out);
  }

  void WriteOrder(v1::OrderedPairDetails* out) {
    const bool external = resource_.pair_strategy == "external";
    out->set_strategy(OrderStrategy(resource_));
    out->set_pair_count(measurement::PairCount(context_.rows));
    out->set_ordering_reused(companions_.has_reused_order);
    out->set_isotonic_block_count(resource_.isotonic_blocks);
    AddMeasures(out);
    if (!external) return;
    out->set_original_run_count(static_cast<int32_t>(resource_.sorted_runs));
    out->set_temporary_bytes_peak(resource_.temporary_bytes);
    out->set_workspace_removed(!context_.planned);
  }

  void WriteNeighbors(v1::NeighborDetails* out) {
    std::set<int32_t> ks;
    for (const int consumer : resource_.consumers) {
      if (SpecAt(consumer).Has("k")) ks.insert(static_cast<int32_t>(SpecAt(consumer).Integer("k")));
    }
    for (const int32_t k : ks) out->add_requested_ks(k);
    out->set_index_bytes(sizeof(int32_t));
    if (resource_.kind == "selected_ranks") {
      out->set_rank_algorithm(resource_.algorithm);
    }
    AddMeasures(out);
  }

  const measurement::MeasureSpec& SpecAt(int consumer) const {
    return context_.specs->at(static_cast<size_t>(consumer));
  }

  const EngineResource& resource_;
  const Companions& companions_;
  const ResourceContext& context_;
  v1::ResourceReport* const out_;
};

}  // namespace

v1::ProviderChoice ChoiceOf(const EngineResource& resource, const std::string& requested) {
  v1::ProviderChoice choice;
  choice.set_requested(requested);
  choice.set_actual(resource.provider);
  choice.set_fallback_reason(resource.fallback_reason);
  return choice;
}

void WriteResources(const std::vector<EngineResource>& resources, const ResourceContext& context,
                    google::protobuf::RepeatedPtrField<v1::ResourceReport>* out) {
  const Companions companions(resources);
  for (const EngineResource& resource : resources) {
    v1::ResourceReport* report = out->Add();
    WriteKey(resource, context.geodesic, report->mutable_key());
    *report->mutable_provider() = ChoiceOf(resource, context.requested);
    report->set_dtype(static_cast<v1::DataType>(context.compute_dtype));
    report->set_size_bytes(resource.bytes);
    report->set_working_bytes(resource.working_bytes);
    report->set_build_seconds(resource.reused || context.planned ? 0 : resource.build_seconds);
    report->set_built_in_run(!resource.reused && !context.planned);
    report->set_reused(resource.reused);
    // What belongs to a projection goes with it; the original side stays to the end of the call.
    report->set_released(!context.planned && resource.space != "original");
    for (const int consumer : resource.consumers) report->add_consumers(consumer);
    report->set_algorithm(resource.algorithm);
    report->set_block_rows(resource.block_rows);
    report->set_block_count(resource.block_count);
    if (context.specs != nullptr) DetailWriter(resource, companions, context, report).Write();
  }
}

void WriteKept(const measurement::OriginalSide::Kept& kept, v1::ResourceReport* out) {
  EngineResource resource;
  resource.kind = measurement::KindName(kept.resource.key.kind);
  resource.space = measurement::SpaceName(kept.resource.key.space);
  resource.k = kept.resource.key.k;
  resource.parameter = kept.resource.key.parameter;
  WriteKey(resource, kept.variant.geodesic, out->mutable_key());
  out->mutable_provider()->set_requested(kept.variant.provider);
  out->mutable_provider()->set_actual(kept.variant.provider);
  out->set_dtype(static_cast<v1::DataType>(kept.variant.dtype));
  out->set_size_bytes(kept.resource.bytes);
  out->set_build_seconds(kept.build_seconds);
  out->set_reused(true);
}

bool SameResource(const EngineResource& a, const EngineResource& b) {
  return a.kind == b.kind && a.space == b.space && a.k == b.k && a.parameter == b.parameter;
}

v1::PairStrategy PairStrategyOf(const std::vector<EngineResource>& resources) {
  v1::PairStrategy strategy = v1::PAIR_STRATEGY_UNSPECIFIED;
  for (const EngineResource& resource : resources) {
    if (resource.pair_strategy == "external") return v1::PAIR_STRATEGY_EXTERNAL;
    const bool is_ordered =
        resource.kind == "pair_order" || resource.kind == "ordered_pair_statistics";
    if (is_ordered || (resource.kind == "pair_statistics" && resource.algorithm == "condensed")) {
      strategy = v1::PAIR_STRATEGY_CONDENSED;
    } else if (resource.kind == "pair_statistics" && strategy == v1::PAIR_STRATEGY_UNSPECIFIED) {
      strategy = v1::PAIR_STRATEGY_STREAMING;
    }
  }
  return strategy;
}

}  // namespace tenon::server
