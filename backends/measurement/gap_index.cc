#include "backends/measurement/gap_index.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/delaunay.h"
#include "backends/measurement/pairwise_sum.h"
#include "backends/measurement/row_metric.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlockTriangles = 256;
constexpr char kPrecomputed[] = "precomputed";

// Distances that the caller gave, if the specification wants such; `data` is null otherwise.
tenon_matrix GivenDistances(const MeasureSpec& spec, const MetricInput& input) {
  if (spec.Text("metric") != kPrecomputed) return {};
  return input.precomputed.data != nullptr ? input.precomputed : input.original;
}

// Distances of rows of one space.
class Distances {
 public:
  Distances(const tenon_matrix& points, RowMetric metric, double minkowski_p)
      : points_(points), metric_(metric), p_(minkowski_p) {}
  // As they stand in a matrix.
  explicit Distances(const tenon_matrix& distances) : points_(distances), given_(true) {}

  int64_t columns() const { return given_ ? 0 : points_.columns(); }

  // Lengths of the sides of a triangle in the order 01, 02, 12; `scratch` has 3 columns() values.
  void Sides(const int32_t* corners, double* scratch, double sides[3]) const {
    constexpr int kEnds[3][2] = {{0, 1}, {0, 2}, {1, 2}};
    const double* rows[3] = {};
    for (int corner = 0; corner < 3 && !given_; ++corner) {
      rows[corner] = points_.Row(corners[corner], scratch + corner * columns());
    }
    for (int side = 0; side < 3; ++side) {
      const auto [from, to] = kEnds[side];
      sides[side] = given_ ? points_.At(corners[from], corners[to])
                           : RowDistance(metric_, p_, rows[from], rows[to], columns());
    }
  }

 private:
  PointsView points_;
  RowMetric metric_ = RowMetric::kEuclidean;
  double p_ = 2;
  bool given_ = false;
};

enum class Fault { kNone, kSides, kInequality };

// Heron's formula.
Fault TriangleArea(const double sides[3], double* area) {
  const auto [a, b, c] = std::to_array({sides[0], sides[1], sides[2]});
  if (!(std::isfinite(a) && std::isfinite(b) && std::isfinite(c) && std::min({a, b, c}) >= 0)) {
    return Fault::kSides;
  }
  const double s = (a + b + c) / 2.0;
  const double radicand = s * (s - a) * (s - b) * (s - c);
  const double unit = std::max({a, b, c, 1.0});
  const double largest = unit * unit * (unit * unit);
  if (radicand < -1e-12 * largest) return Fault::kInequality;
  *area = std::sqrt(std::max(radicand, 0.0));
  return Fault::kNone;
}

// Areas of all triangles as shares of their sum.
absl::StatusOr<std::vector<double>> RelativeAreas(const MeasureSpec& spec, int32_t space,
                                                  const std::vector<int32_t>& triangles,
                                                  const Distances& distances,
                                                  const Parallel& parallel) {
  const int64_t count = static_cast<int64_t>(triangles.size() / 3);
  std::vector<double> areas(count);
  std::vector<std::vector<double>> scratch(parallel.threads(),
                                           std::vector<double>(3 * distances.columns()));
  std::atomic<bool> bad_sides = false, bad_triangle = false;
  TENON_RETURN_IF_ERROR(parallel.ForEach(
      (count + kBlockTriangles - 1) / kBlockTriangles, [&](int64_t block, int slot) {
        const int64_t end = std::min(count, (block + 1) * kBlockTriangles);
        for (int64_t t = block * kBlockTriangles; t < end; ++t) {
          double sides[3];
          distances.Sides(&triangles[3 * t], scratch[slot].data(), sides);
          const Fault fault = TriangleArea(sides, &areas[t]);
          if (fault == Fault::kSides) bad_sides = true;
          if (fault == Fault::kInequality) bad_triangle = true;
        }
      }));
  const char* name = space == kOriginal ? "data set (hd)" : "projection (ld)";
  if (bad_sides) {
    return Undefined(spec, space,
                     absl::StrCat("distances between rows of the ", name,
                                  " overflow, are negative or are not defined"));
  }
  if (bad_triangle) {
    return Undefined(
        spec, space,
        absl::StrCat("distances in the ", name, " do not satisfy the triangle inequality"));
  }
  const double total = PairwiseSum(0, count, [&](int64_t t) { return areas[t]; });
  if (!std::isfinite(total)) {
    return Undefined(spec, space, absl::StrCat("areas in the ", name, " overflow"));
  }
  if (!(total > 0)) {
    return Undefined(spec, space, absl::StrCat("all triangles of the ", name, " have no area"));
  }
  for (double& area : areas) area /= total;
  return areas;
}

std::vector<double> Plane(const tenon_matrix& projection) {
  const PointsView view(projection);
  std::vector<double> points;
  points.reserve(2 * view.rows());
  for (int64_t i = 0; i < view.rows(); ++i) {
    points.push_back(view.At(i, 0));
    points.push_back(view.At(i, 1));
  }
  return points;
}

absl::Status CheckGivenDistances(const MeasureSpec& spec, const tenon_matrix& matrix,
                                 const char* field, const Parallel& parallel) {
  const int64_t n = matrix.rows;
  const PointsView distances(matrix);
  std::atomic<bool> negative = false, asymmetric = false, reflexive = true;
  const auto close = [](double a, double b) {
    return std::abs(a - b) <= 1e-8 + 1e-5 * std::abs(b);
  };
  constexpr int64_t kTile = 64;  // of the matrix and its mirror image, in the cache together
  const int64_t tiles = (n + kTile - 1) / kTile;
  TENON_RETURN_IF_ERROR(parallel.ForEach(tiles, [&](int64_t tile, int) {
    for (int64_t other = 0; other <= tile; ++other) {
      for (int64_t i = tile * kTile; i < std::min(n, (tile + 1) * kTile); ++i) {
        for (int64_t j = other * kTile; j < std::min(i, (other + 1) * kTile); ++j) {
          const double a = distances.At(i, j), b = distances.At(j, i);
          if (a < 0 || b < 0) negative = true;
          if (!close(a, b) || !close(b, a)) asymmetric = true;
        }
      }
    }
    for (int64_t i = tile * kTile; i < std::min(n, (tile + 1) * kTile); ++i) {
      if (distances.At(i, i) < 0) negative = true;
      if (!close(distances.At(i, i), 0)) reflexive = false;
    }
  }));
  const char* what = negative     ? "has negative values"
                     : asymmetric ? "is not symmetric"
                     : !reflexive ? "has a diagonal that is not zero"
                                  : nullptr;
  if (what == nullptr) return absl::OkStatus();
  return Error(Reason::kUndefinedScore,
               absl::StrCat(spec.info->id, " is not defined: the matrix of distances ", what))
      .Field(field);
}

}  // namespace

absl::Status CheckGapIndex(const MeasureSpec& spec, const MetricInput& input) {
  if (input.n < 3) {
    return Error(Reason::kTooFewRows,
                 absl::StrCat(spec.info->id, " needs at least 3 rows, there are ", input.n))
        .Field("dataset")
        .Meta("rows", input.n);
  }
  const tenon_matrix given = GivenDistances(spec, input);
  if (given.data == nullptr) return absl::OkStatus();
  const char* field = input.precomputed.data != nullptr ? "precomputed_handle" : "dataset";
  if (given.columns != input.n) {
    return Error(Reason::kShapeMismatch,
                 absl::StrCat(spec.info->id, ": a matrix of distances of ", input.n,
                              " rows has as many columns, not ", given.columns))
        .Field(field)
        .Meta("rows", input.n)
        .Meta("columns", given.columns);
  }
  return CheckGivenDistances(spec, given, field, *input.parallel);
}

absl::StatusOr<MeasureScores> GapIndex(const MeasureSpec& spec, const MetricInput& input) {
  if (input.embedded.columns != 2) {
    return Error(Reason::kShapeMismatch,
                 absl::StrCat(spec.info->id, ": the projection (ld) has ", input.embedded.columns,
                              " columns, needed are 2"))
        .Field("projection")
        .Meta("columns", input.embedded.columns);
  }
  const auto triangles = DelaunayTriangles(Plane(input.embedded).data(), input.n);
  if (!triangles.ok()) {
    if (GetErrorDetails(triangles.status()).reason != Reason::kUndefinedScore) {
      return triangles.status();
    }
    return Undefined(spec, kEmbedded,
                     absl::StrCat("of the projection (ld), ", triangles.status().message()));
  }
  const tenon_matrix given = GivenDistances(spec, input);
  const double p = spec.Has("minkowski_p") ? spec.Real("minkowski_p") : 2;
  const Distances distances =
      given.data != nullptr ? Distances(given)
                            : Distances(input.original, *ParseRowMetric(spec.Text("metric")), p);
  TENON_ASSIGN_OR_RETURN(const std::vector<double> original,
                         RelativeAreas(spec, kOriginal, *triangles, distances, *input.parallel));
  TENON_ASSIGN_OR_RETURN(
      const std::vector<double> embedded,
      RelativeAreas(spec, kEmbedded, *triangles,
                    Distances(input.embedded, RowMetric::kEuclidean, 2), *input.parallel));
  constexpr double kSmallestArea = 1e-6;
  const auto larger = [&](int64_t t) { return std::max(original[t], embedded[t]); };
  const auto change = [&](int64_t t) {
    const double deformation = (embedded[t] - original[t]) / std::max(larger(t), kSmallestArea);
    return std::abs(deformation) * larger(t);
  };
  const int64_t count = static_cast<int64_t>(original.size());
  const double score = PairwiseSum(0, count, change) / PairwiseSum(0, count, larger);
  return OneScore(spec, std::isfinite(score) ? std::clamp(score, 0.0, 1.0) : score);
}

int64_t GapIndexBytes(const MeasureSpec& spec, const MetricShape& shape) {
  const int64_t row = spec.Text("metric") == kPrecomputed ? 0 : shape.original_columns;
  const int64_t areas = 2 * (2 * shape.n) * int64_t{sizeof(double)};
  return shape.n * 2 * int64_t{sizeof(double)} + DelaunayBytes(shape.n) + areas +
         shape.threads * 3 * row * int64_t{sizeof(double)};
}

}  // namespace tenon::measurement
