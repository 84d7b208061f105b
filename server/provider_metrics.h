// The part of the metrics that is counted by provider. For metrics.cc alone.

#ifndef TENON_SERVER_PROVIDER_METRICS_H_
#define TENON_SERVER_PROVIDER_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/metrics.h"

namespace tenon::server {

// Seconds of all histograms: 1 and 3 of every power of ten from 0.1 ms to 100 s. One list, so that
// they can be put side by side, and coarse, so that all series together stay below the limit.
prometheus::Histogram::BucketBoundaries SecondsBuckets();

// Thread-safe. Series are made once and never removed.
class ProviderMetrics {
 public:
  explicit ProviderMetrics(prometheus::Registry* registry);

  // The series of one provider.
  struct Series {
    static constexpr size_t kDTypes = 4;
    std::array<prometheus::Counter*, static_cast<size_t>(SliceOutcome::kCount)> slices;
    std::array<prometheus::Counter*, static_cast<size_t>(FaultKind::kCount)> faults;
    std::array<prometheus::Counter*, kDTypes> flops;
    std::array<prometheus::Counter*, 2> copied, resources;
    prometheus::Counter* busy_seconds;
    prometheus::Histogram* group_seconds;
    std::atomic<int64_t> failed_groups{0};
  };
  // Made when the name is new.
  Series& Of(std::string_view provider);
  std::vector<ProviderStatistics> Statistics() const;

 private:
  std::unique_ptr<Series> Make(const std::string& provider);

  prometheus::Family<prometheus::Counter>&slices_, &faults_, &flops_, &copied_, &resources_, &busy_;
  prometheus::Family<prometheus::Histogram>& group_seconds_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Series>, std::less<>> series_;
};

// Where the flops of a contraction type stand in Series::flops.
size_t FlopsIndex(DType dtype);

}  // namespace tenon::server

#endif  // TENON_SERVER_PROVIDER_METRICS_H_
