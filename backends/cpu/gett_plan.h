// How a contraction is cut into tiles for the register-blocked product, and which tensors are
// packed: the plan of a GETT (Springer and Bientinesi, "Design of a high-performance GEMM-like
// tensor-tensor multiplication", ACM TOMS 44(3), 2018).
//
// The roles are those of product_kernels.h: vectors run along the columns of V and C, S is
// broadcast. Either operand of the step can be V; tenon_mode's strides a, b and c are those of S, V
// and C here. Where vectors run across the batch, its loops are the columns, S has them too, and
// the loops that only V has are the items of a tile.

#ifndef TENON_BACKENDS_CPU_GETT_PLAN_H_
#define TENON_BACKENDS_CPU_GETT_PLAN_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/step_view.h"
#include "backends/cpu/strided_copy.h"
#include "backends/cpu/tile_axis.h"

namespace tenon::cpu {

// How one tensor's tile reaches the product: in place, or packed into scratch.
struct GettTensor {
  bool is_packed = false;
  // Strides of a tile in elements: along its first axis (rows of S and C, depth of V) and its
  // second one (depth of S, columns of V and C). In place only S has them.
  int64_t first = 0, second = 1;
  std::vector<int64_t> item;  // offset of each batch item in a tile
  // From tensor to tile for S and V, from tile to tensor for C, by which axes are tails: 4 for the
  // items (rows where S has columns), 2 for the first axis (depth there), 1 for the second one
  // (columns there). `fetches` go from C to a tile, where a step may accumulate.
  StridedCopy copies[8], fetches[8];
  int64_t tile_bytes = 0;  // of a packed tile
  int64_t slots = 1;       // packed tiles that are kept: those of all depths, or one
  int64_t scratch_bytes() const { return tile_bytes * slots; }
  // Cache lines of a tile as offsets in bytes, ascending; empty where the tensor stays in the
  // caches anyway.
  std::vector<int64_t> lines;
};

// One of the nested loops over tiles.
struct TileLoop {
  enum Role { kBatch, kRows, kColumns };
  tenon_mode mode;
  Role role;
  bool has_tail;  // its last value has a shorter tile
};

struct GettPlan {
  bool is_swapped = false;  // V is the step's A
  bool is_across = false;   // vectors run across the step's batch
  TileAxis batch, rows, columns, depth;
  std::vector<TileLoop> order;  // the loops over tiles but those of the depth, outermost first
  GettTensor s, v, c;
  // Offsets of a tile's parts as ProductTile wants them, by [is a tail].
  std::array<std::vector<int64_t>, 2> v_depth, s_vector, v_vector, c_vector, c_row;
  std::array<int64_t, 2> whole_vectors = {}, partial_elements = {};
  int pieces = 1;           // contiguous ones that a vector is made of
  bool may_stream = false;  // C is large, written once, and made of whole aligned vectors
  double seconds = 0;       // predicted, on one thread

  int64_t n_tiles() const { return batch.tiles * rows.tiles * columns.tiles; }
  std::string Describe() const;
};

// The cheapest plan for a step with at least one iteration. Depends on the step alone.
GettPlan PlanGett(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_GETT_PLAN_H_
