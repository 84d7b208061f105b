// Blocks of rows of a distance matrix, vectorised across pairs.
//
// The distance of a pair is the square root of the sum, over the columns from left to right, of the
// squared difference; every operation is rounded on its own. Vector lanes hold different pairs, so
// the bits are the same on every instruction set and for any block.

#ifndef TENON_BACKENDS_CPU_DISTANCE_H_
#define TENON_BACKENDS_CPU_DISTANCE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/cpu/distance_kernels.h"
#include "backends/cpu/distance_key.h"
#include "backends/measurement/pair_distance.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

inline int64_t PaddedRows(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

// Turns keys into the distances that they stand for.
void KeysToDistances(KeyKind kind, double* keys, int64_t count);

// One pair by definition.
using measurement::PairDistance;

// A copy of the points in panels (or, for geodesic distances, the sines, cosines and longitudes).
// The matrix must outlive it. Immutable once packed.
class PackedPoints {
 public:
  // Bytes that Pack takes for such a matrix.
  static int64_t Bytes(const tenon_matrix& points);
  // With `roots` rows hold the distances themselves.
  static absl::StatusOr<PackedPoints> Pack(const tenon_matrix& points, bool roots = false);

  // What rows of this matrix hold in the place of distances.
  KeyKind kind() const;

  // Writes the keys of the distances from rows [first_row, first_row + rows) to all points from
  // `first_column` (rounded down to a panel) on: out[r * PaddedRows(n) + j]. Values at j >= n are
  // meaningless. `out` is aligned to 64 bytes.
  void KeyRows(int64_t first_row, int64_t rows, int64_t first_column, double* out) const;

  // Writes keys of rows and of columns [first_column, first_column + columns), a multiple of a
  // panel that starts at one: out[r * stride + j - first_column]. Not for geodesic distances.
  void KeyTile(int64_t first_row, int64_t rows, int64_t first_column, int64_t columns, double* out,
               int64_t stride) const;

 private:
  void KeyPanels(int64_t first_row, int64_t rows, int64_t first_panel, int64_t last_panel,
                 double* out, int64_t stride) const;
  void GeodesicRow(int64_t i, int64_t first_column, double* out) const;

  tenon_matrix points_{};
  bool roots_ = false;
  Buffer packed_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_DISTANCE_H_
