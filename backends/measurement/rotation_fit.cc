#include "backends/measurement/rotation_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/core/clones.h"
#include "backends/measurement/jacobi_svd.h"
#include "backends/measurement/pairwise_sum.h"

namespace tenon::measurement {
namespace {

// Moves rows to their mean. Differences from the first row come first: equal rows become zeros, and
// what all rows have in common costs no digits.
TENON_CLONES void Center(int64_t rows, int64_t columns, double* values, double* mean) {
  std::copy_n(values, columns, mean);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) values[r * columns + c] -= mean[c];
  }
  std::fill_n(mean, columns, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) mean[c] += values[r * columns + c];
  }
  for (int64_t c = 0; c < columns; ++c) mean[c] /= static_cast<double>(rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) values[r * columns + c] -= mean[c];
  }
}

TENON_CLONES double Dot(const double* a, const double* b, int64_t count) {
  return PairwiseSum(0, count, [&](int64_t i) { return a[i] * b[i]; });
}

double SumOfSquares(const std::vector<double>& values) {
  return Dot(values.data(), values.data(), static_cast<int64_t>(values.size()));
}

// cross[c][j] = sum over the points of y[c] x[j].
TENON_CLONES void Multiply(int64_t points, int64_t x_columns, int64_t y_columns, const double* x,
                           const double* y, double* cross) {
  std::fill_n(cross, x_columns * y_columns, 0.0);
  for (int64_t r = 0; r < points; ++r) {
    for (int64_t c = 0; c < y_columns; ++c) {
      const double factor = y[r * y_columns + c];
      for (int64_t j = 0; j < x_columns; ++j) {
        cross[c * x_columns + j] += factor * x[r * x_columns + j];
      }
    }
  }
}

// Makes the largest magnitude less than 1 and at least 1/2; gives the exponent it took away.
int Normalize(std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  int exponent = 0;
  if (std::isfinite(largest)) std::frexp(largest, &exponent);
  for (double& value : values) value = std::ldexp(value, -exponent);
  return exponent;
}

}  // namespace

RotationFit::RotationFit(int64_t points, int64_t x_columns, int64_t y_columns)
    : points_(points),
      x_columns_(x_columns),
      y_columns_(y_columns),
      x_(points * x_columns),
      y_(points * y_columns),
      cross_(x_columns * y_columns),
      row_(std::max(x_columns, y_columns)) {}

int64_t RotationFit::Bytes(int64_t points, int64_t x_columns, int64_t y_columns) {
  const int64_t smaller = std::min(x_columns, y_columns);
  return (points * (x_columns + y_columns) + 2 * x_columns * y_columns +
          smaller * (smaller + x_columns + y_columns) + std::max(x_columns, y_columns)) *
         int64_t{sizeof(double)};
}

double RotationFit::RelativeResidual() {
  // Between these, squares of elements of the cross product stay in range, too.
  constexpr double kSmallest = 1e-100, kLargest = 1e100;
  // Below, the fast form has lost digits to cancellation.
  constexpr double kLeastFast = 0.01;
  const auto usual = [&](double norm) { return norm >= kSmallest && norm <= kLargest; };
  Center(points_, x_columns_, x_.data(), row_.data());
  Center(points_, y_columns_, y_.data(), row_.data());
  ratio_ = 1;
  x_norm_ = SumOfSquares(x_);
  y_norm_ = SumOfSquares(y_);
  if (!usual(x_norm_) || !usual(y_norm_)) Rescale();
  if (!(x_norm_ > 0)) return std::numeric_limits<double>::quiet_NaN();
  Multiply(points_, x_columns_, y_columns_, x_.data(), y_.data(), cross_.data());
  if (y_columns_ <= std::min<int64_t>(2, x_columns_)) {
    const double residual = FastResidual();
    if (!(residual < kLeastFast)) return residual;
  }
  Decompose();
  return ExplicitResidual();
}

void RotationFit::Rescale() {
  const int x_exponent = Normalize(x_), y_exponent = Normalize(y_);
  ratio_ = std::ldexp(1.0, y_exponent - x_exponent);
  x_norm_ = SumOfSquares(x_);
  y_norm_ = SumOfSquares(y_);
}

// |x|^2 - 2 (sum of singular values) + |y|^2, for y of one or two columns and no more than x.
double RotationFit::FastResidual() const {
  const double* a = cross_.data();
  const double aa = Dot(a, a, x_columns_);
  double nuclear_norm = std::sqrt(aa);
  if (y_columns_ == 2) {
    // The square of the sum is |cross|^2 and twice the product of both singular values, which is
    // the area that the columns span: a side and the height over it.
    const double* b = a + x_columns_;
    const double bb = Dot(b, b, x_columns_), ab = Dot(a, b, x_columns_);
    const double side = std::max(aa, bb);
    const double *base = aa >= bb ? a : b, *other = aa >= bb ? b : a;
    const double share = side > 0 ? ab / side : 0.0;
    const double height = PairwiseSum(0, x_columns_, [&](int64_t j) {
      const double rest = other[j] - share * base[j];
      return rest * rest;
    });
    nuclear_norm = std::sqrt(aa + bb + 2 * (std::sqrt(side) * std::sqrt(height)));
  }
  return (x_norm_ - 2 * ratio_ * nuclear_norm + ratio_ * ratio_ * y_norm_) / x_norm_;
}

// Singular vectors of the cross product: left_ (of x's columns) and right_ (of y's).
void RotationFit::Decompose() {
  const bool wide = y_columns_ > x_columns_;  // then its transpose is decomposed
  const int64_t rank = std::min(x_columns_, y_columns_), rows = std::max(x_columns_, y_columns_);
  if (wide) {
    transposed_.resize(cross_.size());
    for (int64_t j = 0; j < x_columns_; ++j) {
      for (int64_t c = 0; c < y_columns_; ++c) {
        transposed_[j * y_columns_ + c] = cross_[c * x_columns_ + j];
      }
    }
  }
  std::vector<double>& columns = wide ? transposed_ : cross_;
  Normalize(columns);
  rotations_.resize(rank * rank);
  OrthogonalizeColumns(rows, rank, columns.data(), rotations_.data());
  is_null_.resize(rank);
  double largest = 0;
  for (int64_t s = 0; s < rank; ++s) {
    largest = std::max(largest, Dot(&columns[s * rows], &columns[s * rows], rows));
  }
  const double smallest =
      std::numeric_limits<double>::epsilon() * static_cast<double>(rows) * std::sqrt(largest);
  for (int64_t s = 0; s < rank; ++s) {
    double* column = &columns[s * rows];
    const double value = std::sqrt(Dot(column, column, rows));
    is_null_[s] = !(value > smallest);
    for (int64_t j = 0; j < rows && !is_null_[s]; ++j) column[j] /= value;
  }
  left_ = wide ? rotations_ : columns;
  right_ = wide ? columns : rotations_;
}

// The residual point by point.
double RotationFit::ExplicitResidual() {
  const int64_t rank = std::min(x_columns_, y_columns_);
  double sum = 0;
  for (int64_t r = 0; r < points_; ++r) {
    const double* y = &y_[r * y_columns_];
    std::copy_n(&x_[r * x_columns_], x_columns_, row_.data());
    for (int64_t s = 0; s < rank; ++s) {
      const double along = ratio_ * Dot(y, &right_[s * y_columns_], y_columns_);
      if (is_null_[s]) {
        // Whatever the left vector is, it is orthogonal to the others, and x does not follow it.
        if (y_columns_ <= x_columns_) sum += along * along;
        continue;
      }
      const double* left = &left_[s * x_columns_];
      for (int64_t j = 0; j < x_columns_; ++j) row_[j] -= along * left[j];
    }
    sum += Dot(row_.data(), row_.data(), x_columns_);
  }
  return sum / x_norm_;
}

}  // namespace tenon::measurement
