// Nested loops over strided tensors, cut into blocks whose offsets are known beforehand.

#ifndef TENON_BACKENDS_CPU_LOOP_NEST_H_
#define TENON_BACKENDS_CPU_LOOP_NEST_H_

#include <cstdint>
#include <vector>

#include "backends/cpu/block_kernels.h"
#include "backends/cpu/step_view.h"

namespace tenon::cpu {

// Loops over the blocks, and the iterations inside one. The innermost loops make a block: one loop
// with strides where it is long, otherwise several loops with tables of offsets, so that short
// loops (extents of 2 and 3 are usual) cost no bookkeeping per iteration.
struct LoopNest {
  std::vector<tenon_mode> outer;
  int64_t outer_count = 1;
  int64_t block = 1;       // iterations of a block
  int64_t last_block = 1;  // of the last one along the loop that was cut, outer.back()
  bool is_cut = false;
  bool is_affine = true;  // offsets are multiples of the strides
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  std::vector<int64_t> offsets_a, offsets_b, offsets_c;  // `block` each, unless affine

  int64_t BlockSize(int64_t outer_index) const {
    const bool is_last = is_cut && (outer_index + 1) % outer.back().extent == 0;
    return is_last ? last_block : block;
  }
  BlockAccess a() const { return {is_affine ? nullptr : offsets_a.data(), stride_a}; }
  BlockAccess b() const { return {is_affine ? nullptr : offsets_b.data(), stride_b}; }
  BlockAccess c() const { return {is_affine ? nullptr : offsets_c.data(), stride_c}; }
};

// Nests `modes` (no extent may be 0) by the stride in one tensor.
LoopNest MakeLoopNest(const std::vector<tenon_mode>& modes, NestBy by);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_LOOP_NEST_H_
