// Numbers for tests that call kernels directly: random elements, NaN, and an oracle in double.

#ifndef TENON_TESTS_BACKENDS_CPU_KERNEL_NUMBERS_H_
#define TENON_TESTS_BACKENDS_CPU_KERNEL_NUMBERS_H_

#include <complex>
#include <cstring>
#include <limits>
#include <random>

#include "backends/cpu/scalar.h"

namespace tenon::testing {

template <typename T>
struct RealOf {
  using type = T;
};
template <typename R>
struct RealOf<cpu::Complex<R>> {
  using type = R;
};
template <typename T>
inline constexpr double kEpsilonOf = std::numeric_limits<typename RealOf<T>::type>::epsilon();

inline std::complex<double> Exact(double x) { return x; }
template <typename R>
std::complex<double> Exact(cpu::Complex<R> x) {
  return {x.re, x.im};
}

// In [-1, 1), parts alike.
template <typename T>
T RandomNumber(std::mt19937_64& random) {
  std::uniform_real_distribution<float> number(-1, 1);
  if constexpr (cpu::IsComplexScalar<T>::value) {
    using Real = typename RealOf<T>::type;
    const Real re = number(random);
    return {re, static_cast<Real>(number(random))};
  } else {
    return number(random);
  }
}

template <typename T>
T NotANumber() {
  constexpr auto kNaN = std::numeric_limits<typename RealOf<T>::type>::quiet_NaN();
  if constexpr (cpu::IsComplexScalar<T>::value) {
    return {kNaN, kNaN};
  } else {
    return kNaN;
  }
}

template <typename T>
bool SameBits(const T& x, const T& y) {
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}

// A sum of products with the sum of their absolute values, which bounds the roundings.
struct ExactSum {
  std::complex<double> value = 0;
  double magnitude = 0;
  int64_t terms = 0;

  void Add(std::complex<double> x) {
    value += x;
    magnitude += std::abs(x);
    ++terms;
  }
  // Complex products round up to four times as often.
  template <typename T>
  bool IsNear(T x) const {
    const double tolerance = 4 * static_cast<double>(terms + 1) * kEpsilonOf<T> * magnitude;
    return std::abs(Exact(x) - value) <= tolerance;
  }
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CPU_KERNEL_NUMBERS_H_
