#include "backends/cpu/row_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/core/clones.h"

namespace tenon::cpu {
namespace {

using measurement::PairStatistics;

constexpr int64_t kLanes = 8;
constexpr int64_t kFilter = 64;       // columns looked at together when filtering candidates
constexpr int64_t kCountTile = 1024;  // columns counted for all targets while in the cache

TENON_CLONES int64_t CountLess(const double* values, int64_t count, double bound) {
  int64_t result = 0;
  for (int64_t j = 0; j < count; ++j) result += values[j] < bound;
  return result;
}

TENON_CLONES int64_t CountNotGreater(const double* values, int64_t count, double bound) {
  int64_t result = 0;
  for (int64_t j = 0; j < count; ++j) result += values[j] <= bound;
  return result;
}

// Keeps the k first of `size` candidates at the front, the last of them at position k-1.
void KeepFirst(Neighbor* candidates, int64_t size, int64_t k) {
  if (size > k) std::nth_element(candidates, candidates + k - 1, candidates + size);
}

double SumOfLanes(const double* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Sums of one lane each; plain arrays of eight that the compiler keeps in vectors.
struct PairLanes {
  double oo[kLanes] = {}, ee[kLanes] = {}, oe[kLanes] = {}, dd[kLanes] = {};
  double o[kLanes] = {}, e[kLanes] = {};
  double min_o[kLanes], max_o[kLanes] = {}, min_e[kLanes], max_e[kLanes] = {};
};

[[gnu::always_inline]] inline void AddPair(double o, double e, int64_t l, PairLanes& lanes) {
  lanes.oo[l] += o * o;
  lanes.ee[l] += e * e;
  lanes.oe[l] += o * e;
  lanes.dd[l] += (o - e) * (o - e);
  lanes.o[l] += o;
  lanes.e[l] += e;
  lanes.min_o[l] = o < lanes.min_o[l] ? o : lanes.min_o[l];
  lanes.max_o[l] = o > lanes.max_o[l] ? o : lanes.max_o[l];
  lanes.min_e[l] = e < lanes.min_e[l] ? e : lanes.min_e[l];
  lanes.max_e[l] = e > lanes.max_e[l] ? e : lanes.max_e[l];
}

TENON_CLONES void PairLaneSums(const double* original, const double* embedded, int64_t count,
                               PairLanes& result) {
  PairLanes lanes = result;
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) AddPair(original[j + l], embedded[j + l], l, lanes);
  }
  for (int64_t j = whole; j < count; ++j) AddPair(original[j], embedded[j], j - whole, lanes);
  result = lanes;
}

// Sums of squared deviations and of their products, in lanes.
TENON_CLONES void MomentLaneSums(const double* original, const double* embedded, int64_t count,
                                 double mean_o, double mean_e, double* oo, double* ee, double* oe) {
  const int64_t whole = count / kLanes * kLanes;
  double soo[kLanes] = {}, see[kLanes] = {}, soe[kLanes] = {};
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const double o = original[j + l] - mean_o, e = embedded[j + l] - mean_e;
      soo[l] += o * o;
      see[l] += e * e;
      soe[l] += o * e;
    }
  }
  for (int64_t j = whole; j < count; ++j) {
    const double o = original[j] - mean_o, e = embedded[j] - mean_e;
    soo[j - whole] += o * o;
    see[j - whole] += e * e;
    soe[j - whole] += o * e;
  }
  std::copy_n(soo, kLanes, oo);
  std::copy_n(see, kLanes, ee);
  std::copy_n(soe, kLanes, oe);
}

TENON_CLONES void ResidualLaneSums(const double* original, const double* embedded, int64_t count,
                                   double scale, double* result) {
  const int64_t whole = count / kLanes * kLanes;
  double sums[kLanes] = {};
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const double difference = original[j + l] - scale * embedded[j + l];
      sums[l] += difference * difference;
    }
  }
  for (int64_t j = whole; j < count; ++j) {
    const double difference = original[j] - scale * embedded[j];
    sums[j - whole] += difference * difference;
  }
  std::copy_n(sums, kLanes, result);
}

// exp(x) for x <= 0: x = m ln 2 + r with |r| <= ln 2 / 2, a Taylor polynomial for exp(r), and the
// power of two put into the exponent. Results below the normal range are flushed to zero.
[[gnu::always_inline]] inline double ExpNegative(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kRound = 0x1.8p+52;  // adding it rounds to an integer in the low bits
  constexpr double kSmallest = -708.0;
  const double clamped = x > kSmallest ? x : kSmallest;
  const double shifted = clamped * kLog2E + kRound;
  const double m = shifted - kRound;
  const double r = (clamped - m * kLn2High) - m * kLn2Low;
  double p = 1.0 / 6227020800.0;
  constexpr double kCoefficients[] = {1.0 / 479001600.0,
                                      1.0 / 39916800.0,
                                      1.0 / 3628800.0,
                                      1.0 / 362880.0,
                                      1.0 / 40320.0,
                                      1.0 / 5040.0,
                                      1.0 / 720.0,
                                      1.0 / 120.0,
                                      1.0 / 24.0,
                                      1.0 / 6.0,
                                      0.5,
                                      1.0,
                                      1.0};
  for (const double coefficient : kCoefficients) p = p * r + coefficient;
  const int64_t exponent = (std::bit_cast<int64_t>(shifted) - std::bit_cast<int64_t>(kRound) + 1023)
                           << 52;
  const double result = p * std::bit_cast<double>(exponent);
  return x > kSmallest ? result : 0.0;
}

TENON_CLONES void GaussianLaneSums(const double* row, int64_t count, double maximum, double sigma,
                                   double* result) {
  const int64_t whole = count / kLanes * kLanes;
  double sums[kLanes] = {};
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const double scaled = row[j + l] / maximum;
      sums[l] += ExpNegative(-(scaled * scaled) / sigma);
    }
  }
  for (int64_t j = whole; j < count; ++j) {
    const double scaled = row[j] / maximum;
    sums[j - whole] += ExpNegative(-(scaled * scaled) / sigma);
  }
  std::copy_n(sums, kLanes, result);
}

TENON_CLONES double MaximumOf(const double* values, int64_t count) {
  double lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[l] = values[j + l] > lanes[l] ? values[j + l] : lanes[l];
    }
  }
  double result = 0;
  for (int64_t l = 0; l < kLanes; ++l) result = std::max(result, lanes[l]);
  for (int64_t j = whole; j < count; ++j) result = std::max(result, values[j]);
  return result;
}

}  // namespace

void NearestOfRow(const double* row, int64_t n, int64_t self, int64_t k, Neighbor* candidates,
                  int32_t* nearest) {
  const int64_t capacity = CandidateCapacity(k);
  int64_t size = 0, j = 0;
  for (; j < n && size < capacity; ++j) {
    if (j != self) candidates[size++] = {row[j], static_cast<int32_t>(j)};
  }
  KeepFirst(candidates, size, k);
  size = std::min(size, k);
  double bound = candidates[k - 1].first;
  // Every kept candidate stands before column j, so an equal distance comes too late.
  for (; j < n; j += kFilter) {
    const int64_t last = std::min(n, j + kFilter);
    if (CountLess(row + j, last - j, bound) == 0) continue;
    for (int64_t column = j; column < last; ++column) {
      if (!(row[column] < bound) || column == self) continue;
      candidates[size++] = {row[column], static_cast<int32_t>(column)};
      if (size < capacity) continue;
      KeepFirst(candidates, size, k);
      size = k;
      bound = candidates[k - 1].first;
    }
  }
  KeepFirst(candidates, size, k);
  std::sort(candidates, candidates + k);
  for (int64_t r = 0; r < k; ++r) nearest[r] = candidates[r].second;
}

void RanksInRow(double* row, int64_t n, int64_t self, const int32_t* targets, int64_t count,
                int32_t* ranks) {
  const double own = row[self];
  row[self] = -std::numeric_limits<double>::infinity();
  std::fill_n(ranks, count, 0);
  for (int64_t first = 0; first < n; first += kCountTile) {
    const int64_t last = std::min(n, first + kCountTile);
    for (int64_t t = 0; t < count; ++t) {
      const int64_t split = std::clamp<int64_t>(targets[t], first, last);
      const double bound = row[targets[t]];
      int64_t before = 0;
      if (split > first) before += CountNotGreater(row + first, split - first, bound);
      if (split < last) before += CountLess(row + split, last - split, bound);
      ranks[t] += static_cast<int32_t>(before);
    }
  }
  row[self] = own;
}

PairStatistics PairSumsOfRow(const double* original, const double* embedded, int64_t first,
                             int64_t n) {
  PairStatistics sums;
  const int64_t count = n - first;
  if (count <= 0) return sums;
  PairLanes lanes;
  std::fill_n(lanes.min_o, kLanes, original[first]);
  std::fill_n(lanes.min_e, kLanes, embedded[first]);
  PairLaneSums(original + first, embedded + first, count, lanes);
  sums.count = static_cast<double>(count);
  sums.sum_original_squared = SumOfLanes(lanes.oo);
  sums.sum_embedded_squared = SumOfLanes(lanes.ee);
  sums.sum_product = SumOfLanes(lanes.oe);
  sums.sum_difference_squared = SumOfLanes(lanes.dd);
  sums.mean_original = SumOfLanes(lanes.o) / sums.count;
  sums.mean_embedded = SumOfLanes(lanes.e) / sums.count;
  sums.min_original = *std::min_element(lanes.min_o, lanes.min_o + kLanes);
  sums.max_original = *std::max_element(lanes.max_o, lanes.max_o + kLanes);
  sums.min_embedded = *std::min_element(lanes.min_e, lanes.min_e + kLanes);
  sums.max_embedded = *std::max_element(lanes.max_e, lanes.max_e + kLanes);
  double oo[kLanes], ee[kLanes], oe[kLanes];
  MomentLaneSums(original + first, embedded + first, count, sums.mean_original, sums.mean_embedded,
                 oo, ee, oe);
  sums.moment_original = SumOfLanes(oo);
  sums.moment_embedded = SumOfLanes(ee);
  sums.comoment = SumOfLanes(oe);
  return sums;
}

void MergeMoments(const PairStatistics& row, PairStatistics& total) {
  if (row.count == 0) return;
  const bool empty = total.count == 0;
  const double count = total.count + row.count;
  const double delta_o = row.mean_original - total.mean_original;
  const double delta_e = row.mean_embedded - total.mean_embedded;
  const double weight = total.count * (row.count / count);
  total.moment_original += row.moment_original + delta_o * delta_o * weight;
  total.moment_embedded += row.moment_embedded + delta_e * delta_e * weight;
  total.comoment += row.comoment + delta_o * delta_e * weight;
  total.mean_original += delta_o * (row.count / count);
  total.mean_embedded += delta_e * (row.count / count);
  total.count = count;
  total.min_original = empty ? row.min_original : std::min(total.min_original, row.min_original);
  total.max_original = std::max(total.max_original, row.max_original);
  total.min_embedded = empty ? row.min_embedded : std::min(total.min_embedded, row.min_embedded);
  total.max_embedded = std::max(total.max_embedded, row.max_embedded);
}

double ScaledResidualOfRow(const double* original, const double* embedded, int64_t first, int64_t n,
                           double scale) {
  double lanes[kLanes] = {};
  if (n > first) ResidualLaneSums(original + first, embedded + first, n - first, scale, lanes);
  return SumOfLanes(lanes);
}

double MaximumOfRow(const double* row, int64_t first, int64_t n) {
  return n > first ? MaximumOf(row + first, n - first) : 0.0;
}

double GaussianSumOfRow(const double* row, int64_t n, double maximum, double sigma) {
  double lanes[kLanes];
  GaussianLaneSums(row, n, maximum, sigma, lanes);
  return SumOfLanes(lanes);
}

}  // namespace tenon::cpu
