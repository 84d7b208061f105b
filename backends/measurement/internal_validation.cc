#include "backends/measurement/internal_validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "backends/core/clones.h"
#include "backends/core/error.h"
#include "backends/measurement/numpy_arithmetic.h"

namespace tenon::measurement {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kLanes = 8;
constexpr int64_t kRun = 256;       // points of a class that one row is compared with at a time
constexpr int64_t kBlockRows = 16;  // rows whose distances to a run are taken while it is cached
constexpr int64_t kBlockWork = int64_t{1} << 25;  // differences after which to look for a cancel

// ---- Silhouette ------------------------------------------------------------------------------

// The distance of a squared distance, as float64 or as scikit-learn rounds it for float32.
template <bool single>
[[gnu::always_inline]] inline double Root(double square) {
  if constexpr (single) return std::sqrt(static_cast<float>(square));
  return std::sqrt(square);
}

// Sum of the distances of point `self` to points [first, first + count) of `columns`, which lie
// `stride` values apart; count <= kRun.
template <bool single>
[[gnu::always_inline]] inline double DistanceSum(const double* __restrict columns, int64_t stride,
                                                 int64_t n_columns, int64_t self, int64_t first,
                                                 int64_t count) {
  double squares[kRun];
  for (int64_t c = 0; c < n_columns; ++c) {
    const double* __restrict column = columns + c * stride;
    const double middle = column[self];
    if (c == 0) {
      for (int64_t j = 0; j < count; ++j) {
        const double difference = column[first + j] - middle;
        squares[j] = difference * difference;
      }
    } else {
      for (int64_t j = 0; j < count; ++j) {
        const double difference = column[first + j] - middle;
        squares[j] += difference * difference;
      }
    }
  }
  double lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += Root<single>(squares[j + l]);
  }
  for (int64_t j = whole; j < count; ++j) lanes[j - whole] += Root<single>(squares[j]);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

TENON_CLONES double DistanceSumDouble(const double* columns, int64_t stride, int64_t n_columns,
                                      int64_t self, int64_t first, int64_t count) {
  return DistanceSum<false>(columns, stride, n_columns, self, first, count);
}

TENON_CLONES double DistanceSumSingle(const double* columns, int64_t stride, int64_t n_columns,
                                      int64_t self, int64_t first, int64_t count) {
  return DistanceSum<true>(columns, stride, n_columns, self, first, count);
}

// columns[c][position]: the points in the order of their classes.
std::vector<double> SortedColumns(const tenon_matrix& matrix, const ClassMembers& members) {
  const PointRows<double> points(matrix);
  const int64_t n = members.rows();
  std::vector<double> columns(n * points.columns());
  for (int64_t p = 0; p < n; ++p) {
    for (int64_t c = 0; c < points.columns(); ++c) {
      columns[c * n + p] = points.At(members.Rows()[p], c);
    }
  }
  return columns;
}

// The silhouette of a point of class `own` from its sums of distances to all classes; not finite if
// one of them is not.
template <typename T>
T SilhouetteOf(const double* sums, int64_t own, const ClassMembers& members) {
  T inner = 0, outer = std::numeric_limits<T>::infinity();
  for (int64_t c = 0; c < members.classes(); ++c) {
    const T sum = static_cast<T>(sums[c]);
    if (!std::isfinite(sum)) return sum;
    const auto size = static_cast<double>(members.Size(c));
    if (c != own) {
      outer = std::min(outer, static_cast<T>(double{sum} / size));
    } else if (size > 1) {
      inner = static_cast<T>(double{sum} / (size - 1));
    }
  }
  const T larger = std::max(inner, outer);
  return members.Size(own) > 1 && larger > 0 ? (outer - inner) / larger : T{0};
}

// Silhouettes of the rows at positions [first, end) into values[row].
template <typename T>
void BlockSilhouettes(const std::vector<double>& columns, int64_t n_columns,
                      const ClassMembers& members, int64_t first, int64_t end, double* sums,
                      std::vector<T>& values) {
  const int64_t classes = members.classes(), n = members.rows();
  const auto distance_sum = sizeof(T) == sizeof(float) ? DistanceSumSingle : DistanceSumDouble;
  std::fill_n(sums, (end - first) * classes, 0.0);
  for (int64_t c = 0; c < classes; ++c) {
    for (int64_t run = members.First(c); run < members.First(c + 1); run += kRun) {
      const int64_t count = std::min(kRun, members.First(c + 1) - run);
      for (int64_t p = first; p < end; ++p) {
        sums[(p - first) * classes + c] +=
            distance_sum(columns.data(), n, n_columns, p, run, count);
      }
    }
  }
  int64_t own = members.ClassAt(first);
  for (int64_t p = first; p < end; ++p) {
    while (p >= members.First(own + 1)) ++own;
    values[members.Rows()[p]] = SilhouetteOf<T>(sums + (p - first) * classes, own, members);
  }
}

template <typename T>
absl::StatusOr<double> SilhouetteAs(const tenon_matrix& points, const ClassMembers& members,
                                    const Parallel& parallel) {
  const int64_t n = members.rows();
  const int64_t rows = std::clamp<int64_t>(kBlockWork / n / points.columns, 1, kBlockRows);
  const std::vector<double> columns = SortedColumns(points, members);
  std::vector<T> values(n);
  TENON_RETURN_IF_ERROR(parallel.ForEach((n + rows - 1) / rows, [&](int64_t block, int) {
    std::vector<double> sums(rows * members.classes());
    const int64_t first = block * rows;
    BlockSilhouettes(columns, points.columns, members, first, std::min(n, first + rows),
                     sums.data(), values);
  }));
  return PairwiseSum(0, n, [&](int64_t i) { return values[i]; }) / static_cast<T>(n);
}

// ---- Calinski-Harabasz -----------------------------------------------------------------------

// Sum of squared deviations of the members from their mean.
template <typename T>
T Dispersion(const PointRows<T>& points, std::span<const int32_t> rows, const T* mean) {
  const int64_t columns = points.columns();
  std::vector<T> squares, buffer(columns);
  squares.reserve(rows.size() * columns);
  for (const int32_t r : rows) {
    const T* row = points.Read(r, buffer.data());
    for (int64_t c = 0; c < columns; ++c) {
      const T difference = row[c] - mean[c];
      squares.push_back(difference * difference);
    }
  }
  return PairwiseSum(0, static_cast<int64_t>(squares.size()),
                     [&](int64_t p) { return squares[p]; });
}

template <typename T>
absl::StatusOr<double> CalinskiHarabaszAs(const tenon_matrix& matrix, const ClassMembers& members,
                                          const Parallel& parallel) {
  const PointRows<T> points(matrix);
  const int64_t columns = points.columns(), classes = members.classes(), n = members.rows();
  // The mean of all points is summed in their own order.
  const ClassMembers all(std::vector<int32_t>(n), 1);
  TENON_ASSIGN_OR_RETURN(const std::vector<T> middle, ClassMeans(points, all, 0, 1, parallel));
  TENON_ASSIGN_OR_RETURN(const std::vector<T> means,
                         ClassMeans(points, members, 0, classes, parallel));
  std::vector<T> dispersions(classes);
  TENON_RETURN_IF_ERROR(parallel.ForEach(classes, [&](int64_t c, int) {
    dispersions[c] = Dispersion(points, members.Of(c), means.data() + c * columns);
  }));
  double between = 0, within = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const T* mean = means.data() + c * columns;
    const T square = PairwiseSum(0, columns, [&](int64_t p) {
      const T difference = mean[p] - middle[p];
      return difference * difference;
    });
    between += static_cast<double>(members.Size(c)) * double{square};
    within += double{dispersions[c]};
  }
  if (!std::isfinite(between) || !std::isfinite(within)) return kInfinity;
  if (within == 0) return 1.0;
  return between * static_cast<double>(n - classes) / (within * static_cast<double>(classes - 1));
}

// ---- Davies-Bouldin --------------------------------------------------------------------------

constexpr double kNearlyZero = 1e-8;  // what scikit-learn takes for zero here

template <typename T>
double SquaredDistance(const T* a, const T* b, int64_t columns) {
  return PairwiseSum(0, columns, [&](int64_t c) {
    const double difference = double{a[c]} - double{b[c]};
    return difference * difference;
  });
}

// Mean distance of the members to their mean.
template <typename T>
double Spread(const PointRows<T>& points, std::span<const int32_t> rows, const T* mean) {
  std::vector<T> distances, buffer(points.columns());
  distances.reserve(rows.size());
  for (const int32_t r : rows) {
    const T* row = points.Read(r, buffer.data());
    distances.push_back(static_cast<T>(
        Root<sizeof(T) == sizeof(float)>(SquaredDistance(row, mean, points.columns()))));
  }
  const auto count = static_cast<int64_t>(distances.size());
  return PairwiseSum(0, count, [&](int64_t p) { return distances[p]; }) / static_cast<T>(count);
}

template <typename T>
absl::StatusOr<double> DaviesBouldinAs(const tenon_matrix& matrix, const ClassMembers& members,
                                       const Parallel& parallel) {
  const PointRows<T> points(matrix);
  const int64_t columns = points.columns(), classes = members.classes();
  TENON_ASSIGN_OR_RETURN(const std::vector<T> means,
                         ClassMeans(points, members, 0, classes, parallel));
  const auto mean = [&](int64_t c) { return means.data() + c * columns; };
  std::vector<double> spreads(classes), ratios(classes), farthest(classes);
  TENON_RETURN_IF_ERROR(parallel.ForEach(
      classes, [&](int64_t c, int) { spreads[c] = Spread(points, members.Of(c), mean(c)); }));
  TENON_RETURN_IF_ERROR(parallel.ForEach(classes, [&](int64_t c, int) {
    for (int64_t d = 0; d < classes; ++d) {
      const double distance = std::sqrt(SquaredDistance(mean(c), mean(d), columns));
      farthest[c] = std::isfinite(distance) ? std::max(farthest[c], distance) : kInfinity;
      const double ratio = distance == 0 ? 0.0 : (spreads[c] + spreads[d]) / distance;
      ratios[c] = std::isnan(ratio) ? kInfinity : std::max(ratios[c], ratio);
    }
  }));
  const double largest_spread = *std::max_element(spreads.begin(), spreads.end());
  const double largest_distance = *std::max_element(farthest.begin(), farthest.end());
  if (!AllFinite(spreads) || !std::isfinite(largest_distance)) return kInfinity;
  if (largest_spread <= kNearlyZero || largest_distance <= kNearlyZero) return 0.0;
  return PairwiseSum(0, classes, [&](int64_t c) { return ratios[c]; }) /
         static_cast<double>(classes);
}

}  // namespace

absl::StatusOr<double> Silhouette(const ClassPoints& points, const ClassMembers& members,
                                  const Parallel& parallel) {
  return points.single ? SilhouetteAs<float>(points.points, members, parallel)
                       : SilhouetteAs<double>(points.points, members, parallel);
}

absl::StatusOr<double> CalinskiHarabasz(const ClassPoints& points, const ClassMembers& members,
                                        const Parallel& parallel) {
  return points.single ? CalinskiHarabaszAs<float>(points.points, members, parallel)
                       : CalinskiHarabaszAs<double>(points.points, members, parallel);
}

absl::StatusOr<double> DaviesBouldin(const ClassPoints& points, const ClassMembers& members,
                                     const Parallel& parallel) {
  return points.single ? DaviesBouldinAs<float>(points.points, members, parallel)
                       : DaviesBouldinAs<double>(points.points, members, parallel);
}

int64_t InternalValidationBytes(int64_t n, int64_t columns, int threads) {
  // Sorted columns or squares, class means (of n classes at most), one value per row, and sums of
  // distances of the blocks at work.
  const int64_t word = sizeof(double);
  return (2 * n * columns + 2 * n + threads * kBlockRows * n) * word;
}

}  // namespace tenon::measurement
