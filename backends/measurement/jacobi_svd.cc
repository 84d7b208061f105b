#include "backends/measurement/jacobi_svd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/core/clones.h"
#include "backends/measurement/pairwise_sum.h"

namespace tenon::measurement {
namespace {

TENON_CLONES double Dot(const double* a, const double* b, int64_t count) {
  return PairwiseSum(0, count, [&](int64_t i) { return a[i] * b[i]; });
}

TENON_CLONES void Rotate(double* a, double* b, int64_t count, double cosine, double sine) {
  for (int64_t i = 0; i < count; ++i) {
    const double x = a[i], y = b[i];
    a[i] = cosine * x - sine * y;
    b[i] = sine * x + cosine * y;
  }
}

TENON_CLONES void Subtract(double* a, double factor, const double* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] -= factor * b[i];
}

}  // namespace

bool OrthogonalizeColumns(int64_t rows, int64_t columns, double* w, double* v,
                          absl::FunctionRef<bool()> stop) {
  constexpr int kMostSweeps = 40;  // convergence is quadratic: about 10 are ever needed
  std::fill_n(v, columns * columns, 0.0);
  for (int64_t c = 0; c < columns; ++c) v[c * columns + c] = 1;
  bool rotated = true;
  for (int sweep = 0; sweep < kMostSweeps && rotated; ++sweep) {
    rotated = false;
    for (int64_t p = 0; p + 1 < columns; ++p) {
      if (stop()) return false;
      for (int64_t q = p + 1; q < columns; ++q) {
        double *a = w + p * rows, *b = w + q * rows;
        const double aa = Dot(a, a, rows), bb = Dot(b, b, rows), ab = Dot(a, b, rows);
        const double smallest = std::numeric_limits<double>::epsilon() * std::sqrt(aa * bb);
        if (!(std::abs(ab) > smallest)) continue;
        const double zeta = (bb - aa) / (2 * ab);
        const double tangent = std::copysign(1 / (std::abs(zeta) + std::hypot(1.0, zeta)), zeta);
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
        Rotate(a, b, rows, cosine, sine);
        Rotate(v + p * columns, v + q * columns, columns, cosine, sine);
        rotated = true;
      }
    }
  }
  return true;
}

bool ReduceColumns(int64_t rows, int64_t columns, double* w, absl::FunctionRef<bool()> stop) {
  // Squares below lose digits, and a mirror made of them would not keep lengths. What is that small
  // is nothing next to columns of ordinary length.
  constexpr double kSmallest = std::numeric_limits<double>::min() / 1e-20;
  for (int64_t c = 0; c < columns; ++c) {
    if (stop()) return false;
    double* mirror = w + c * rows + c;
    const int64_t count = rows - c;
    const double square = Dot(mirror, mirror, count);
    if (square < kSmallest) continue;
    const double length = std::copysign(std::sqrt(square), *mirror);
    const double half = square + length * *mirror;  // half the square of the mirror's own length
    *mirror += length;
    for (int64_t other = c + 1; other < columns; ++other) {
      double* column = w + other * rows + c;
      Subtract(column, Dot(mirror, column, count) / half, mirror, count);
    }
    *mirror = -length;
  }
  for (int64_t c = 0; c < columns; ++c) {
    std::copy_n(w + c * rows, c + 1, w + c * columns);
    std::fill_n(w + c * columns + c + 1, columns - c - 1, 0.0);
  }
  return true;
}

}  // namespace tenon::measurement
