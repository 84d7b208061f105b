#include "backends/cpu/copy_loops.h"

#include <algorithm>

namespace tenon::cpu {

Loops MergeLoops(std::span<const CopyLoop> loops, int64_t element_bytes) {
  Loops nested;
  for (const CopyLoop& loop : loops) {
    if (loop.extent == 1) continue;
    nested.push_back({loop.extent, loop.source * element_bytes, loop.target * element_bytes});
  }
  std::sort(nested.begin(), nested.end(),
            [](const CopyLoop& x, const CopyLoop& y) { return x.target > y.target; });
  size_t n_merged = 0;
  for (const CopyLoop& loop : nested) {
    CopyLoop* outer = n_merged == 0 ? nullptr : &nested[n_merged - 1];
    if (outer != nullptr && outer->source == loop.source * loop.extent &&
        outer->target == loop.target * loop.extent) {
      *outer = {outer->extent * loop.extent, loop.source, loop.target};
    } else {
      nested[n_merged++] = loop;
    }
  }
  nested.resize(n_merged);
  return nested;
}

int64_t LargestDivisor(int64_t extent, int64_t limit) {
  if (extent <= limit) return extent;
  for (int64_t divisor = limit; divisor > 1; --divisor) {
    if (extent % divisor == 0) return divisor;
  }
  return 1;
}

int64_t CutLength(int64_t extent, int64_t limit) {
  const int64_t divisor = LargestDivisor(extent, limit);
  return 2 * divisor > limit ? divisor : limit;
}

void AppendInner(std::vector<int64_t>& table, int64_t extent, int64_t stride) {
  const size_t count = table.size();
  table.resize(count * static_cast<size_t>(extent));
  for (size_t i = count; i-- > 0;) {
    for (int64_t j = extent; j-- > 0;) {
      table[i * static_cast<size_t>(extent) + static_cast<size_t>(j)] = table[i] + j * stride;
    }
  }
}

std::optional<Bit> TakeBit(Loops& loops, Stride stride, int64_t value) {
  for (size_t i = loops.size(); i-- > 0;) {
    CopyLoop& loop = loops[i];
    if (loop.*stride != value || loop.extent % 2 != 0) continue;
    const Bit bit = {loop.source, loop.target};
    loop = {loop.extent / 2, 2 * loop.source, 2 * loop.target};
    if (loop.extent == 1) loops.erase(loops.begin() + static_cast<int64_t>(i));
    return bit;
  }
  return std::nullopt;
}

void NestForMemory(Loops& loops, int64_t contiguous) {
  constexpr int64_t kPair = 128;
  Loops inner;
  for (int64_t next = contiguous; next < kPair; next *= 2) {
    const std::optional<Bit> bit = TakeBit(loops, &CopyLoop::target, next);
    if (!bit.has_value()) break;
    inner.push_back({2, bit->source, bit->target});
  }
  std::sort(loops.begin(), loops.end(),
            [](const CopyLoop& x, const CopyLoop& y) { return x.source > y.source; });
  loops.insert(loops.end(), inner.rbegin(), inner.rend());
}

void Chain::Take(Loops& from, size_t i, int64_t extent) {
  CopyLoop& loop = from[i];
  length *= extent;
  next *= extent;
  loops.push_back({extent, loop.source, loop.target});
  loop = {loop.extent / extent, loop.source * extent, loop.target * extent};
  if (loop.extent == 1) from.erase(from.begin() + static_cast<int64_t>(i));
}

std::vector<int64_t> Chain::Tabulate(Stride other) const {
  std::vector<int64_t> table = {0};
  table.reserve(static_cast<size_t>(length));
  for (size_t i = loops.size(); i-- > 0;) AppendInner(table, loops[i].extent, loops[i].*other);
  return table;
}

}  // namespace tenon::cpu
