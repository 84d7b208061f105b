#include "server/provider_metrics.h"

#include <prometheus/client_metric.h>

#include <algorithm>

namespace tenon::server {
namespace {

constexpr std::array<DType, ProviderMetrics::Series::kDTypes> kDTypes = {
    DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128};
constexpr std::array<const char*, 4> kOutcomes = {"ok", "retried", "failed", "cancelled"};
constexpr std::array<const char*, 4> kFaults = {"oom", "sticky", "timeout", "other"};

auto& Counters(prometheus::Registry* registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

int64_t Count(const prometheus::Counter* counter) { return static_cast<int64_t>(counter->Value()); }

}  // namespace

prometheus::Histogram::BucketBoundaries SecondsBuckets() {
  return {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
}

size_t FlopsIndex(DType dtype) {
  const auto found = std::find(kDTypes.begin(), kDTypes.end(), dtype);
  return found == kDTypes.end() ? 1 : static_cast<size_t>(found - kDTypes.begin());
}

ProviderMetrics::ProviderMetrics(prometheus::Registry* registry)
    : slices_(Counters(registry, "tenon_slices_total",
                       "Slices run, by how the run of their group ended.")),
      faults_(Counters(registry, "tenon_provider_faults_total",
                       "Errors that providers returned; what a request asked wrongly is none.")),
      flops_(Counters(registry, "tenon_flops_total",
                      "Real floating-point operations done by contractions.")),
      copied_(Counters(registry, "tenon_copy_bytes_total",
                       "Bytes copied to and from the memory of devices.")),
      resources_(Counters(registry, "tenon_resources_total",
                          "Resources of measurements: built, or found built.")),
      busy_(Counters(registry, "tenon_provider_busy_seconds_total",
                     "Seconds of execution, summed over calls.")),
      group_seconds_(prometheus::BuildHistogram()
                         .Name("tenon_slice_group_seconds")
                         .Help("Seconds of one group of slices that is done.")
                         .Register(*registry)) {}

std::unique_ptr<ProviderMetrics::Series> ProviderMetrics::Make(const std::string& provider) {
  auto made = std::make_unique<Series>();
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    made->slices[i] = &slices_.Add({{"provider", provider}, {"outcome", kOutcomes[i]}});
  }
  for (size_t i = 0; i < kFaults.size(); ++i) {
    made->faults[i] = &faults_.Add({{"provider", provider}, {"kind", kFaults[i]}});
  }
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    made->flops[i] =
        &flops_.Add({{"provider", provider}, {"dtype", std::string(DTypeName(kDTypes[i]))}});
  }
  made->copied = {&copied_.Add({{"provider", provider}, {"direction", "to_device"}}),
                  &copied_.Add({{"provider", provider}, {"direction", "from_device"}})};
  made->resources = {&resources_.Add({{"provider", provider}, {"outcome", "built"}}),
                     &resources_.Add({{"provider", provider}, {"outcome", "reused"}})};
  made->busy_seconds = &busy_.Add({{"provider", provider}});
  made->group_seconds = &group_seconds_.Add({{"provider", provider}}, SecondsBuckets());
  return made;
}

ProviderMetrics::Series& ProviderMetrics::Of(std::string_view provider) {
  std::lock_guard lock(mutex_);
  const auto found = series_.find(provider);
  if (found != series_.end()) return *found->second;
  const std::string name(provider);
  return *series_.emplace(name, Make(name)).first->second;
}

std::vector<ProviderStatistics> ProviderMetrics::Statistics() const {
  std::vector<ProviderStatistics> all;
  std::lock_guard lock(mutex_);
  for (const auto& [name, series] : series_) {
    ProviderStatistics& one = all.emplace_back();
    one.provider = name;
    one.groups = static_cast<int64_t>(series->group_seconds->Collect().histogram.sample_count);
    one.failed_groups = series->failed_groups.load();
    one.resources_built = Count(series->resources[0]);
    one.resources_reused = Count(series->resources[1]);
    for (size_t i = 0; i < kDTypes.size(); ++i) {
      // A complex multiply-add is eight real operations, a real one two.
      one.multiply_adds += series->flops[i]->Value() / (IsComplex(kDTypes[i]) ? 8 : 2);
    }
    one.busy_seconds = series->busy_seconds->Value();
    one.to_device_bytes = Count(series->copied[0]);
    one.from_device_bytes = Count(series->copied[1]);
    for (const prometheus::Counter* faults : series->faults) one.faults += Count(faults);
  }
  return all;
}

}  // namespace tenon::server
