// Resources of one space whose distances are computed once for both of their rows.
//
// The upper triangle is cut into square tiles. Tiles that run at once share no rows, so what rows
// take from them comes in an order that does not depend on threads.

#ifndef TENON_BACKENDS_CPU_SYMMETRIC_PASS_H_
#define TENON_BACKENDS_CPU_SYMMETRIC_PASS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"
#include "backends/cpu/distance.h"
#include "backends/cpu/row_kernels.h"

namespace tenon::cpu {

// The tiles of a symmetric matrix of keys of n rows.
class SymmetricTiles {
 public:
  // Keys of rows [first_i, first_i + n_i) and columns [first_j, first_j + n_j), and the same turned
  // around: keys[i * stride + j], turned[j * stride + i]. A tile on the diagonal is whole.
  struct Tile {
    int64_t first_i, n_i, first_j, n_j;
    double* keys;
    double* turned;
    int64_t stride;
    bool is_diagonal() const { return first_i == first_j; }
  };

  // Whether the distances of a space are dear enough to be worth it.
  static bool Pays(const tenon_matrix& points);
  static int64_t Bytes(int64_t n, int threads);

  static absl::StatusOr<SymmetricTiles> Create(const PackedPoints& points, int64_t n, int threads);

  // Calls body(tile, slot) for every tile; tiles at once share no rows. `turned` tells whether the
  // body reads the turned keys; a tile on the diagonal has none.
  absl::Status ForEach(const Parallel& parallel, bool turned,
                       const std::function<void(const Tile&, int slot)>& body);

 private:
  const PackedPoints* points_ = nullptr;
  int64_t n_ = 0, block_ = 0;
  Buffer scratch_;
};

// The k nearest of every row, built tile by tile.
class TiledNeighbors {
 public:
  static int64_t Bytes(int64_t n, int64_t k, int threads);
  static absl::StatusOr<TiledNeighbors> Create(KeyKind kind, int64_t n, int64_t k, int threads);

  void Take(const SymmetricTiles::Tile& tile, int slot);
  // The neighbours of row i in order, once all tiles were taken.
  void Finish(int64_t i, int32_t* nearest);

 private:
  struct Row {
    int64_t size = 0;
    // No key above it is of one of the k nearest.
    double bound = std::numeric_limits<double>::infinity();
  };
  static int64_t Capacity(int64_t k) { return 2 * k + 64; }

  void TakeRow(int64_t i, const double* keys, int64_t first, int64_t count, int32_t* found);

  KeyKind kind_ = KeyKind::kSquare;
  int64_t k_ = 0;
  std::vector<Row> rows_;
  Buffer candidates_, found_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_SYMMETRIC_PASS_H_
