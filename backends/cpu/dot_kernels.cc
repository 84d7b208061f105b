#include "backends/cpu/dot_kernels.h"

#include "backends/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/dot_kernels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

template <typename T>
void Dots(int rows, int64_t count, const T* x, int64_t x_row, const T* y, T* sums) {
  for (int r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < count; ++i) FusedAdd(x[r * x_row + i], y[i], sums[r]);
  }
}

#else

// The sum over the lanes of a vector of products: for complex numbers of the real-by-all and the
// imaginary-by-all products.
template <typename T, class D, class V>
HWY_INLINE T SumOfLanes(D d, const V* part) {
  using Real = typename Parts<T>::Real;
  if constexpr (Parts<T>::kCount == 1) {
    return hn::GetLane(hn::SumOfLanes(d, part[0]));
  } else {
    const V crossed = hn::Reverse2(d, part[1]);
    const V value = hn::Add(part[0], hn::OddEven(crossed, hn::Neg(crossed)));
    HWY_ALIGN Real lanes[hn::MaxLanes(D())];
    hn::Store(value, d, lanes);
    T sum{};
    for (size_t i = 0; i < hn::Lanes(d); i += 2) sum = sum + T{lanes[i], lanes[i + 1]};
    return sum;
  }
}

// Vectors of partial sums per row: with few rows more of them hide the latency of multiply-adds.
template <typename T, int kRows, int kAhead>
HWY_NOINLINE void DotBlock(int64_t count, const T* HWY_RESTRICT x, int64_t x_row,
                           const T* HWY_RESTRICT y, T* HWY_RESTRICT sums) {
  using Real = typename Parts<T>::Real;
  constexpr int kParts = Parts<T>::kCount;
  const hn::ScalableTag<Real> d;
  using V = hn::Vec<decltype(d)>;
  const auto step = static_cast<int64_t>(hn::Lanes(d)) / kParts;
  V part[kRows][kAhead][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int a = 0; a < kAhead; ++a) {
      for (int p = 0; p < kParts; ++p) part[r][a][p] = hn::Zero(d);
    }
  }
  const auto add = [&](int row, int ahead, V from_x, V from_y) HWY_ATTR {
    V* to = part[row][ahead];
    if constexpr (kParts == 1) {
      to[0] = hn::MulAdd(from_x, from_y, to[0]);
    } else {
      to[0] = hn::MulAdd(hn::DupEven(from_x), from_y, to[0]);
      to[kParts - 1] = hn::MulAdd(hn::DupOdd(from_x), from_y, to[kParts - 1]);
    }
  };
  int64_t i = 0;
  for (; i + kAhead * step <= count; i += kAhead * step) {
    for (int a = 0; a < kAhead; ++a) {
      const V from_y = hn::LoadU(d, reinterpret_cast<const Real*>(y + i + a * step));
      for (int r = 0; r < kRows; ++r) {
        add(r, a, hn::LoadU(d, reinterpret_cast<const Real*>(x + r * x_row + i + a * step)),
            from_y);
      }
    }
  }
  for (; i < count; i += step) {
    const int64_t left = count - i < step ? count - i : step;
    const auto mask = hn::FirstN(d, static_cast<size_t>(left * kParts));
    const V from_y = hn::MaskedLoad(mask, d, reinterpret_cast<const Real*>(y + i));
    for (int r = 0; r < kRows; ++r) {
      add(r, 0, hn::MaskedLoad(mask, d, reinterpret_cast<const Real*>(x + r * x_row + i)), from_y);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int a = 1; a < kAhead; ++a) {
      for (int p = 0; p < kParts; ++p) part[r][0][p] = hn::Add(part[r][0][p], part[r][a][p]);
    }
    sums[r] = sums[r] + SumOfLanes<T>(d, part[r][0]);
  }
}

template <typename T>
void Dots(int rows, int64_t count, const T* x, int64_t x_row, const T* y, T* sums) {
  switch (rows) {
    case 1:
      return DotBlock<T, 1, 8 / Parts<T>::kCount>(count, x, x_row, y, sums);
    case 4:
      return DotBlock<T, 4, 2>(count, x, x_row, y, sums);
    default:
      for (int r = 0; r < rows; ++r) {
        DotBlock<T, 1, 8 / Parts<T>::kCount>(count, x + r * x_row, 0, y, sums + r);
      }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

#define TENON_DOT_ENTRY(T, Name)                                                             \
  void Dots##Name(int rows, int64_t count, const T* x, int64_t x_row, const T* y, T* sums) { \
    Dots<T>(rows, count, x, x_row, y, sums);                                                 \
  }
TENON_DOT_ENTRY(float, Float)
TENON_DOT_ENTRY(double, Double)
TENON_DOT_ENTRY(Complex<float>, ComplexFloat)
TENON_DOT_ENTRY(Complex<double>, ComplexDouble)
#undef TENON_DOT_ENTRY

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

#define TENON_EXPORT_DOT(T, Name)                                                         \
  HWY_EXPORT(Dots##Name);                                                                 \
  template <>                                                                             \
  void AddDots(int rows, int64_t count, const T* x, int64_t x_row, const T* y, T* sums) { \
    HWY_DYNAMIC_DISPATCH(Dots##Name)(rows, count, x, x_row, y, sums);                     \
  }
TENON_EXPORT_DOT(float, Float)
TENON_EXPORT_DOT(double, Double)
TENON_EXPORT_DOT(Complex<float>, ComplexFloat)
TENON_EXPORT_DOT(Complex<double>, ComplexDouble)
#undef TENON_EXPORT_DOT

}  // namespace tenon::cpu
#endif  // HWY_ONCE
