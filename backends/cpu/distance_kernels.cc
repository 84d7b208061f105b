#include "backends/cpu/distance_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

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

#if HWY_TARGET == HWY_SCALAR || HWY_MAX_BYTES == 16

void Turn(const double* in, int64_t rows, int64_t columns, int64_t stride, double* out) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) out[j * stride + i] = in[i * stride + j];
  }
}

#else

// Exchanges the odd blocks (of two lanes) of a with the even ones of b.
template <class V>
HWY_INLINE void TurnBlocks(V& a, V& b) {
  const V even = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
  b = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
  a = even;
}

// Columns 0, 2, 4, 6 of eight rows from their lanes in pairs (columns 1, 3, 5, 7 from the others),
// or columns 0 and 2 of four rows.
template <class D, class V>
HWY_INLINE void StoreColumns(D d, V* pairs, double* out, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    TurnBlocks(pairs[0], pairs[1]);
    TurnBlocks(pairs[2], pairs[3]);
    hn::StoreU(hn::ConcatLowerLower(d, pairs[2], pairs[0]), d, out);
    hn::StoreU(hn::ConcatLowerLower(d, pairs[3], pairs[1]), d, out + 2 * stride);
    hn::StoreU(hn::ConcatUpperUpper(d, pairs[2], pairs[0]), d, out + 4 * stride);
    hn::StoreU(hn::ConcatUpperUpper(d, pairs[3], pairs[1]), d, out + 6 * stride);
  } else {
    hn::StoreU(hn::ConcatLowerLower(d, pairs[1], pairs[0]), d, out);
    hn::StoreU(hn::ConcatUpperUpper(d, pairs[1], pairs[0]), d, out + 2 * stride);
  }
}

void Turn(const double* in, int64_t rows, int64_t columns, int64_t stride, double* out) {
  const PanelTag<double> d;
  constexpr int64_t kLanes = kPanel / kParts<double>;
  using V = hn::Vec<PanelTag<double>>;
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t j = 0; j < columns; j += kLanes) {
      V even[kLanes / 2], odd[kLanes / 2];
      for (int64_t p = 0; p < kLanes / 2; ++p) {
        const V a = hn::LoadU(d, in + (i + 2 * p) * stride + j);
        const V b = hn::LoadU(d, in + (i + 2 * p + 1) * stride + j);
        even[p] = hn::InterleaveLower(d, a, b);
        odd[p] = hn::InterleaveUpper(d, a, b);
      }
      StoreColumns(d, even, out + j * stride + i, stride);
      StoreColumns(d, odd, out + (j + 1) * stride + i, stride);
    }
  }
}

#endif

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
template <int kBounds>
HWY_NOINLINE void CountGroup(const double* HWY_RESTRICT values, int64_t count,
                             const double* HWY_RESTRICT bounds, int64_t* HWY_RESTRICT counts) {
  const hn::ScalableTag<double> d;
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

void Count(const double* values, int64_t count, const double* bounds, int64_t n_bounds,
           int64_t* counts) {
  int64_t b = 0;
  for (; b + 10 <= n_bounds; b += 10) CountGroup<10>(values, count, bounds + b, counts + b);
  for (; b + 4 <= n_bounds; b += 4) CountGroup<4>(values, count, bounds + b, counts + b);
  for (; b < n_bounds; ++b) CountGroup<1>(values, count, bounds + b, counts + b);
}

// Bit l tells whether values[l] is at most the limit, for a panel of values.
template <class V>
HWY_INLINE uint64_t BitsNotAbove(const double* values, V limit) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  uint64_t bits = 0;
  for (int64_t l = 0; l < kPanel; l += lanes) {
    uint8_t part[8] = {};
    hn::StoreMaskBits(d, hn::Le(hn::LoadU(d, values + l), limit), part);
    bits |= uint64_t{part[0]} << l;
  }
  return bits;
}

int64_t FindValues(const double* values, int64_t begin, int64_t end, double bound, int64_t capacity,
                   int32_t* found, int64_t* n_found) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, bound);
  constexpr int64_t kGroup = 64;  // values looked at together: matches are rare
  int64_t n = *n_found, j = begin;
  for (; j + kGroup <= end && n < capacity; j += kGroup) {
    auto any = hn::Le(hn::LoadU(d, values + j), limit);
    for (int64_t l = lanes; l < kGroup; l += lanes) {
      any = hn::Or(any, hn::Le(hn::LoadU(d, values + j + l), limit));
    }
    if (hn::AllFalse(d, any)) continue;
    for (int64_t l = j; l < j + kGroup; l += kPanel) {
      uint64_t bits = BitsNotAbove(values + l, limit);
      for (; bits != 0; bits &= bits - 1) {
        found[n++] = static_cast<int32_t>(l + std::countr_zero(bits));
      }
    }
  }
  for (; j < end && n < capacity; ++j) {
    found[n] = static_cast<int32_t>(j);
    n += values[j] <= bound;
  }
  *n_found = n;
  return j;
}

// kVectors panels of minima in registers.
template <int kVectors>
HWY_INLINE int64_t MinimaOfPanels(const double* values, int64_t count, int64_t stride,
                                  double* minima) {
  const PanelTag<double> d;
  constexpr int64_t kLanes = kPanel / kParts<double>;
  constexpr int kAll = kVectors * kParts<double>;
  hn::Vec<PanelTag<double>> least[kAll];
  for (auto& vector : least) vector = hn::Set(d, HUGE_VAL);
  int64_t j = 0;
  for (; j + kVectors * kPanel <= count; j += stride) {
    for (int v = 0; v < kAll; ++v) {
      least[v] = hn::Min(least[v], hn::LoadU(d, values + j + v * kLanes));
    }
  }
  for (int v = 0; v < kAll; ++v) hn::StoreU(least[v], d, minima + v * kLanes);
  return j;
}

void Minima(const double* values, int64_t count, int64_t n_parts, double* minima) {
  constexpr int kVectors = 2;
  int64_t part = 0;
  for (; part < n_parts; part += kVectors * kPanel) {
    const bool two = part + kVectors * kPanel <= n_parts;
    int64_t j = two ? MinimaOfPanels<kVectors>(values + part, count - part, n_parts, minima + part)
                    : MinimaOfPanels<1>(values + part, count - part, n_parts, minima + part);
    const int64_t width = two ? kVectors * kPanel : kPanel;
    for (j += part; j < count; j += n_parts) {
      for (int64_t l = 0; l < width && j + l < count; ++l) {
        minima[part + l] = std::min(minima[part + l], values[j + l]);
      }
    }
  }
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
HWY_EXPORT(Turn);
HWY_EXPORT(Roots);
HWY_EXPORT(Count);
HWY_EXPORT(FindValues);
HWY_EXPORT(Largest);
HWY_EXPORT(Minima);
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

void Transpose(const double* in, int64_t rows, int64_t columns, int64_t stride, double* out) {
  HWY_DYNAMIC_DISPATCH(Turn)(in, rows, columns, stride, out);
}

void SquareRoots(double* values, int64_t count) { HWY_DYNAMIC_DISPATCH(Roots)(values, count); }

void CountNotAbove(const double* values, int64_t count, const double* bounds, int64_t n_bounds,
                   int64_t* counts) {
  HWY_DYNAMIC_DISPATCH(Count)(values, count, bounds, n_bounds, counts);
}

int64_t FindNotAbove(const double* values, int64_t begin, int64_t end, double bound,
                     int64_t capacity, int32_t* found, int64_t* n_found) {
  return HWY_DYNAMIC_DISPATCH(FindValues)(values, begin, end, bound, capacity, found, n_found);
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
