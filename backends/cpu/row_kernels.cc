#include "backends/cpu/row_kernels.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "backends/cpu/distance_kernels.h"

namespace tenon::cpu {
namespace {

// Columns counted for all targets while in the first-level cache. The tile that holds a target is
// read once more for it, which costs most in short rows.
constexpr int64_t kCountTile = 256;

// In rows this short all columns are counted twice instead, up to a little below the target's key
// and a little above.
constexpr int64_t kShortRow = 1024;

// Keeps the k first of `size` candidates at the front, the last of them at position k-1.
void KeepFirst(Neighbor* candidates, int64_t size, int64_t k) {
  if (size > k) std::nth_element(candidates, candidates + k - 1, candidates + size);
}

// Adds the columns found, but not `self`.
int64_t AddFound(KeyKind kind, const double* row, int64_t self, int64_t found,
                 const CandidateScratch& scratch, int64_t size) {
  for (int64_t f = 0; f < found; ++f) {
    const int32_t column = scratch.found[f];
    if (column != self) scratch.candidates[size++] = {DistanceOf(kind, row[column]), column};
  }
  return size;
}

// The k-th smallest of the minima of parts of the row bounds the k-th smallest value, and little
// more than k values are within it. All of these; 0 if they are too many, as among ties, or the row
// too short. row[self] is infinite.
int64_t FewCandidates(KeyKind kind, const double* row, int64_t n, int64_t self, int64_t k,
                      const CandidateScratch& scratch) {
  // Fewer parts let a few more values through, and are sooner looked through.
  const int64_t per_neighbor = n <= kShortRow ? 2 : 4;
  const int64_t parts = (per_neighbor * k + kPanel - 1) / kPanel * kPanel;
  if (parts > kMaxMinima || n < 2 * parts) return 0;
  double minima[kMaxMinima];
  PartMinima(row, n, parts, minima);
  std::nth_element(minima, minima + k - 1, minima + parts);
  const double bound = LastKeyOf(kind, minima[k - 1]);
  int64_t found = 0;
  const int64_t capacity = CandidateCapacity(k) - 64;
  if (FindNotAbove(row, 0, n, bound, capacity, scratch.found, &found) < n) return 0;
  const int64_t size = AddFound(kind, row, self, found, scratch, 0);
  return size < k ? 0 : size;
}

// Candidates by a bound that tightens from left to right: the k nearest.
int64_t StreamedCandidates(KeyKind kind, const double* row, int64_t n, int64_t self, int64_t k,
                           const CandidateScratch& scratch) {
  Neighbor* candidates = scratch.candidates;
  const int64_t capacity = CandidateCapacity(k) - 64;
  int64_t size = 0, j = 0;
  for (; j < n && size < capacity; ++j) {
    if (j != self) candidates[size++] = {DistanceOf(kind, row[j]), static_cast<int32_t>(j)};
  }
  for (;;) {
    KeepFirst(candidates, size, k);
    size = std::min(size, k);
    if (j >= n) return size;
    // Every kept candidate stands before column j, so an equal distance comes too late; but equal
    // keys are not the only ones of equal distances, so what is found is compared by distance.
    const double bound = row[candidates[k - 1].second];
    int64_t found = 0;
    j = FindNotAbove(row, j, n, bound, capacity - size, scratch.found, &found);
    size = AddFound(kind, row, self, found, scratch, size);
  }
}

// Keys that may have the distance of `key` are above .first and at most .second.
std::pair<double, double> AroundKey(KeyKind kind, double key) {
  // A few units of the last place, and some more where those are not relative.
  const bool single = kind == KeyKind::kSquareSingle;
  const double relative = single ? 0x1p-20 : 0x1p-49;
  const double margin = key * relative + (single ? 0x1p-120 : 0x1p-1000);
  return {key - margin, key + margin};
}

// counts[t] = columns before target t; row[self] comes before all. Twice `count` of `bounds` and
// `counts` are used.
void CountInShortRow(KeyKind kind, const double* row, int64_t n, const int32_t* targets,
                     int64_t count, double* bounds, int64_t* counts) {
  for (int64_t t = 0; t < count; ++t) {
    std::tie(bounds[t], bounds[count + t]) = AroundKey(kind, row[targets[t]]);
  }
  std::fill_n(counts, 2 * count, 0);
  CountNotAbove(row, n, bounds, 2 * count, counts);
  for (int64_t t = 0; t < count; ++t) {
    if (counts[count + t] == counts[t] + 1) continue;  // the target alone is in between
    const int32_t target = targets[t];
    const double distance = DistanceOf(kind, row[target]);
    for (int64_t j = 0; j < n; ++j) {
      if (!(row[j] > bounds[t] && row[j] <= bounds[count + t])) continue;
      const double other = DistanceOf(kind, row[j]);
      counts[t] += other < distance || (other == distance && j < target);
    }
  }
}

// The same for long rows: columns before a target are compared with the end of the interval of keys
// that share its distance, columns behind it with the beginning.
void CountInTiles(KeyKind kind, const double* row, int64_t n, const int32_t* targets, int64_t count,
                  const RankScratch& scratch) {
  double* before = scratch.bounds;
  double* after = before + count;
  double* bounds = after + count;
  for (int64_t t = 0; t < count; ++t) {
    const double key = row[targets[t]];
    before[t] = LastKeyOf(kind, key);
    after[t] = LastKeyBefore(kind, key);
    scratch.counts[t] = 0;
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::copy_n(before, count, bounds);
  std::iota(scratch.order, scratch.order + count, 0);
  std::sort(scratch.order, scratch.order + count,
            [&](int32_t a, int32_t b) { return targets[a] < targets[b]; });
  int64_t next = 0;  // of the targets in order of their columns
  for (int64_t first = 0; first < n; first += kCountTile) {
    const int64_t last = std::min(n, first + kCountTile), begin = next;
    for (; next < count && targets[scratch.order[next]] < last; ++next) {
      const int32_t t = scratch.order[next], split = targets[t];
      CountNotAbove(row + first, split - first, before + t, 1, scratch.counts + t);
      CountNotAbove(row + split, last - split, after + t, 1, scratch.counts + t);
      bounds[t] = kNone;
    }
    CountNotAbove(row + first, last - first, bounds, count, scratch.counts);
    for (int64_t o = begin; o < next; ++o) bounds[scratch.order[o]] = after[scratch.order[o]];
  }
}

}  // namespace

void NearestOfRow(KeyKind kind, double* row, int64_t n, int64_t self, int64_t k,
                  const CandidateScratch& scratch, int32_t* nearest) {
  const double own = std::exchange(row[self], std::numeric_limits<double>::infinity());
  int64_t size = FewCandidates(kind, row, n, self, k, scratch);
  if (size == 0) size = StreamedCandidates(kind, row, n, self, k, scratch);
  row[self] = own;
  std::sort(scratch.candidates, scratch.candidates + size);
  for (int64_t r = 0; r < k; ++r) nearest[r] = scratch.candidates[r].second;
}

void RanksInRow(KeyKind kind, double* row, int64_t n, int64_t self, const int32_t* targets,
                int64_t count, const RankScratch& scratch, int32_t* ranks) {
  const double own = std::exchange(row[self], -std::numeric_limits<double>::infinity());
  if (n <= kShortRow) {
    CountInShortRow(kind, row, n, targets, count, scratch.bounds, scratch.counts);
  } else {
    CountInTiles(kind, row, n, targets, count, scratch);
  }
  row[self] = own;
  for (int64_t t = 0; t < count; ++t) ranks[t] = static_cast<int32_t>(scratch.counts[t]);
}

void RankAll(KeyKind kind, const double* row, int64_t n, int64_t self,
             PairRecord<uint32_t>* records, uint16_t* ranks) {
  int64_t count = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (j == self) continue;
    records[count++] = {KeyOfDistance(DistanceOf(kind, row[j])), static_cast<uint32_t>(j)};
  }
  PairRecord<uint32_t>* sorted = SortRecords(records, records + n, count);
  ranks[self] = 0;
  for (int64_t first = 0; first < count;) {
    int64_t last = first + 1;
    while (last < count && sorted[last].key == sorted[first].key) ++last;
    if (last - first > 1) {
      std::sort(sorted + first, sorted + last,
                [](const auto& a, const auto& b) { return a.payload < b.payload; });
    }
    for (int64_t p = first; p < last; ++p) ranks[sorted[p].payload] = static_cast<uint16_t>(p + 1);
    first = last;
  }
}

}  // namespace tenon::cpu
