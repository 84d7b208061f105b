// Loops of copies, in bytes, while they are being planned.

#ifndef TENON_BACKENDS_CPU_COPY_LOOPS_H_
#define TENON_BACKENDS_CPU_COPY_LOOPS_H_

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "backends/cpu/copy_kernels.h"

namespace tenon::cpu {

using Loops = absl::InlinedVector<CopyLoop, 32>;
using Stride = int64_t CopyLoop::*;

constexpr int Log2(int64_t power) { return std::countr_zero(static_cast<uint64_t>(power)); }

// Nests by target, drops loops of one iteration and merges neighbours that are one loop. From
// strides in elements to strides in bytes.
Loops MergeLoops(std::span<const CopyLoop> loops, int64_t element_bytes);

// The largest divisor of `extent` that is at most `limit`.
int64_t LargestDivisor(int64_t extent, int64_t limit);

// The length to cut a loop to: `limit`, unless a shorter one leaves no rest.
int64_t CutLength(int64_t extent, int64_t limit);

// Appends a loop within `table`: each entry is followed by those of its iterations.
void AppendInner(std::vector<int64_t>& table, int64_t extent, int64_t stride);

// A loop of two iterations, split off the low end of a longer one.
struct Bit {
  int64_t source, target;
};

// Takes the loop of two iterations with this stride out of `loops`.
std::optional<Bit> TakeBit(Loops& loops, Stride stride, int64_t value);

// Nests the loops around blocks that write `contiguous` bytes. The source is read in order, as the
// memory likes it, except that lines of the target are written in pairs: random lines cost a third
// more, longer pieces don't win.
void NestForMemory(Loops& loops, int64_t contiguous);

// Loops that follow one another without gaps in one of the two layouts, innermost first.
struct Chain {
  Stride stride;
  int64_t next;  // the stride that continues the chain
  int64_t length = 1;
  Loops loops = {};

  // The loop that continues the chain; kNone if none does.
  size_t Find(const Loops& from) const {
    for (size_t i = from.size(); i-- > 0;) {
      if (from[i].*stride == next) return i;
    }
    return kNone;
  }
  // Takes the loop out of `from`, or the inner part of it that has `extent` iterations.
  void Take(Loops& from, size_t i, int64_t extent);
  void Take(Loops& from, size_t i) { Take(from, i, from[i].extent); }
  // Offsets in the other layout.
  std::vector<int64_t> Tabulate(Stride other) const;

  static constexpr size_t kNone = static_cast<size_t>(-1);
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_COPY_LOOPS_H_
