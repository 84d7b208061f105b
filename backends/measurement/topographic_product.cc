#include "backends/measurement/topographic_product.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/pair_distance.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlockRows = 16;

int64_t Blocks(int64_t n) { return (n + kBlockRows - 1) / kBlockRows; }

// Distances of one row in both spaces to its neighbours in both spaces.
struct RowDistances {
  explicit RowDistances(int64_t k)
      : original_to_original(k),
        original_to_embedded(k),
        embedded_to_original(k),
        embedded_to_embedded(k) {}
  std::vector<double> original_to_original, original_to_embedded;  // in the original space
  std::vector<double> embedded_to_original, embedded_to_embedded;  // in the projection
};

// Sum over r of the mean, over s <= r, of half the logarithm of the product of ratios. NaN if a
// product is not positive and finite.
double RowSum(const RowDistances& row, int64_t k) {
  double sum = 0, logarithms = 0;
  for (int64_t s = 0; s < k; ++s) {
    const double product = row.original_to_embedded[s] / row.original_to_original[s] *
                           (row.embedded_to_embedded[s] / row.embedded_to_original[s]);
    if (!(product > 0) || !std::isfinite(product)) return std::nan("");
    logarithms += std::log(product);
    sum += logarithms / (2.0 * static_cast<double>(s + 1));
  }
  return sum;
}

bool HasZero(const std::vector<double>& distances) {
  return std::find(distances.begin(), distances.end(), 0.0) != distances.end();
}

absl::Status ZeroNeighbor(const MeasureSpec& spec, int32_t space) {
  return Undefined(spec, space,
                   absl::StrCat("a row and one of its neighbours in the data set (hd) coincide in "
                                "the ",
                                space == kOriginal ? "data set" : "projection (ld)"));
}

}  // namespace

absl::Status CheckTopographicProduct(const MeasureSpec& spec, const MetricInput& input) {
  const int64_t n = input.n, k = spec.Integer("k");
  const IndexTable neighbors = Neighbors(input, kOriginal, k);
  std::atomic<bool> zero = false;
  TENON_RETURN_IF_ERROR(input.parallel->ForEach(Blocks(n), [&](int64_t block, int) {
    std::vector<double> distances(k);
    for (int64_t i = block * kBlockRows; i < std::min(n, (block + 1) * kBlockRows); ++i) {
      PairDistances(input.original, i, neighbors.Row(i), k, distances.data());
      if (HasZero(distances)) zero = true;
    }
  }));
  return zero ? ZeroNeighbor(spec, kOriginal) : absl::OkStatus();
}

absl::StatusOr<MeasureScores> TopographicProduct(const MeasureSpec& spec,
                                                 const MetricInput& input) {
  const int64_t n = input.n, k = spec.Integer("k");
  const IndexTable original = Neighbors(input, kOriginal, k);
  const IndexTable embedded = Neighbors(input, kEmbedded, k);
  std::vector<double> rows(n);
  std::atomic<bool> zero = false;
  TENON_RETURN_IF_ERROR(input.parallel->ForEach(Blocks(n), [&](int64_t block, int) {
    RowDistances row(k);
    for (int64_t i = block * kBlockRows; i < std::min(n, (block + 1) * kBlockRows); ++i) {
      PairDistances(input.original, i, original.Row(i), k, row.original_to_original.data());
      PairDistances(input.original, i, embedded.Row(i), k, row.original_to_embedded.data());
      PairDistances(input.embedded, i, original.Row(i), k, row.embedded_to_original.data());
      PairDistances(input.embedded, i, embedded.Row(i), k, row.embedded_to_embedded.data());
      if (HasZero(row.embedded_to_original)) zero = true;
      rows[i] = RowSum(row, k);
    }
  }));
  if (zero) return ZeroNeighbor(spec, kEmbedded);
  CompensatedSum sum;
  for (const double row : rows) {
    if (std::isnan(row)) {
      return Undefined(spec, kEmbedded,
                       "a product of ratios of distances is not positive and finite: a row and a "
                       "neighbour in the projection (ld) coincide, or distances overflow");
    }
    sum.Add(row);
  }
  return OneScore(spec, sum.Value() / (static_cast<double>(n) * static_cast<double>(k)));
}

int64_t TopographicProductBytes(const MeasureSpec& spec, const MetricShape& shape) {
  return (shape.n + shape.threads * 4 * spec.Integer("k")) * int64_t{sizeof(double)};
}

}  // namespace tenon::measurement
