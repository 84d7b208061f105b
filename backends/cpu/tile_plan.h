// How a contraction is cut into tiles, and which tensors are packed.

#ifndef TENON_BACKENDS_CPU_TILE_PLAN_H_
#define TENON_BACKENDS_CPU_TILE_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/blas.h"
#include "backends/cpu/step_view.h"
#include "backends/cpu/strided_copy.h"
#include "backends/cpu/tile_axis.h"

namespace tenon::cpu {

// How one tensor's tile reaches the product.
struct TilePlanTensor {
  bool is_packed = false;
  MatrixLayout layout;  // of tiles in place; of packed ones only whether columns are contiguous
  // Of packed tiles, by [rows are a tail][columns are a tail]: tensor to tile for A and B, tile to
  // tensor for C. `fetches` go from C to a tile, where a step may accumulate.
  StridedCopy copies[2][2], fetches[2][2];
  int64_t scratch_bytes = 0;
};

struct TilePlan {
  std::vector<tenon_mode> batch;
  int64_t n_batch = 1;
  TileAxis m, n, k;
  TilePlanTensor a, b, c;

  int64_t n_tiles() const { return n_batch * m.tiles * n.tiles; }
  std::string Describe() const;
};

// Tiles that are matrices in place in all three tensors; nothing when there is no such grid.
std::optional<TilePlan> PlanTilesInPlace(const StepView& step);

// Tiles with packing where it is needed. Always finds some.
TilePlan PlanPackedTiles(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_TILE_PLAN_H_
