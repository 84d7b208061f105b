// Rows of squared distances in float, each within a proven margin of the exact one.
//
// |x|^2 + |y|^2 - 2 x.y of centred points takes one fused operation per column where the definition
// of a distance takes three of double width. Whoever uses the rows compares with the margin and
// asks for exact keys where that does not decide, so that results are those of exact rows.
//
// The margin: let a = s(x - m) be the centred point, scaled by a power of two so that |a| <= 1, b
// its rounding to float, u = 2^-24 and S = |a_i| + |a_j|. Rounding the points moves the square by
// at most 2.1 u S^2; a float dot product of d columns is off by at most d u |b_i||b_j| / (1 - d u)
// (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), which counts twice, and
// 2 |b_i||b_j| <= S^2 / 2; rounding and adding the norms and the last operation take at most
// 3.2 u S^2. In all less than (d / 2 + 8) u S^2. Exact keys are themselves rounded: in double that
// is within the slack, in float it is (d + 3) u S^2 more.

#ifndef TENON_BACKENDS_CPU_DISTANCE_FILTER_H_
#define TENON_BACKENDS_CPU_DISTANCE_FILTER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/cpu/distance_key.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// Immutable once created. The matrix must outlive it.
class DistanceFilter {
 public:
  // Whether exact rows of such points are dear enough.
  static bool Pays(const tenon_matrix& points);
  // Bytes that Create takes for such a matrix.
  static int64_t Bytes(const tenon_matrix& points);
  // Nothing if the margin cannot be kept: squares would leave the range of the number type.
  static absl::StatusOr<std::optional<DistanceFilter>> Create(const tenon_matrix& points);

  // Of exact keys.
  KeyKind kind() const { return kind_; }
  // Values of a row take this many floats.
  static int64_t Stride(int64_t n);

  // Writes the rows [first_row, first_row + rows): out[r * Stride(n) + j], aligned to 64 bytes.
  // Values at j >= n are meaningless.
  void Rows(int64_t first_row, int64_t rows, float* out) const;

  // Every column of row i whose key is at most `key` has a value of at most this.
  float Upper(int64_t i, double key) const;
  // Every column of row i with a value of at most this has a smaller distance than that of `key`.
  float Lower(int64_t i, double key) const;
  // If k columns of row i have values of at most `value`, its k nearest have at most this.
  float UpperOfValue(int64_t i, float value) const;

  // Exact keys of row i and these columns.
  void Keys(int64_t i, const int32_t* columns, int64_t count, double* keys) const;

 private:
  // False: out of range.
  template <typename T>
  bool Pack();

  tenon_matrix points_{};
  KeyKind kind_ = KeyKind::kSquare;
  double square_scale_ = 1;      // s^2
  std::vector<double> margins_;  // one per row, scaled
  Buffer packed_;                // panels, then rows, then norms of panels
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_DISTANCE_FILTER_H_
