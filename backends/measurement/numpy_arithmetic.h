// Sums and means in the element type and the order of NumPy, for scores that follow the input's
// arithmetic: in single precision the order decides digits that callers see.

#ifndef TENON_BACKENDS_MEASUREMENT_NUMPY_ARITHMETIC_H_
#define TENON_BACKENDS_MEASUREMENT_NUMPY_ARITHMETIC_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/classes.h"
#include "backends/measurement/pairwise_sum.h"
#include "backends/plugin/abi.h"

namespace tenon::measurement {

// Rows of points as `T`, whatever type they are stored in.
template <typename T>
class PointRows {
 public:
  explicit PointRows(const tenon_matrix& points) : points_(points) {}

  int64_t columns() const { return points_.columns; }
  bool in_place() const {
    return points_.dtype ==
           (sizeof(T) == sizeof(float) ? TENON_DTYPE_FLOAT32 : TENON_DTYPE_FLOAT64);
  }

  // The row itself, or a copy in `buffer` (columns() values).
  const T* Read(int64_t row, T* buffer) const {
    const int64_t first = row * points_.columns;
    if (in_place()) return static_cast<const T*>(points_.data) + first;
    for (int64_t c = 0; c < points_.columns; ++c) buffer[c] = At(first + c);
    return buffer;
  }

  T At(int64_t row, int64_t column) const { return At(row * points_.columns + column); }

 private:
  T At(int64_t position) const {
    return points_.dtype == TENON_DTYPE_FLOAT32
               ? static_cast<T>(static_cast<const float*>(points_.data)[position])
               : static_cast<T>(static_cast<const double*>(points_.data)[position]);
  }

  tenon_matrix points_;
};

// Euclidean distance as numpy.linalg.norm(a - b, axis) forms it.
template <typename T>
T NormOfDifference(const T* a, const T* b, int64_t columns) {
  return std::sqrt(PairwiseSum(0, columns, [&](int64_t c) {
    const T difference = a[c] - b[c];
    return difference * difference;
  }));
}

// The mean of columns [first, end) over `rows`, at least one: row by row, as numpy.mean(axis=0)
// does, except that a lone column is contiguous and summed pairwise.
template <typename T>
void ColumnMeans(const PointRows<T>& points, std::span<const int32_t> rows, int64_t first,
                 int64_t end, T* means) {
  const auto count = static_cast<T>(rows.size());
  if (points.columns() == 1) {
    means[0] = PairwiseSum(0, static_cast<int64_t>(rows.size()),
                           [&](int64_t r) { return points.At(rows[r], 0); }) /
               count;
    return;
  }
  for (int64_t c = first; c < end; ++c) means[c] = 0;
  for (const int32_t row : rows) {
    for (int64_t c = first; c < end; ++c) means[c] += points.At(row, c);
  }
  for (int64_t c = first; c < end; ++c) means[c] /= count;
}

// means[c - first][column] of classes c in [first, end), all of which have members. Errors of
// `parallel`.
template <typename T>
absl::StatusOr<std::vector<T>> ClassMeans(const PointRows<T>& points, const ClassMembers& members,
                                          int64_t first, int64_t end, const Parallel& parallel) {
  constexpr int64_t kColumns = 64;
  const int64_t columns = points.columns(), pieces = (columns + kColumns - 1) / kColumns;
  std::vector<T> means((end - first) * columns);
  const absl::Status status = parallel.ForEach((end - first) * pieces, [&](int64_t piece, int) {
    const int64_t c = piece / pieces, column = piece % pieces * kColumns;
    ColumnMeans(points, members.Of(first + c), column, std::min(columns, column + kColumns),
                means.data() + c * columns);
  });
  if (!status.ok()) return status;
  return means;
}

template <typename T>
bool AllFinite(const std::vector<T>& values) {
  for (const T value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_NUMPY_ARITHMETIC_H_
