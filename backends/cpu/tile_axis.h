// The grid of tiles that a matrix product over multi-index tensors is cut into.

#ifndef TENON_BACKENDS_CPU_TILE_AXIS_H_
#define TENON_BACKENDS_CPU_TILE_AXIS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/cpu/step_view.h"

namespace tenon::cpu {

// Element offsets in A, B and C.
struct Offsets {
  int64_t a = 0, b = 0, c = 0;
};

// Where iteration `index` of nested loops begins.
Offsets OffsetsOf(Modes loops, int64_t index);

// The offsets of all iterations of nested loops, the last one fastest.
std::vector<int64_t> Positions(Modes loops, int64_t tenon_mode::*stride);

// One of m, n and k: the loops inside a tile and those over tiles. A tile is a box of the group's
// loops: whole ones, at most one chunk of another, single values of the rest.
struct TileAxis {
  std::vector<tenon_mode> inner;  // outermost first: the order of rows, columns or terms in a tile
  std::vector<tenon_mode> outer;  // over tiles; the loop that was cut is the last one
  int cut = -1;                   // position in `inner` of the chunk, or -1
  int64_t full = 1;               // length of a tile
  int64_t tail = 1;               // of the last tile along the loop that was cut
  int64_t tail_chunk = 0;
  int64_t tiles = 1;

  bool IsTail(int64_t tile) const { return tail != full && (tile + 1) % outer.back().extent == 0; }
  int64_t Length(int64_t tile) const { return IsTail(tile) ? tail : full; }
  std::vector<tenon_mode> Inner(bool is_tail) const;
};

// How tiles are cut from a group that two tensors share.
struct CutRule {
  NestBy order;        // of the loops inside a tile
  NestBy other;        // the other tensor that has them
  bool nearest_first;  // fill tiles with the loops of smallest stride in either tensor, instead of
                       // those innermost in `order`: short strides of both stay inside a tile
  int max_loops;       // loops in a tile, at least 1
};

// Cuts `group` into tiles of about `target` iterations, at least 1.
TileAxis CutAxis(Modes group, const CutRule& rule, int64_t target);

// The one stride with which a tensor walks along a tile, if there is one; for tiles of one
// iteration 0.
std::optional<int64_t> TileStride(const TileAxis& axis, int64_t tenon_mode::*stride);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_TILE_AXIS_H_
