#include "backends/core/binary_scale.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "backends/core/clones.h"

namespace tenon {
namespace {

// Inlined into each clone, and so compiled for its instruction set.
#define TENON_INLINE inline __attribute__((always_inline))

// The layout of a real type, whose magnitudes are ordered as their bits: non-negative integers,
// signed because those compare faster.
template <typename R>
struct Format {
  using Bits = std::conditional_t<sizeof(R) == 4, int32_t, int64_t>;
  static constexpr int kMantissaBits = std::numeric_limits<R>::digits - 1;
  static constexpr int kMaxExponent = std::numeric_limits<R>::max_exponent - 1;  // of 2^e
  static constexpr int kMinExponent = std::numeric_limits<R>::min_exponent - 1;  // normal
  static constexpr Bits kInfinity = Bits{2 * kMaxExponent + 1} << kMantissaBits;
  static constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
};

// The bits of a finite magnitude, 0 for others.
template <typename R>
TENON_INLINE typename Format<R>::Bits FiniteBits(R x) {
  const auto bits = std::bit_cast<typename Format<R>::Bits>(x) & Format<R>::kMagnitude;
  return bits < Format<R>::kInfinity ? bits : 0;
}

template <typename R>
int64_t ExponentOfBits(typename Format<R>::Bits bits) {
  if (bits == 0) return kNoExponent;
  const auto field = static_cast<int64_t>(bits >> Format<R>::kMantissaBits);
  const int width = std::bit_width(static_cast<uint64_t>(bits));
  const int64_t top = field != 0 ? field : width - Format<R>::kMantissaBits;
  return top - Format<R>::kMaxExponent + 1;
}

// 2^shift as a product, because it may lie outside the type's range. The smaller factor comes
// first, so that what ends up subnormal is rounded once.
template <typename R>
struct Factors {
  explicit Factors(int64_t shift) {
    constexpr int64_t kMin = Format<R>::kMinExponent, kMax = Format<R>::kMaxExponent;
    shift = std::clamp(shift, 2 * kMin, 2 * kMax);
    const int64_t part = std::clamp(shift, kMin, kMax);
    first = std::ldexp(R{1}, static_cast<int>(shift - part));
    second = std::ldexp(R{1}, static_cast<int>(part));
  }
  R first, second;
};

template <typename R>
TENON_INLINE typename Format<R>::Bits LargestOf(const R* data, int64_t count) {
  typename Format<R>::Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, FiniteBits(data[i]));
  return largest;
}

template <typename R>
TENON_INLINE typename Format<R>::Bits AddAll(R* left, Factors<R> l, const R* right, Factors<R> r,
                                             int64_t count) {
  typename Format<R>::Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    left[i] = left[i] * l.first * l.second + right[i] * r.first * r.second;
    largest = std::max(largest, FiniteBits(left[i]));
  }
  return largest;
}

#define TENON_DEFINE_SCANS(R)                                                                    \
  TENON_CLONES typename Format<R>::Bits Largest(const R* data, int64_t count) {                  \
    return LargestOf(data, count);                                                               \
  }                                                                                              \
  TENON_CLONES typename Format<R>::Bits Add(R* left, Factors<R> l, const R* right, Factors<R> r, \
                                            int64_t count) {                                     \
    return AddAll(left, l, right, r, count);                                                     \
  }                                                                                              \
  TENON_CLONES void Scale(const R* source, R* target, int64_t count, Factors<R> factors) {       \
    for (int64_t i = 0; i < count; ++i) target[i] = source[i] * factors.first * factors.second;  \
  }
TENON_DEFINE_SCANS(float)
TENON_DEFINE_SCANS(double)
#undef TENON_DEFINE_SCANS

bool IsSingle(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kComplex64; }

// Calls `f(R())` with the type of the elements' parts.
template <typename F>
decltype(auto) DispatchReal(DType dtype, F&& f) {
  return IsSingle(dtype) ? std::forward<F>(f)(float()) : std::forward<F>(f)(double());
}

int64_t Parts(DType dtype) { return IsComplex(dtype) ? 2 : 1; }

void RaiseTo(std::atomic<int64_t>& largest, int64_t value) {
  int64_t seen = largest.load(std::memory_order_relaxed);
  while (seen < value && !largest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

int64_t LargestExponent(DType dtype, const void* data, int64_t count, RangeLoop loop) {
  std::atomic<int64_t> largest = kNoExponent;
  DispatchReal(dtype, [&](auto real) {
    using R = decltype(real);
    const int64_t parts = Parts(dtype);
    const R* values = static_cast<const R*>(data);
    loop(count, [&](int64_t begin, int64_t end) {
      RaiseTo(largest, ExponentOfBits<R>(Largest(values + begin * parts, (end - begin) * parts)));
    });
  });
  return largest;
}

void ScaleByPowerOfTwo(DType dtype, const void* source, void* target, int64_t count, int64_t shift,
                       RangeLoop loop) {
  DispatchReal(dtype, [&](auto real) {
    using R = decltype(real);
    const int64_t parts = Parts(dtype);
    const Factors<R> factors(shift);
    loop(count, [&](int64_t begin, int64_t end) {
      Scale(static_cast<const R*>(source) + begin * parts, static_cast<R*>(target) + begin * parts,
            (end - begin) * parts, factors);
    });
  });
}

namespace {

// Scales an array whose largest exponent is known.
int64_t RescaleFrom(int64_t largest, DType dtype, void* data, int64_t exponent, int64_t count,
                    RangeLoop loop) {
  if (largest == kNoExponent) return kNoExponent;
  const int64_t shift = ComfortShift(dtype, largest);
  if (shift != 0) ScaleByPowerOfTwo(dtype, data, data, count, shift, loop);
  return exponent - shift;
}

}  // namespace

bool HasNonZero(DType dtype, const void* data, int64_t count) {
  return DispatchReal(dtype, [&](auto real) {
    const auto* parts = static_cast<const decltype(real)*>(data);
    return std::any_of(parts, parts + count * Parts(dtype), [](auto x) { return !(x == 0); });
  });
}

void ScaleStrided(DType dtype, void* data, int64_t count, int64_t stride, int64_t shift) {
  if (stride == 1) return ScaleByPowerOfTwo(dtype, data, data, count, shift);
  DispatchReal(dtype, [&](auto real) {
    using R = decltype(real);
    const Factors<R> factors(shift);
    const int64_t parts = Parts(dtype);
    R* element = static_cast<R*>(data);
    for (int64_t i = 0; i < count; ++i, element += stride * parts) {
      for (int64_t p = 0; p < parts; ++p) {
        element[p] = element[p] * factors.first * factors.second;
      }
    }
  });
}

int64_t ComfortShift(DType dtype, int64_t largest) {
  if (largest == kNoExponent) return 0;
  const int64_t quarter = DispatchReal(
      dtype, [](auto real) { return int64_t{Format<decltype(real)>::kMaxExponent} / 4 + 1; });
  return largest >= -quarter && largest <= quarter ? 0 : -largest;
}

int64_t Rescale(DType dtype, void* data, int64_t exponent, int64_t count, RangeLoop loop) {
  return RescaleFrom(LargestExponent(dtype, data, count, loop), dtype, data, exponent, count, loop);
}

int64_t ScaleToUnit(DType dtype, void* data, int64_t exponent, int64_t count) {
  const int64_t largest = LargestExponent(dtype, data, count);
  if (largest == kNoExponent) return kNoExponent;
  if (largest != 0) ScaleByPowerOfTwo(dtype, data, data, count, -largest);
  return exponent + largest;
}

int64_t AddScaled(DType dtype, void* left, int64_t left_exponent, const void* right,
                  int64_t right_exponent, int64_t count, RangeLoop loop) {
  const int64_t exponent = std::max(left_exponent, right_exponent);
  const bool both = left_exponent != kNoExponent && right_exponent != kNoExponent;
  std::atomic<int64_t> largest = kNoExponent;
  DispatchReal(dtype, [&](auto real) {
    using R = decltype(real);
    const int64_t parts = Parts(dtype);
    const Factors<R> left_factors(both ? left_exponent - exponent : 0);
    const Factors<R> right_factors(both ? right_exponent - exponent : 0);
    loop(count, [&](int64_t begin, int64_t end) {
      R* sums = static_cast<R*>(left) + begin * parts;
      const R* terms = static_cast<const R*>(right) + begin * parts;
      RaiseTo(largest, ExponentOfBits<R>(
                           Add(sums, left_factors, terms, right_factors, (end - begin) * parts)));
    });
  });
  return RescaleFrom(largest, dtype, left, exponent, count, loop);
}

int64_t SumOfExponents(int64_t a, int64_t b) {
  return (a == kNoExponent ? 0 : a) + (b == kNoExponent ? 0 : b);
}

double Log10OfPowerOfTwo(int64_t exponent) {
  constexpr long double kLog10Of2 = 0.30102999566398119521373889472449302677L;
  if (exponent == kNoExponent) return -std::numeric_limits<double>::infinity();
  return static_cast<double>(static_cast<long double>(exponent) * kLog10Of2);
}

}  // namespace tenon
