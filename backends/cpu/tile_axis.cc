#include "backends/cpu/tile_axis.h"

#include <algorithm>
#include <numeric>

namespace tenon::cpu {
namespace {

int64_t StrideIn(const tenon_mode& mode, NestBy tensor) {
  switch (tensor) {
    case NestBy::kA:
      return mode.stride_a;
    case NestBy::kB:
      return mode.stride_b;
    case NestBy::kC:
      break;
  }
  return mode.stride_c;
}

// Positions of the loops in the order in which they fill a tile.
std::vector<size_t> FillingOrder(const std::vector<tenon_mode>& loops, const CutRule& rule) {
  std::vector<size_t> positions(loops.size());
  std::iota(positions.rbegin(), positions.rend(), 0);
  if (rule.nearest_first) {
    const auto nearest = [&](size_t i) {
      return std::min(StrideIn(loops[i], rule.order), StrideIn(loops[i], rule.other));
    };
    std::stable_sort(positions.begin(), positions.end(),
                     [&](size_t x, size_t y) { return nearest(x) < nearest(y); });
  }
  return positions;
}

std::optional<int64_t> StrideOf(const std::vector<tenon_mode>& loops, int64_t tenon_mode::*stride) {
  int64_t unit = 0, next = 0;
  for (size_t i = loops.size(); i-- > 0;) {
    if (loops[i].extent == 1) continue;
    if (unit == 0) {
      unit = loops[i].*stride;
      if (unit == 0) return std::nullopt;  // the tensor repeats along the tile
    } else if (loops[i].*stride != next) {
      return std::nullopt;
    }
    next = loops[i].*stride * loops[i].extent;
  }
  return unit;
}

// The chunk of a loop that makes tiles of about `room` iterations: tiles as equal as possible.
int64_t ChunkOf(int64_t extent, int64_t room, bool is_alone) {
  constexpr int64_t kVector = 16;
  const int64_t pieces = (extent + room - 1) / room;
  int64_t chunk = (extent + pieces - 1) / pieces;
  if (is_alone && chunk > kVector) chunk = (chunk + kVector - 1) / kVector * kVector;
  return std::min(chunk, extent);
}

}  // namespace

Offsets OffsetsOf(Modes loops, int64_t index) {
  Offsets offsets;
  for (size_t i = loops.size(); i-- > 0 && index > 0;) {
    const int64_t value = index % loops[i].extent;
    index /= loops[i].extent;
    offsets.a += value * loops[i].stride_a;
    offsets.b += value * loops[i].stride_b;
    offsets.c += value * loops[i].stride_c;
  }
  return offsets;
}

std::vector<int64_t> Positions(Modes loops, int64_t tenon_mode::*stride) {
  std::vector<int64_t> positions = {0};
  for (const tenon_mode& loop : loops) {
    std::vector<int64_t> next;
    next.reserve(positions.size() * static_cast<size_t>(loop.extent));
    for (const int64_t base : positions) {
      for (int64_t i = 0; i < loop.extent; ++i) next.push_back(base + i * (loop.*stride));
    }
    positions = std::move(next);
  }
  return positions;
}

std::vector<tenon_mode> TileAxis::Inner(bool is_tail) const {
  std::vector<tenon_mode> loops = inner;
  if (is_tail && cut >= 0) loops[cut].extent = tail_chunk;
  return loops;
}

TileAxis CutAxis(Modes group, const CutRule& rule, int64_t target) {
  const std::vector<tenon_mode> loops = NestedLoops({group.begin(), group.end()}, rule.order);
  std::vector<int64_t> chunks(loops.size(), 1);
  TileAxis axis;
  int64_t cut = -1;
  int n_loops = 0;
  for (const size_t i : FillingOrder(loops, rule)) {
    if (n_loops++ == rule.max_loops) break;
    const int64_t room = std::max<int64_t>(target / axis.full, 1);
    chunks[i] =
        loops[i].extent <= room ? loops[i].extent : ChunkOf(loops[i].extent, room, axis.full == 1);
    axis.full *= chunks[i];
    if (chunks[i] == loops[i].extent) continue;
    cut = chunks[i] > 1 ? static_cast<int64_t>(i) : -1;
    break;
  }
  axis.tail = axis.full;
  std::optional<tenon_mode> cut_loop;
  for (size_t i = 0; i < loops.size(); ++i) {
    const tenon_mode& loop = loops[i];
    const int64_t chunk = chunks[i], pieces = (loop.extent + chunk - 1) / chunk;
    const tenon_mode over = {pieces, loop.stride_a * chunk, loop.stride_b * chunk,
                             loop.stride_c * chunk};
    if (static_cast<int64_t>(i) == cut) {
      axis.cut = static_cast<int>(axis.inner.size());
      axis.tail_chunk = loop.extent - (pieces - 1) * chunk;
      axis.tail = axis.full / chunk * axis.tail_chunk;
      cut_loop = over;
    } else if (pieces > 1) {
      axis.outer.push_back(over);
    }
    if (chunk > 1) {
      axis.inner.push_back(loop);
      axis.inner.back().extent = chunk;
    }
  }
  if (cut_loop.has_value()) axis.outer.push_back(*cut_loop);
  axis.tiles = LoopCount(axis.outer);
  return axis;
}

std::optional<int64_t> TileStride(const TileAxis& axis, int64_t tenon_mode::*stride) {
  const std::optional<int64_t> full = StrideOf(axis.inner, stride);
  if (axis.tail == axis.full || !full.has_value()) return full;
  // A short last tile of one iteration has no stride of its own.
  const std::optional<int64_t> tail = StrideOf(axis.Inner(true), stride);
  return tail.has_value() && (*tail == *full || axis.tail == 1) ? full : std::nullopt;
}

}  // namespace tenon::cpu
