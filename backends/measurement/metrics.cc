#include "backends/measurement/metrics.h"

#include <algorithm>

namespace tenon::measurement {

const Metric& MetricOf(const MeasureSpec& spec) {
  static const std::vector<Metric>* const metrics = [] {
    auto* all = new std::vector<Metric>;
    for (const auto room : {NeighborMetrics(), PairMetrics(), GeometryMetrics(), LabelMetrics(),
                            AngleMetrics(), ValidationMetrics(), ClusterWalkMetrics()}) {
      all->insert(all->end(), room.begin(), room.end());
    }
    return all;
  }();
  return *std::find_if(metrics->begin(), metrics->end(),
                       [&](const Metric& metric) { return metric.alias == spec.info->alias; });
}

std::vector<ResourceKey> Requirements(const MeasureSpec& spec) {
  const Metric& metric = MetricOf(spec);
  return metric.requirements == nullptr ? std::vector<ResourceKey>{} : metric.requirements(spec);
}

int64_t MetricWorkingBytes(const MeasureSpec& spec, const MetricShape& shape) {
  const Metric& metric = MetricOf(spec);
  return metric.working_bytes == nullptr ? 0 : metric.working_bytes(spec, shape);
}

absl::Status CheckOriginalSide(const MeasureSpec& spec, const MetricInput& input) {
  const Metric& metric = MetricOf(spec);
  return metric.check_original == nullptr ? absl::OkStatus() : metric.check_original(spec, input);
}

absl::StatusOr<MeasureScores> Evaluate(const MeasureSpec& spec, const MetricInput& input) {
  return MetricOf(spec).evaluate(spec, input);
}

}  // namespace tenon::measurement
