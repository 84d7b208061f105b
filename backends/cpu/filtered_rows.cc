#include "backends/cpu/filtered_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backends/cpu/distance_kernels.h"

namespace tenon::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Columns counted for all targets while in the first-level cache.
constexpr int64_t kCountTile = 1024;

// Exact keys are computed for this many columns at a time.
constexpr int64_t kKeysAtOnce = 64;

// Columns in [first, last) within the margin of target `t` that come before it.
int64_t CountWithin(const FilteredRow& row, int64_t first, int64_t last, float lower, float upper,
                    double key, int32_t target) {
  const KeyKind kind = row.filter.kind();
  const double distance = DistanceOf(kind, key);
  int32_t found[2 * kKeysAtOnce];
  double keys[2 * kKeysAtOnce];
  int64_t before = 0;
  for (int64_t j = first; j < last;) {
    int64_t n_found = 0;
    j = FindBetween(row.values, j, last, lower, upper, kKeysAtOnce, found, &n_found);
    row.filter.Keys(row.i, found, n_found, keys);
    for (int64_t f = 0; f < n_found; ++f) {
      const double other = DistanceOf(kind, keys[f]);
      before += other < distance || (other == distance && found[f] < target);
    }
  }
  return before;
}

}  // namespace

bool NearestOfFilteredRow(const FilteredRow& row, int64_t k, const CandidateScratch& scratch,
                          int32_t* nearest) {
  constexpr int64_t kUnit = kMinimaUnit<float>;
  const int64_t parts = (4 * k + kUnit - 1) / kUnit * kUnit;
  if (parts > kMaxMinima || row.n < 2 * parts) return false;
  // The k-th smallest of the minima of parts bounds the k-th smallest value.
  const float own = std::exchange(row.values[row.i], kInfinity);
  float minima[kMaxMinima];
  PartMinima(row.values, row.n, parts, minima);
  std::nth_element(minima, minima + k - 1, minima + parts);
  const float bound = row.filter.UpperOfValue(row.i, minima[k - 1]);
  int64_t found = 0;
  const int64_t capacity = CandidateCapacity(k) - 64;
  const int64_t end = FindNotAbove(row.values, 0, row.n, bound, capacity, scratch.found, &found);
  row.values[row.i] = own;
  if (end < row.n) return false;
  double keys[kKeysAtOnce];
  for (int64_t f = 0; f < found; f += kKeysAtOnce) {
    const int64_t count = std::min(kKeysAtOnce, found - f);
    row.filter.Keys(row.i, scratch.found + f, count, keys);
    for (int64_t c = 0; c < count; ++c) {
      scratch.candidates[f + c] = {DistanceOf(row.filter.kind(), keys[c]), scratch.found[f + c]};
    }
  }
  std::partial_sort(scratch.candidates, scratch.candidates + k, scratch.candidates + found);
  for (int64_t r = 0; r < k; ++r) nearest[r] = scratch.candidates[r].second;
  return true;
}

bool RanksInFilteredRow(const FilteredRow& row, const int32_t* targets, int64_t count,
                        const FilteredRankScratch& scratch, int32_t* ranks) {
  row.filter.Keys(row.i, targets, count, scratch.keys);
  float* lower = scratch.bounds;
  float* upper = lower + count;
  for (int64_t t = 0; t < count; ++t) {
    lower[t] = row.filter.Lower(row.i, scratch.keys[t]);
    upper[t] = row.filter.Upper(row.i, scratch.keys[t]);
    scratch.counts[t] = 0;
  }
  const float own = std::exchange(row.values[row.i], -kInfinity);
  int64_t affordable = row.n / 16;  // exact keys, before exact rows are cheaper
  for (int64_t first = 0; first < row.n && affordable >= 0; first += kCountTile) {
    const int64_t last = std::min(row.n, first + kCountTile);
    std::fill_n(scratch.tile_counts, 2 * count, 0);
    CountNotAbove(row.values + first, last - first, scratch.bounds, 2 * count, scratch.tile_counts);
    for (int64_t t = 0; t < count; ++t) {
      scratch.counts[t] += scratch.tile_counts[t];
      const int64_t within = scratch.tile_counts[count + t] - scratch.tile_counts[t];
      const bool is_here = targets[t] >= first && targets[t] < last;
      if (within == int64_t{is_here}) continue;
      affordable -= within;
      if (affordable < 0) break;
      scratch.counts[t] +=
          CountWithin(row, first, last, lower[t], upper[t], scratch.keys[t], targets[t]);
    }
  }
  row.values[row.i] = own;
  if (affordable < 0) return false;
  for (int64_t t = 0; t < count; ++t) ranks[t] = static_cast<int32_t>(scratch.counts[t]);
  return true;
}

}  // namespace tenon::cpu
