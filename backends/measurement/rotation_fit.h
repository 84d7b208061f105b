// The best rotation of one set of points onto another one (orthogonal Procrustes problem).
//
// Schönemann: A generalized solution of the orthogonal Procrustes problem, Psychometrika 31, 1966.

#ifndef TENON_BACKENDS_MEASUREMENT_ROTATION_FIT_H_
#define TENON_BACKENDS_MEASUREMENT_ROTATION_FIT_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tenon::measurement {

// Memory for fits of one shape, one after the other. Not thread-safe.
class RotationFit {
 public:
  RotationFit(int64_t points, int64_t x_columns, int64_t y_columns);
  static int64_t Bytes(int64_t points, int64_t x_columns, int64_t y_columns);

  // The sets, row by row: points x x_columns and points x y_columns values, to be written before
  // each fit, which overwrites them.
  double* x() { return x_.data(); }
  double* y() { return y_.data(); }

  // With both sets centred, |x - y R'|^2 / |x|^2 in the Frobenius norm, where x'y = U S V' (thin)
  // and R = U V', reflections included and without scaling. If y has more columns than x, columns
  // of V to a singular value of zero (to which no decomposition gives a direction) are left out.
  //
  // Accurate relative to itself for any fit, up to the rounding of the points. NaN if x has no
  // variance or a sum overflows, and once `stop` says true, which is asked within long fits.
  double RelativeResidual(absl::FunctionRef<bool()> stop);

 private:
  // Their squares, after centring.
  double x_norm_ = 0, y_norm_ = 0;

  // Columns that a set is reduced to: more than there are points hold no more than these.
  struct Widths {
    int64_t x, y;
  };
  static Widths WidthsOf(int64_t points, int64_t x_columns, int64_t y_columns);

  void Rescale();
  bool Reduce(absl::FunctionRef<bool()> stop);
  bool Multiply(absl::FunctionRef<bool()> stop);
  double FastResidual() const;
  double ExplicitResidual(absl::FunctionRef<bool()> stop);
  bool Decompose(absl::FunctionRef<bool()> stop);
  void FindNullValues(int64_t rows, int64_t rank, double smallest, double* columns);

  const int64_t points_, x_columns_, y_columns_;
  const Widths width_;
  std::vector<double> x_, y_;
  double ratio_ = 1;                  // of the units of y and x
  std::vector<double> cross_;         // x'y by columns: y's width times x's
  std::vector<double> transposed_;    // of the same, if y is the wider one
  std::vector<double> rotations_;     // square, of the smaller side
  std::vector<double> left_, right_;  // singular vectors, one after the other
  std::vector<double> row_;
  std::vector<bool> is_null_;  // which singular values are zero up to rounding
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_ROTATION_FIT_H_
