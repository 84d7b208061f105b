// Resources of one space whose distances are computed once for both of their rows.
//
// The upper triangle is cut into square tiles. Tiles that run at once share no rows, so what rows
// take from them comes in an order that does not depend on threads.

#ifndef TENON_BACKENDS_CPU_SYMMETRIC_PASS_H_
#define TENON_BACKENDS_CPU_SYMMETRIC_PASS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"
#include "backends/cpu/distance.h"

namespace tenon::cpu {

// The tiles of a symmetric matrix of keys of n rows.
class SymmetricTiles {
 public:
  // Keys of rows [first_i, first_i + n_i) and columns [first_j, first_j + n_j):
  // keys[i * stride + j]. A tile on the diagonal is whole.
  struct Tile {
    int64_t first_i, n_i, first_j, n_j;
    double* keys;
    int64_t stride;
    bool is_diagonal() const { return first_i == first_j; }
  };

  // Whether the distances of a space are dear enough to be worth it.
  static bool Pays(const tenon_matrix& points);
  static int64_t Bytes(int64_t n, int threads);

  static absl::StatusOr<SymmetricTiles> Create(const PackedPoints& points, int64_t n, int threads);

  // Calls body(tile, slot) for every tile; tiles at once share no rows.
  absl::Status ForEach(const Parallel& parallel,
                       const std::function<void(const Tile&, int slot)>& body);

 private:
  const PackedPoints* points_ = nullptr;
  int64_t n_ = 0, block_ = 0;
  Buffer scratch_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_SYMMETRIC_PASS_H_
