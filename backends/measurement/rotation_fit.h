// The best rotation of one set of points onto another one (orthogonal Procrustes problem).
//
// Schönemann: A generalized solution of the orthogonal Procrustes problem, Psychometrika 31, 1966.

#ifndef TENON_BACKENDS_MEASUREMENT_ROTATION_FIT_H_
#define TENON_BACKENDS_MEASUREMENT_ROTATION_FIT_H_

#include <cstdint>
#include <vector>

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
  // variance or a sum overflows.
  double RelativeResidual();

 private:
  // Their squares, after centring.
  double x_norm_ = 0, y_norm_ = 0;

  void Rescale();
  void CrossProduct();
  double FastResidual() const;
  double ExplicitResidual();
  void Decompose();

  const int64_t points_, x_columns_, y_columns_;
  std::vector<double> x_, y_;
  double ratio_ = 1;                  // of the units of y and x
  std::vector<double> cross_;         // x'y by columns: y_columns x x_columns
  std::vector<double> transposed_;    // of the same, if y has more columns than x
  std::vector<double> rotations_;     // square, of the smaller side
  std::vector<double> left_, right_;  // singular vectors, one after the other
  std::vector<double> row_;
  std::vector<bool> is_null_;  // which singular values are zero up to rounding
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_ROTATION_FIT_H_
