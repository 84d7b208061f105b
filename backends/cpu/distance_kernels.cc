#include "backends/cpu/distance_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backends/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/distance_kernels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most a panel of T, and how many make one.
template <typename T>
using PanelTag = hn::CappedTag<T, kPanel>;
template <typename T>
constexpr int kParts = kPanel / static_cast<int>(hn::MaxLanes(PanelTag<T>()));

HWY_INLINE void StoreSums(PanelTag<double> d, hn::Vec<PanelTag<double>> sums, double* out) {
  hn::Store(sums, d, out);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums(PanelTag<float>, hn::Vec<PanelTag<float>> sums, double* out) {
  *out = double{hn::GetLane(sums)};
}
#else
HWY_INLINE void StoreSums(PanelTag<float> d, hn::Vec<PanelTag<float>> sums, double* out) {
  HWY_ALIGN float lanes[kPanel];
  hn::Store(sums, d, lanes);
  for (size_t l = 0; l < hn::Lanes(d); ++l) out[l] = lanes[l];
}
#endif

template <typename T, int kRows, bool kRoots>
HWY_NOINLINE void SquaredGroup(const T* HWY_RESTRICT panels, int64_t columns, int64_t first,
                               int64_t last, const T* HWY_RESTRICT rows, double* HWY_RESTRICT out,
                               int64_t stride) {
  const PanelTag<T> d;
  constexpr int64_t kLanes = kPanel / kParts<T>;
  for (int64_t p = first; p < last; ++p) {
    for (int part = 0; part < kParts<T>; ++part) {
      const T* panel = panels + p * columns * kPanel + part * kLanes;
      hn::Vec<PanelTag<T>> sums[kRows];
      for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
      for (int64_t c = 0; c < columns; ++c) {
        const auto x = hn::Load(d, panel + c * kPanel);
        for (int r = 0; r < kRows; ++r) {
          const auto difference = hn::Sub(hn::Set(d, rows[r * columns + c]), x);
          sums[r] = hn::Add(sums[r], hn::Mul(difference, difference));
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const auto value = kRoots ? hn::Sqrt(sums[r]) : sums[r];
        StoreSums(d, value, out + r * stride + p * kPanel + part * kLanes);
      }
    }
  }
}

template <bool kRoots, typename T>
void SquaredOrRoots(int64_t n_rows, const T* panels, int64_t columns, int64_t first, int64_t last,
                    const T* rows, double* out, int64_t stride) {
  static_assert(kRowGroup == 6);
  const auto group = [&](auto size, int64_t r) {
    SquaredGroup<T, size.value, kRoots>(panels, columns, first, last, rows + r * columns,
                                        out + r * stride, stride);
  };
  switch (n_rows) {
    case 6:
      return group(std::integral_constant<int, 6>(), 0);
    case 4:
      return group(std::integral_constant<int, 4>(), 0);
    default:
      for (int64_t r = 0; r < n_rows; ++r) group(std::integral_constant<int, 1>(), r);
  }
}

template <typename T>
void Squared(int64_t n_rows, const T* panels, int64_t columns, int64_t first, int64_t last,
             const T* rows, bool roots, double* out, int64_t stride) {
  (roots ? SquaredOrRoots<true, T> : SquaredOrRoots<false, T>)(n_rows, panels, columns, first, last,
                                                               rows, out, stride);
}

void SquaredDouble(int64_t n_rows, const double* panels, int64_t columns, int64_t first,
                   int64_t last, const double* rows, bool roots, double* out, int64_t stride) {
  Squared(n_rows, panels, columns, first, last, rows, roots, out, stride);
}

void SquaredFloat(int64_t n_rows, const float* panels, int64_t columns, int64_t first, int64_t last,
                  const float* rows, bool roots, double* out, int64_t stride) {
  Squared(n_rows, panels, columns, first, last, rows, roots, out, stride);
}

// Vectors of at most half a panel of floats.
using FilterTag = hn::CappedTag<float, kFilterPanel / 2>;

template <int kRows>
HWY_NOINLINE void ApproximateGroup(const float* HWY_RESTRICT panels, int64_t columns, int64_t first,
                                   int64_t last, const float* HWY_RESTRICT rows,
                                   const float* HWY_RESTRICT row_norms,
                                   const float* HWY_RESTRICT norms, float* HWY_RESTRICT out,
                                   int64_t stride) {
  const FilterTag d;
  using V = hn::Vec<FilterTag>;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(FilterTag()));
  const auto minus_two = hn::Set(d, -2.0f);
  for (int64_t p = first; p < last; ++p) {
    for (int64_t part = 0; part < kFilterPanel; part += 2 * kLanes) {
      const float* panel = panels + p * columns * kFilterPanel + part;
      V low[kRows], high[kRows];
      for (int r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
      for (int64_t c = 0; c < columns; ++c) {
        const V x = hn::Load(d, panel + c * kFilterPanel);
        const V y = hn::Load(d, panel + c * kFilterPanel + kLanes);
        for (int r = 0; r < kRows; ++r) {
          const V value = hn::Set(d, rows[r * columns + c]);
          low[r] = hn::MulAdd(value, x, low[r]);
          high[r] = hn::MulAdd(value, y, high[r]);
        }
      }
      const float* norm = norms + p * kFilterPanel + part;
      const V low_norm = hn::LoadU(d, norm), high_norm = hn::LoadU(d, norm + kLanes);
      for (int r = 0; r < kRows; ++r) {
        const V own = hn::Set(d, row_norms[r]);
        float* to = out + r * stride + p * kFilterPanel + part;
        hn::Store(hn::MulAdd(minus_two, low[r], hn::Add(own, low_norm)), d, to);
        hn::Store(hn::MulAdd(minus_two, high[r], hn::Add(own, high_norm)), d, to + kLanes);
      }
    }
  }
}

void Approximate(int64_t n_rows, const float* panels, int64_t columns, int64_t first, int64_t last,
                 const float* rows, const float* row_norms, const float* norms, float* out,
                 int64_t stride) {
  static_assert(kRowGroup == 6);
  if (n_rows == kRowGroup) {
    return ApproximateGroup<6>(panels, columns, first, last, rows, row_norms, norms, out, stride);
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    ApproximateGroup<1>(panels, columns, first, last, rows + r * columns, row_norms + r, norms,
                        out + r * stride, stride);
  }
}

void Roots(double* values, int64_t count) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    hn::StoreU(hn::Sqrt(hn::LoadU(d, values + j)), d, values + j);
  }
  for (; j < count; ++j) values[j] = std::sqrt(values[j]);
}

// Bounds that are compared with a vector while it is in a register.
template <int kBounds, typename T>
HWY_NOINLINE void CountGroup(const T* HWY_RESTRICT values, int64_t count,
                             const T* HWY_RESTRICT bounds, int64_t* HWY_RESTRICT counts) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> limits[kBounds];
  int64_t sums[kBounds] = {};
  for (int b = 0; b < kBounds; ++b) limits[b] = hn::Set(d, bounds[b]);
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    const auto x = hn::LoadU(d, values + j);
    for (int b = 0; b < kBounds; ++b) {
      sums[b] += static_cast<int64_t>(hn::CountTrue(d, hn::Le(x, limits[b])));
    }
  }
  for (; j < count; ++j) {
    for (int b = 0; b < kBounds; ++b) sums[b] += values[j] <= bounds[b];
  }
  for (int b = 0; b < kBounds; ++b) counts[b] += sums[b];
}

template <typename T>
void CountAll(const T* values, int64_t count, const T* bounds, int64_t n_bounds, int64_t* counts) {
  int64_t b = 0;
  for (; b + 10 <= n_bounds; b += 10) CountGroup<10>(values, count, bounds + b, counts + b);
  for (; b + 4 <= n_bounds; b += 4) CountGroup<4>(values, count, bounds + b, counts + b);
  for (; b < n_bounds; ++b) CountGroup<1>(values, count, bounds + b, counts + b);
}

void Count(const double* values, int64_t count, const double* bounds, int64_t n_bounds,
           int64_t* counts) {
  CountAll(values, count, bounds, n_bounds, counts);
}

void CountFloats(const float* values, int64_t count, const float* bounds, int64_t n_bounds,
                 int64_t* counts) {
  CountAll(values, count, bounds, n_bounds, counts);
}

// Values whose bits are looked at together.
constexpr int64_t kWord = 16;

// Bit l tells whether values[l] passes, for a word of values.
template <typename T, class Test>
HWY_INLINE uint64_t BitsOf(const T* values, const Test& test) {
  const hn::CappedTag<T, kWord> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  uint64_t bits = 0;
  for (int64_t l = 0; l < kWord; l += lanes) {
    uint8_t part[8] = {};
    hn::StoreMaskBits(d, test(hn::LoadU(d, values + l)), part);
    bits |= (uint64_t{part[0]} | uint64_t{part[1]} << 8) << l;
  }
  return bits;
}

// `test` tells which lanes pass, `passes` whether a value does.
template <typename T, class Test, class Passes>
HWY_INLINE int64_t FindAll(const T* values, int64_t begin, int64_t end, int64_t capacity,
                           int32_t* found, int64_t* n_found, const Test& test,
                           const Passes& passes) {
  const hn::CappedTag<T, kWord> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kGroup = 64;  // values looked at together: matches are rare
  int64_t n = *n_found, j = begin;
  for (; j + kGroup <= end && n < capacity; j += kGroup) {
    auto any = test(hn::LoadU(d, values + j));
    for (int64_t l = lanes; l < kGroup; l += lanes) {
      any = hn::Or(any, test(hn::LoadU(d, values + j + l)));
    }
    if (hn::AllFalse(d, any)) continue;
    for (int64_t l = j; l < j + kGroup; l += kWord) {
      uint64_t bits = BitsOf(values + l, test);
      for (; bits != 0; bits &= bits - 1) {
        found[n++] = static_cast<int32_t>(l + std::countr_zero(bits));
      }
    }
  }
  for (; j < end && n < capacity; ++j) {
    found[n] = static_cast<int32_t>(j);
    n += passes(values[j]);
  }
  *n_found = n;
  return j;
}

template <typename T>
int64_t FindAtMost(const T* values, int64_t begin, int64_t end, T bound, int64_t capacity,
                   int32_t* found, int64_t* n_found) {
  const auto limit = hn::Set(hn::CappedTag<T, kWord>(), bound);
  return FindAll(
      values, begin, end, capacity, found, n_found, [&](auto x) { return hn::Le(x, limit); },
      [&](T x) { return x <= bound; });
}

int64_t FindValues(const double* values, int64_t begin, int64_t end, double bound, int64_t capacity,
                   int32_t* found, int64_t* n_found) {
  return FindAtMost(values, begin, end, bound, capacity, found, n_found);
}

int64_t FindFloats(const float* values, int64_t begin, int64_t end, float bound, int64_t capacity,
                   int32_t* found, int64_t* n_found) {
  return FindAtMost(values, begin, end, bound, capacity, found, n_found);
}

int64_t FindInside(const float* values, int64_t begin, int64_t end, float above, float bound,
                   int64_t capacity, int32_t* found, int64_t* n_found) {
  const hn::CappedTag<float, kWord> d;
  const auto low = hn::Set(d, above), high = hn::Set(d, bound);
  return FindAll(
      values, begin, end, capacity, found, n_found,
      [&](auto x) { return hn::And(hn::Gt(x, low), hn::Le(x, high)); },
      [&](float x) { return x > above && x <= bound; });
}

// Values of a vector of minima; parts come in multiples of it.
template <typename T>
constexpr int64_t kMinimaLanes = 64 / static_cast<int64_t>(sizeof(T));

// kVectors such vectors in registers.
template <int kVectors, typename T>
HWY_INLINE int64_t MinimaOfPanels(const T* values, int64_t count, int64_t stride, T* minima) {
  const hn::CappedTag<T, kMinimaUnit<T>> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<T, kMinimaUnit<T>>()));
  constexpr int64_t kWidth = kVectors * kMinimaUnit<T>;
  constexpr int64_t kAll = kWidth / kLanes;
  hn::Vec<decltype(d)> least[kAll];
  for (auto& vector : least) vector = hn::Set(d, std::numeric_limits<T>::infinity());
  int64_t j = 0;
  for (; j + kWidth <= count; j += stride) {
    for (int64_t v = 0; v < kAll; ++v) {
      least[v] = hn::Min(least[v], hn::LoadU(d, values + j + v * kLanes));
    }
  }
  for (int64_t v = 0; v < kAll; ++v) hn::StoreU(least[v], d, minima + v * kLanes);
  return j;
}

template <typename T>
void AllMinima(const T* values, int64_t count, int64_t n_parts, T* minima) {
  constexpr int kVectors = 2;
  constexpr int64_t kTwo = kVectors * kMinimaUnit<T>;
  for (int64_t part = 0; part < n_parts; part += kTwo) {
    const bool two = part + kTwo <= n_parts;
    int64_t j = two ? MinimaOfPanels<kVectors>(values + part, count - part, n_parts, minima + part)
                    : MinimaOfPanels<1>(values + part, count - part, n_parts, minima + part);
    const int64_t width = two ? kTwo : kMinimaUnit<T>;
    for (j += part; j < count; j += n_parts) {
      for (int64_t l = 0; l < width && j + l < count; ++l) {
        minima[part + l] = std::min(minima[part + l], values[j + l]);
      }
    }
  }
}

void Minima(const double* values, int64_t count, int64_t n_parts, double* minima) {
  AllMinima(values, count, n_parts, minima);
}

void MinimaFloats(const float* values, int64_t count, int64_t n_parts, float* minima) {
  AllMinima(values, count, n_parts, minima);
}

double Largest(const double* values, int64_t count) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto best = hn::Zero(d);
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) best = hn::Max(best, hn::LoadU(d, values + j));
  double result = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; j < count; ++j) result = std::max(result, values[j]);
  return result;
}

// exp(x) for x <= 0: x = m ln 2 + r with |r| <= ln 2 / 2, a Taylor polynomial for exp(r), and the
// power of two put into the exponent. Results below the normal range become zero.
template <class D, class V>
HWY_INLINE V ExpNegative(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto smallest = hn::Set(d, -708.0);
  const auto round = hn::Set(d, 0x1.8p+52);  // adding it rounds to an integer in the low bits
  const auto clamped = hn::Max(x, smallest);
  const auto shifted = hn::MulAdd(clamped, hn::Set(d, 0x1.71547652b82fep+0), round);
  const auto m = hn::Sub(shifted, round);
  auto r = hn::NegMulAdd(m, hn::Set(d, 0x1.62e42fefa0000p-1), clamped);
  r = hn::NegMulAdd(m, hn::Set(d, 0x1.cf79abc9e3b3ap-40), r);
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
  auto p = hn::Set(d, 1.0 / 6227020800.0);
  for (const double coefficient : kCoefficients) p = hn::MulAdd(p, r, hn::Set(d, coefficient));
  const auto power = hn::ShiftLeft<52>(
      hn::Add(hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, round)), hn::Set(di, 1023)));
  return hn::IfThenElseZero(hn::Gt(x, smallest), hn::Mul(p, hn::BitCast(d, power)));
}

// Eight partial sums, whatever the vectors: two vectors of four, four of two, ...
double Gaussian(const double* squares, int64_t count, double factor) {
  const PanelTag<double> d;
  constexpr int kVectors = kParts<double>;
  constexpr int64_t kLanes = kPanel / kVectors;
  const auto scale = hn::Set(d, factor);
  hn::Vec<PanelTag<double>> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t j = 0;
  for (; j + kPanel <= count; j += kPanel) {
    for (int v = 0; v < kVectors; ++v) {
      const auto x = hn::Mul(scale, hn::LoadU(d, squares + j + v * kLanes));
      sums[v] = hn::Add(sums[v], ExpNegative(d, x));
    }
  }
  HWY_ALIGN double lanes[kPanel];
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, lanes + v * kLanes);
  if (j < count) {
    HWY_ALIGN double rest[kPanel];
    for (int64_t l = 0; l < kPanel; ++l) rest[l] = j + l < count ? squares[j + l] : HUGE_VAL;
    for (int v = 0; v < kVectors; ++v) {
      const auto x = hn::Mul(scale, hn::Load(d, rest + v * kLanes));
      hn::Store(ExpNegative(d, x), d, rest + v * kLanes);
    }
    for (int64_t l = 0; j + l < count; ++l) lanes[l] += rest[l];
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

void GaussianRows(const double* squares, int64_t rows, int64_t columns, int64_t stride,
                  double factor, double* row_sums, double* column_sums) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, factor);
  for (int64_t i = 0; i < rows; ++i) {
    const double* row = squares + i * stride;
    auto sum = hn::Zero(d);
    int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) {
      const auto value = ExpNegative(d, hn::Mul(scale, hn::LoadU(d, row + j)));
      sum = hn::Add(sum, value);
      if (column_sums == nullptr) continue;
      hn::StoreU(hn::Add(hn::LoadU(d, column_sums + j), value), d, column_sums + j);
    }
    if (j < columns) {
      const auto inside = hn::FirstN(d, static_cast<size_t>(columns - j));
      const auto x = hn::Mul(scale, hn::MaskedLoad(inside, d, row + j));
      const auto value = hn::IfThenElseZero(inside, ExpNegative(d, x));
      sum = hn::Add(sum, value);
      if (column_sums != nullptr) {
        HWY_ALIGN double rest[HWY_MAX_BYTES / sizeof(double)];
        hn::Store(value, d, rest);
        for (int64_t l = 0; j + l < columns; ++l) column_sums[j + l] += rest[l];
      }
    }
    row_sums[i] += hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(SquaredDouble);
HWY_EXPORT(SquaredFloat);
HWY_EXPORT(Approximate);
HWY_EXPORT(Roots);
HWY_EXPORT(Count);
HWY_EXPORT(CountFloats);
HWY_EXPORT(FindValues);
HWY_EXPORT(FindFloats);
HWY_EXPORT(FindInside);
HWY_EXPORT(Largest);
HWY_EXPORT(Minima);
HWY_EXPORT(MinimaFloats);
HWY_EXPORT(Gaussian);
HWY_EXPORT(GaussianRows);

void SquaredRows(int64_t n_rows, const double* panels, int64_t columns, int64_t first, int64_t last,
                 const double* rows, bool roots, double* out, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(SquaredDouble)
  (n_rows, panels, columns, first, last, rows, roots, out, stride);
}

void SquaredRows(int64_t n_rows, const float* panels, int64_t columns, int64_t first, int64_t last,
                 const float* rows, bool roots, double* out, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(SquaredFloat)
  (n_rows, panels, columns, first, last, rows, roots, out, stride);
}

void ApproximateRows(int64_t n_rows, const float* panels, int64_t columns, int64_t first,
                     int64_t last, const float* rows, const float* row_norms, const float* norms,
                     float* out, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(Approximate)
  (n_rows, panels, columns, first, last, rows, row_norms, norms, out, stride);
}

void SquareRoots(double* values, int64_t count) { HWY_DYNAMIC_DISPATCH(Roots)(values, count); }

void CountNotAbove(const double* values, int64_t count, const double* bounds, int64_t n_bounds,
                   int64_t* counts) {
  HWY_DYNAMIC_DISPATCH(Count)(values, count, bounds, n_bounds, counts);
}

void CountNotAbove(const float* values, int64_t count, const float* bounds, int64_t n_bounds,
                   int64_t* counts) {
  HWY_DYNAMIC_DISPATCH(CountFloats)(values, count, bounds, n_bounds, counts);
}

int64_t FindNotAbove(const double* values, int64_t begin, int64_t end, double bound,
                     int64_t capacity, int32_t* found, int64_t* n_found) {
  return HWY_DYNAMIC_DISPATCH(FindValues)(values, begin, end, bound, capacity, found, n_found);
}

int64_t FindNotAbove(const float* values, int64_t begin, int64_t end, float bound, int64_t capacity,
                     int32_t* found, int64_t* n_found) {
  return HWY_DYNAMIC_DISPATCH(FindFloats)(values, begin, end, bound, capacity, found, n_found);
}

int64_t FindBetween(const float* values, int64_t begin, int64_t end, float above, float bound,
                    int64_t capacity, int32_t* found, int64_t* n_found) {
  return HWY_DYNAMIC_DISPATCH(FindInside)(values, begin, end, above, bound, capacity, found,
                                          n_found);
}

void PartMinima(const float* values, int64_t count, int64_t n_parts, float* minima) {
  HWY_DYNAMIC_DISPATCH(MinimaFloats)(values, count, n_parts, minima);
}

void PartMinima(const double* values, int64_t count, int64_t n_parts, double* minima) {
  HWY_DYNAMIC_DISPATCH(Minima)(values, count, n_parts, minima);
}

double Maximum(const double* values, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Largest)(values, count);
}

double GaussianSum(const double* squares, int64_t count, double factor) {
  return HWY_DYNAMIC_DISPATCH(Gaussian)(squares, count, factor);
}

void GaussianTile(const double* squares, int64_t rows, int64_t columns, int64_t stride,
                  double factor, double* row_sums, double* column_sums) {
  HWY_DYNAMIC_DISPATCH(GaussianRows)
  (squares, rows, columns, stride, factor, row_sums, column_sums);
}

}  // namespace tenon::cpu
#endif  // HWY_ONCE
