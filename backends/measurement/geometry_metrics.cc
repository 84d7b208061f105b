// Measures of the shape of neighbourhoods and of what lies between them.

#include "backends/measurement/gap_index.h"
#include "backends/measurement/metric.h"
#include "backends/measurement/neighbor_dissimilarity.h"
#include "backends/measurement/procrustes.h"
#include "backends/measurement/topographic_product.h"

namespace tenon::measurement {
namespace {

std::vector<ResourceKey> BothNeighbors(const MeasureSpec& spec) {
  const int64_t k = spec.Integer("k");
  return {{TENON_RESOURCE_KNN, kOriginal, k, 0}, {TENON_RESOURCE_KNN, kEmbedded, k, 0}};
}

absl::StatusOr<MeasureScores> Dissimilarity(const MeasureSpec& spec, const MetricInput& input) {
  const int64_t k = spec.Integer("k");
  const auto value = NeighborDissimilarity(input.n, k, Neighbors(input, kOriginal, k),
                                           Neighbors(input, kEmbedded, k), *input.parallel);
  if (!value.ok()) return value.status();
  return OneScore(spec, *value);
}

int64_t DissimilarityBytes(const MeasureSpec& spec, const MetricShape& shape) {
  return NeighborDissimilarityBytes(shape.n, spec.Integer("k"), shape.threads);
}

constexpr Metric kMetrics[] = {
    {.alias = "nd",
     .requirements = BothNeighbors,
     .evaluate = Dissimilarity,
     .working_bytes = DissimilarityBytes},
    {.alias = "proc",
     .requirements = ProcrustesRequirements,
     .original_points = true,
     .embedded_points = true,
     .evaluate = Procrustes,
     .check_original = CheckProcrustes,
     .checks_neighbors = true,
     .working_bytes = ProcrustesBytes},
    {.alias = "topo",
     .requirements = BothNeighbors,
     .original_points = true,
     .embedded_points = true,
     .evaluate = TopographicProduct,
     .check_original = CheckTopographicProduct,
     .checks_neighbors = true,
     .working_bytes = TopographicProductBytes},
    {.alias = "gi",
     .original_points = true,
     .embedded_points = true,
     .evaluate = GapIndex,
     .check_original = CheckGapIndex,
     .working_bytes = GapIndexBytes},
};

}  // namespace

std::span<const Metric> GeometryMetrics() { return kMetrics; }

}  // namespace tenon::measurement
