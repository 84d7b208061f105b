#include "backends/cpu/pair_sums.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/distance_kernels.h"
#include "backends/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pair_sums.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#ifndef TENON_BACKENDS_CPU_PAIR_SUMS_TYPES_
#define TENON_BACKENDS_CPU_PAIR_SUMS_TYPES_
namespace tenon::cpu {

// Sums and extremes of one row. The centred ones are of values less a centre near their mean.
struct RowSums {
  double oo = 0, ee = 0, oe = 0, dd = 0;
  double o = 0, e = 0, centred_oo = 0, centred_ee = 0, centred_oe = 0;
  double min_o = 0, max_o = 0, min_e = 0, max_e = 0;
};

struct Centres {
  double o = 0, e = 0;
};

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<double, kPanel>;
using Vector = hn::Vec<Tag>;
constexpr int kVectors = kPanel / static_cast<int>(hn::MaxLanes(Tag()));
constexpr int64_t kLanes = kPanel / kVectors;

HWY_INLINE double Total(const Vector* sums) {
  HWY_ALIGN double lanes[kPanel];
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], Tag(), lanes + v * kLanes);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

HWY_INLINE double Least(const Vector* values) {
  double result = hn::GetLane(hn::MinOfLanes(Tag(), values[0]));
  for (int v = 1; v < kVectors; ++v) {
    result = std::min(result, hn::GetLane(hn::MinOfLanes(Tag(), values[v])));
  }
  return result;
}

HWY_INLINE double Greatest(const Vector* values) {
  double result = hn::GetLane(hn::MaxOfLanes(Tag(), values[0]));
  for (int v = 1; v < kVectors; ++v) {
    result = std::max(result, hn::GetLane(hn::MaxOfLanes(Tag(), values[v])));
  }
  return result;
}

// The eight values from `at` on, those at `count` and later replaced by that at count - 1 and
// masked out of sums.
struct Block {
  Vector o[kVectors], e[kVectors];
};

HWY_INLINE Vector ValuesOf(Vector x, bool squares) { return squares ? hn::Sqrt(x) : x; }

HWY_INLINE Block LoadBlock(PairRow original, PairRow embedded, int64_t at) {
  Block block;
  for (int v = 0; v < kVectors; ++v) {
    const int64_t j = at + v * kLanes;
    block.o[v] = ValuesOf(hn::LoadU(Tag(), original.values + j), original.squares);
    block.e[v] = ValuesOf(hn::LoadU(Tag(), embedded.values + j), embedded.squares);
  }
  return block;
}

// The last, incomplete block, filled up with copies of its last pair.
struct Tail {
  HWY_ALIGN double o[kPanel];
  HWY_ALIGN double e[kPanel];
  HWY_ALIGN double weight[kPanel];  // 1 for pairs, 0 for copies

  Tail(PairRow original, PairRow embedded, int64_t at, int64_t count) {
    for (int64_t l = 0; l < kPanel; ++l) {
      const int64_t j = std::min(at + l, count - 1);
      o[l] = original.values[j];
      e[l] = embedded.values[j];
      weight[l] = at + l < count ? 1.0 : 0.0;
    }
  }
};

struct Accumulators {
  Vector oo[kVectors], ee[kVectors], oe[kVectors], dd[kVectors];
  Vector o[kVectors], e[kVectors], coo[kVectors], cee[kVectors], coe[kVectors];
  Vector min_o[kVectors], max_o[kVectors], min_e[kVectors], max_e[kVectors];
};

// Adds a block; with `weight` its products count only where that is 1.
template <bool kWeighted>
HWY_INLINE void AddBlock(const Block& block, Centres centres, const double* weight,
                         Accumulators& sums) {
  const Tag d;
  for (int v = 0; v < kVectors; ++v) {
    const auto add = [&](Vector& sum, Vector x) HWY_ATTR {
      if constexpr (kWeighted) {
        const auto is_pair = hn::Gt(hn::Load(d, weight + v * kLanes), hn::Zero(d));
        x = hn::IfThenElseZero(is_pair, x);
      }
      sum = hn::Add(sum, x);
    };
    const Vector o = block.o[v], e = block.e[v], difference = hn::Sub(o, e);
    const Vector co = hn::Sub(o, hn::Set(d, centres.o)), ce = hn::Sub(e, hn::Set(d, centres.e));
    add(sums.oo[v], hn::Mul(o, o));
    add(sums.ee[v], hn::Mul(e, e));
    add(sums.oe[v], hn::Mul(o, e));
    add(sums.dd[v], hn::Mul(difference, difference));
    add(sums.o[v], co);
    add(sums.e[v], ce);
    add(sums.coo[v], hn::Mul(co, co));
    add(sums.cee[v], hn::Mul(ce, ce));
    add(sums.coe[v], hn::Mul(co, ce));
    sums.min_o[v] = hn::Min(sums.min_o[v], o);
    sums.max_o[v] = hn::Max(sums.max_o[v], o);
    sums.min_e[v] = hn::Min(sums.min_e[v], e);
    sums.max_e[v] = hn::Max(sums.max_e[v], e);
  }
}

HWY_NOINLINE RowSums SumRow(PairRow original, PairRow embedded, int64_t count, Centres centres) {
  const Tag d;
  Accumulators sums;
  for (int v = 0; v < kVectors; ++v) {
    sums.oo[v] = sums.ee[v] = sums.oe[v] = sums.dd[v] = sums.o[v] = sums.e[v] = hn::Zero(d);
    sums.coo[v] = sums.cee[v] = sums.coe[v] = hn::Zero(d);
    sums.min_o[v] = sums.min_e[v] = hn::Set(d, HUGE_VAL);
    sums.max_o[v] = sums.max_e[v] = hn::Zero(d);
  }
  int64_t j = 0;
  for (; j + kPanel <= count; j += kPanel) {
    AddBlock<false>(LoadBlock(original, embedded, j), centres, nullptr, sums);
  }
  if (j < count) {
    const Tail tail(original, embedded, j, count);
    const PairRow o{tail.o, original.squares}, e{tail.e, embedded.squares};
    AddBlock<true>(LoadBlock(o, e, 0), centres, tail.weight, sums);
  }
  RowSums result;
  result.oo = Total(sums.oo);
  result.ee = Total(sums.ee);
  result.oe = Total(sums.oe);
  result.dd = Total(sums.dd);
  result.o = Total(sums.o);
  result.e = Total(sums.e);
  result.centred_oo = Total(sums.coo);
  result.centred_ee = Total(sums.cee);
  result.centred_oe = Total(sums.coe);
  result.min_o = Least(sums.min_o);
  result.max_o = Greatest(sums.max_o);
  result.min_e = Least(sums.min_e);
  result.max_e = Greatest(sums.max_e);
  return result;
}

// The means of the first pairs of a row.
HWY_NOINLINE Centres FirstMeans(PairRow original, PairRow embedded, int64_t count) {
  const Tail tail(original, embedded, 0, count);
  const Block block = LoadBlock({tail.o, original.squares}, {tail.e, embedded.squares}, 0);
  return {Total(block.o) / kPanel, Total(block.e) / kPanel};
}

HWY_NOINLINE double Residual(PairRow original, PairRow embedded, int64_t count, double scale) {
  const Tag d;
  Vector sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  const auto square = [&](Vector o, Vector e) HWY_ATTR {
    const Vector difference = hn::Sub(o, hn::Mul(hn::Set(d, scale), e));
    return hn::Mul(difference, difference);
  };
  int64_t j = 0;
  for (; j + kPanel <= count; j += kPanel) {
    const Block block = LoadBlock(original, embedded, j);
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::Add(sums[v], square(block.o[v], block.e[v]));
  }
  if (j < count) {
    const Tail tail(original, embedded, j, count);
    const Block block = LoadBlock({tail.o, original.squares}, {tail.e, embedded.squares}, 0);
    for (int v = 0; v < kVectors; ++v) {
      const auto is_pair = hn::Gt(hn::Load(d, tail.weight + v * kLanes), hn::Zero(d));
      sums[v] = hn::Add(sums[v], hn::IfThenElseZero(is_pair, square(block.o[v], block.e[v])));
    }
  }
  return Total(sums);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

using measurement::PairStatistics;

HWY_EXPORT(SumRow);
HWY_EXPORT(FirstMeans);
HWY_EXPORT(Residual);

namespace {

// Whether sums of squares about a centre lose digits when they are moved to the mean.
bool IsFarFromMean(double centred_sum, double centred_squares, double count) {
  constexpr double kFar = 64;  // costs six bits at most
  const double shift = centred_sum * (centred_sum / count);
  return !(shift <= kFar * (centred_squares - shift));
}

}  // namespace

PairStatistics PairSums(PairRow original, PairRow embedded, int64_t count) {
  PairStatistics sums;
  if (count <= 0) return sums;
  const auto n = static_cast<double>(count);
  Centres centres = HWY_DYNAMIC_DISPATCH(FirstMeans)(original, embedded, count);
  RowSums row = HWY_DYNAMIC_DISPATCH(SumRow)(original, embedded, count, centres);
  if (IsFarFromMean(row.o, row.centred_oo, n) || IsFarFromMean(row.e, row.centred_ee, n)) {
    centres = {centres.o + row.o / n, centres.e + row.e / n};
    row = HWY_DYNAMIC_DISPATCH(SumRow)(original, embedded, count, centres);
  }
  sums.count = n;
  sums.sum_original_squared = row.oo;
  sums.sum_embedded_squared = row.ee;
  sums.sum_product = row.oe;
  sums.sum_difference_squared = row.dd;
  sums.mean_original = centres.o + row.o / n;
  sums.mean_embedded = centres.e + row.e / n;
  sums.moment_original = std::max(0.0, row.centred_oo - row.o * (row.o / n));
  sums.moment_embedded = std::max(0.0, row.centred_ee - row.e * (row.e / n));
  sums.comoment = row.centred_oe - row.o * (row.e / n);
  sums.min_original = row.min_o;
  sums.max_original = row.max_o;
  sums.min_embedded = row.min_e;
  sums.max_embedded = row.max_e;
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

double ScaledResidual(PairRow original, PairRow embedded, int64_t count, double scale) {
  return count <= 0 ? 0.0 : HWY_DYNAMIC_DISPATCH(Residual)(original, embedded, count, scale);
}

}  // namespace tenon::cpu
#endif  // HWY_ONCE
