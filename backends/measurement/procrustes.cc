#include "backends/measurement/procrustes.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/rotation_fit.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlockRows = 16;

int64_t Blocks(int64_t n) { return (n + kBlockRows - 1) / kBlockRows; }

// By rank: the r-th neighbour in the projection stands for the r-th one in the data set.
bool PairsByRank(const MeasureSpec& spec) { return spec.Text("pairing") == "rank"; }

void Gather(const PointsView& points, const int32_t* rows, int64_t count, double* values) {
  for (int64_t r = 0; r < count; ++r) {
    double* to = values + r * points.columns();
    const double* from = points.Row(rows[r], to);
    if (from != to) std::copy_n(from, points.columns(), to);
  }
}

bool AllEqual(const PointsView& points, const int32_t* rows, int64_t count) {
  for (int64_t r = 1; r < count; ++r) {
    for (int64_t c = 0; c < points.columns(); ++c) {
      if (points.At(rows[r], c) != points.At(rows[0], c)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<ResourceKey> ProcrustesRequirements(const MeasureSpec& spec) {
  const int64_t k = spec.Integer("k");
  std::vector<ResourceKey> keys = {{TENON_RESOURCE_KNN, kOriginal, k, 0}};
  if (PairsByRank(spec)) keys.push_back({TENON_RESOURCE_KNN, kEmbedded, k, 0});
  return keys;
}

absl::Status CheckProcrustes(const MeasureSpec& spec, const MetricInput& input) {
  const int64_t n = input.n, k = spec.Integer("k");
  const IndexTable neighbors = Neighbors(input, kOriginal, k);
  const PointsView points(input.original);
  std::atomic<bool> coincide = false;
  TENON_RETURN_IF_ERROR(input.parallel->ForEach(Blocks(n), [&](int64_t block, int) {
    for (int64_t i = block * kBlockRows; i < std::min(n, (block + 1) * kBlockRows); ++i) {
      if (AllEqual(points, neighbors.Row(i), k)) coincide = true;
    }
  }));
  if (!coincide) return absl::OkStatus();
  return Undefined(spec, kOriginal,
                   absl::StrCat("the ", k, " nearest neighbours of a row of the data set (hd) are ",
                                "one point"));
}

absl::StatusOr<MeasureScores> Procrustes(const MeasureSpec& spec, const MetricInput& input) {
  const int64_t n = input.n, k = spec.Integer("k");
  const IndexTable original = Neighbors(input, kOriginal, k);
  const IndexTable embedded = PairsByRank(spec) ? Neighbors(input, kEmbedded, k) : original;
  const PointsView hd(input.original), ld(input.embedded);
  std::vector<std::optional<RotationFit>> fits(input.parallel->threads());
  std::vector<double> residuals(n);
  TENON_RETURN_IF_ERROR(input.parallel->ForEach(Blocks(n), [&](int64_t block, int slot) {
    if (!fits[slot].has_value()) fits[slot].emplace(k, hd.columns(), ld.columns());
    RotationFit& fit = *fits[slot];
    const auto stop = [&] { return input.parallel->cancelled(); };
    const int64_t end = std::min(n, (block + 1) * kBlockRows);
    for (int64_t i = block * kBlockRows; i < end && !stop(); ++i) {
      Gather(hd, original.Row(i), k, fit.x());
      Gather(ld, embedded.Row(i), k, fit.y());
      residuals[i] = fit.RelativeResidual(stop);
    }
  }));
  CompensatedSum sum;
  for (const double residual : residuals) sum.Add(residual);
  return OneScore(spec, sum.Value() / static_cast<double>(n));
}

int64_t ProcrustesBytes(const MeasureSpec& spec, const MetricShape& shape) {
  return shape.n * int64_t{sizeof(double)} +
         shape.threads *
             RotationFit::Bytes(spec.Integer("k"), shape.original_columns, shape.embedded_columns);
}

}  // namespace tenon::measurement
