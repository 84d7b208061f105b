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

// cross[c][j] += y[c] x[j] of one point.
TENON_CLONES void AddProduct(int64_t x_width, int64_t y_width, const double* x, const double* y,
                             double* cross) {
  for (int64_t c = 0; c < y_width; ++c) {
    const double factor = y[c];
    for (int64_t j = 0; j < x_width; ++j) cross[c * x_width + j] += factor * x[j];
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

// Whether the singular values follow without a decomposition.
bool IsFast(int64_t x_columns, int64_t y_columns) {
  return y_columns <= std::min<int64_t>(2, x_columns);
}

}  // namespace

RotationFit::Widths RotationFit::WidthsOf(int64_t points, int64_t x_columns, int64_t y_columns) {
  // A decomposition sweeps over long columns about ten times, a reduction reads each of them once
  // for each point; so it has to be worth it.
  const bool reduces = !IsFast(x_columns, y_columns) && 3 * std::min(x_columns, y_columns) > points;
  if (!reduces) return {x_columns, y_columns};
  return {std::min(x_columns, points), std::min(y_columns, points)};
}

RotationFit::RotationFit(int64_t points, int64_t x_columns, int64_t y_columns)
    : points_(points),
      x_columns_(x_columns),
      y_columns_(y_columns),
      width_(WidthsOf(points, x_columns, y_columns)),
      x_(points * x_columns),
      y_(points * y_columns),
      cross_(width_.x * width_.y),
      row_(std::max(x_columns, y_columns)) {}

int64_t RotationFit::Bytes(int64_t points, int64_t x_columns, int64_t y_columns) {
  const auto [x, y] = WidthsOf(points, x_columns, y_columns);
  const int64_t smaller = std::min(x, y);
  return (points * (x_columns + y_columns) + 2 * x * y + smaller * (smaller + x + y) +
          std::max(x_columns, y_columns)) *
         int64_t{sizeof(double)};
}

double RotationFit::RelativeResidual(absl::FunctionRef<bool()> stop) {
  // Between these, squares of elements of the cross product stay in range, too.
  constexpr double kSmallest = 1e-100, kLargest = 1e100;
  // Below, the fast form has lost digits to cancellation.
  constexpr double kLeastFast = 0.01;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const auto usual = [&](double norm) { return norm >= kSmallest && norm <= kLargest; };
  Center(points_, x_columns_, x_.data(), row_.data());
  Center(points_, y_columns_, y_.data(), row_.data());
  ratio_ = 1;
  x_norm_ = SumOfSquares(x_);
  y_norm_ = SumOfSquares(y_);
  if (!usual(x_norm_) || !usual(y_norm_)) Rescale();
  if (!(x_norm_ > 0)) return kNaN;
  if (!Reduce(stop) || !Multiply(stop)) return kNaN;
  if (IsFast(x_columns_, y_columns_)) {
    const double residual = FastResidual();
    if (!(residual < kLeastFast)) return residual;
  }
  return Decompose(stop) ? ExplicitResidual(stop) : kNaN;
}

void RotationFit::Rescale() {
  const int x_exponent = Normalize(x_), y_exponent = Normalize(y_);
  ratio_ = std::ldexp(1.0, y_exponent - x_exponent);
  x_norm_ = SumOfSquares(x_);
  y_norm_ = SumOfSquares(y_);
}

// The points of a set with more columns than points in coordinates of the space that they span: x'y
// keeps its singular values, and the residual its length, which lies in the span of x.
bool RotationFit::Reduce(absl::FunctionRef<bool()> stop) {
  return (width_.x == x_columns_ || ReduceColumns(x_columns_, points_, x_.data(), stop)) &&
         (width_.y == y_columns_ || ReduceColumns(y_columns_, points_, y_.data(), stop));
}

bool RotationFit::Multiply(absl::FunctionRef<bool()> stop) {
  std::fill(cross_.begin(), cross_.end(), 0.0);
  for (int64_t r = 0; r < points_; ++r) {
    if (stop()) return false;
    AddProduct(width_.x, width_.y, &x_[r * width_.x], &y_[r * width_.y], cross_.data());
  }
  return true;
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
bool RotationFit::Decompose(absl::FunctionRef<bool()> stop) {
  const bool wide = width_.y > width_.x;  // then its transpose is decomposed
  const int64_t rank = std::min(width_.x, width_.y), rows = std::max(width_.x, width_.y);
  if (wide) {
    transposed_.resize(cross_.size());
    for (int64_t j = 0; j < width_.x; ++j) {
      for (int64_t c = 0; c < width_.y; ++c) {
        transposed_[j * width_.y + c] = cross_[c * width_.x + j];
      }
    }
  }
  std::vector<double>& columns = wide ? transposed_ : cross_;
  const int exponent = Normalize(columns);
  rotations_.resize(rank * rank);
  if (!OrthogonalizeColumns(rows, rank, columns.data(), rotations_.data(), stop)) return false;
  // Sums of products are known to the rounding of their terms, however much of them cancels.
  const double terms = std::ldexp(std::sqrt(x_norm_) * std::sqrt(y_norm_), -exponent);
  const auto count = static_cast<double>(std::max({x_columns_, y_columns_, points_}));
  FindNullValues(rows, rank, std::numeric_limits<double>::epsilon() * count * terms,
                 columns.data());
  left_ = wide ? rotations_ : columns;
  right_ = wide ? columns : rotations_;
  return true;
}

// Which singular values are no larger than `smallest`; the columns of the others get length one.
void RotationFit::FindNullValues(int64_t rows, int64_t rank, double smallest, double* columns) {
  is_null_.resize(rank);
  for (int64_t s = 0; s < rank; ++s) {
    double* column = columns + s * rows;
    const double value = std::sqrt(Dot(column, column, rows));
    is_null_[s] = !(value > smallest);
    for (int64_t j = 0; j < rows && !is_null_[s]; ++j) column[j] /= value;
  }
}

// The residual point by point.
double RotationFit::ExplicitResidual(absl::FunctionRef<bool()> stop) {
  const int64_t rank = std::min(width_.x, width_.y);
  double sum = 0;
  for (int64_t r = 0; r < points_; ++r) {
    if (stop()) return std::numeric_limits<double>::quiet_NaN();
    const double* y = &y_[r * width_.y];
    std::copy_n(&x_[r * width_.x], width_.x, row_.data());
    for (int64_t s = 0; s < rank; ++s) {
      const double along = ratio_ * Dot(y, &right_[s * width_.y], width_.y);
      if (is_null_[s]) {
        // Whatever the left vector is, it is orthogonal to the others, and x does not follow it.
        if (y_columns_ <= x_columns_) sum += along * along;
        continue;
      }
      const double* left = &left_[s * width_.x];
      for (int64_t j = 0; j < width_.x; ++j) row_[j] -= along * left[j];
    }
    sum += Dot(row_.data(), row_.data(), width_.x);
  }
  return sum / x_norm_;
}

}  // namespace tenon::measurement
