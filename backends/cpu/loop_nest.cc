#include "backends/cpu/loop_nest.h"

#include <algorithm>

namespace tenon::cpu {
namespace {

constexpr int64_t kLongLoop = 32;     // from here on, one loop makes a block by itself
constexpr int64_t kTableBlock = 256;  // largest block with tables: they stay in the first cache

// Cuts the last of `outer` so that a chunk of it joins the block, outermost there.
void CutLoop(int64_t chunk, LoopNest& nest, std::vector<tenon_mode>& inner) {
  tenon_mode& loop = nest.outer.back();
  tenon_mode part = loop;
  part.extent = chunk;
  inner.insert(inner.begin(), part);
  const int64_t pieces = (loop.extent + chunk - 1) / chunk;
  const int64_t last_chunk = loop.extent - (pieces - 1) * chunk;
  nest.last_block = nest.block * last_chunk;
  nest.block *= chunk;
  nest.is_cut = true;
  loop = {pieces, loop.stride_a * chunk, loop.stride_b * chunk, loop.stride_c * chunk};
}

void TabulateBlock(const std::vector<tenon_mode>& inner, LoopNest& nest) {
  nest.is_affine = inner.size() <= 1;
  if (nest.is_affine) {
    if (inner.empty()) return;
    nest.stride_a = inner[0].stride_a;
    nest.stride_b = inner[0].stride_b;
    nest.stride_c = inner[0].stride_c;
    return;
  }
  Odometer position(inner);
  for (int64_t i = 0; i < nest.block; ++i, position.Next()) {
    nest.offsets_a.push_back(position.a());
    nest.offsets_b.push_back(position.b());
    nest.offsets_c.push_back(position.c());
  }
}

}  // namespace

LoopNest MakeLoopNest(const std::vector<tenon_mode>& modes, NestBy by) {
  LoopNest nest;
  nest.outer = NestedLoops(modes, by);
  const bool is_one_loop =
      nest.outer.size() == 1 || (!nest.outer.empty() && nest.outer.back().extent >= kLongLoop);
  const int64_t limit = is_one_loop ? kLargestBlock : kTableBlock;
  std::vector<tenon_mode> inner;
  while (!nest.outer.empty() && nest.block * nest.outer.back().extent <= limit) {
    if (is_one_loop && !inner.empty()) break;
    nest.block *= nest.outer.back().extent;
    inner.insert(inner.begin(), nest.outer.back());
    nest.outer.pop_back();
  }
  nest.last_block = nest.block;
  const int64_t chunk = nest.block == 0 ? 0 : limit / nest.block;  // 0 when a loop is empty
  if (!nest.outer.empty() && chunk > 1 && !(is_one_loop && !inner.empty())) {
    CutLoop(chunk, nest, inner);
  }
  nest.outer_count = LoopCount(nest.outer);
  TabulateBlock(inner, nest);
  return nest;
}

}  // namespace tenon::cpu
