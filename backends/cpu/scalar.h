// Scalars of contraction kernels, and the dispatch from a dtype number to a C++ type.

#ifndef TENON_BACKENDS_CPU_SCALAR_H_
#define TENON_BACKENDS_CPU_SCALAR_H_

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "backends/plugin/abi.h"

namespace tenon::cpu {

// A complex number with the textbook product. std::complex handles infinities of a product as
// Annex G asks, which costs a branch per product and is not what BLAS does.
template <typename R>
struct Complex {
  R re = 0;
  R im = 0;
};

template <typename R>
inline Complex<R> operator+(Complex<R> x, Complex<R> y) {
  return {x.re + y.re, x.im + y.im};
}
template <typename R>
inline Complex<R> operator*(Complex<R> x, Complex<R> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

// sum += x * y, each product of reals fused with its addition.
template <typename R>
inline void FusedAdd(R x, R y, R& sum) {
  sum = std::fma(x, y, sum);
}
template <typename R>
inline void FusedAdd(Complex<R> x, Complex<R> y, Complex<R>& sum) {
  sum.re = std::fma(-x.im, y.im, std::fma(x.re, y.re, sum.re));
  sum.im = std::fma(x.im, y.re, std::fma(x.re, y.im, sum.im));
}

template <typename T>
struct IsComplexScalar : std::false_type {};
template <typename R>
struct IsComplexScalar<Complex<R>> : std::true_type {};

// The real numbers that an element is made of, side by side.
template <typename T>
struct Parts {
  using Real = T;
  static constexpr int kCount = 1;
};
template <typename R>
struct Parts<Complex<R>> {
  using Real = R;
  static constexpr int kCount = 2;
};

// The same kind of number in double precision.
template <typename T>
struct DoubleOf {
  using type = double;
};
template <typename R>
struct DoubleOf<Complex<R>> {
  using type = Complex<double>;
};

// Conversion between precisions of one kind of number.
template <typename To, typename From>
inline To ScalarCast(From x) {
  if constexpr (IsComplexScalar<To>::value) {
    using R = decltype(To::re);
    return {static_cast<R>(x.re), static_cast<R>(x.im)};
  } else {
    return static_cast<To>(x);
  }
}

// Calls `f(std::type_identity<T>())` with the scalar type of a contraction dtype.
template <typename F>
decltype(auto) DispatchDType(int32_t dtype, F&& f) {
  switch (dtype) {
    case TENON_DTYPE_FLOAT32:
      return std::forward<F>(f)(std::type_identity<float>());
    case TENON_DTYPE_FLOAT64:
      return std::forward<F>(f)(std::type_identity<double>());
    case TENON_DTYPE_COMPLEX64:
      return std::forward<F>(f)(std::type_identity<Complex<float>>());
    default:
      return std::forward<F>(f)(std::type_identity<Complex<double>>());
  }
}

// Calls `f(type_identity<T>, type_identity<Acc>)`: Acc is T, or its double form where a single
// precision step has to sum in double.
template <typename F>
decltype(auto) DispatchAccumulator(int32_t dtype, bool accumulate_double, F&& f) {
  return DispatchDType(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using D = typename DoubleOf<T>::type;
    if (accumulate_double) return f(type, std::type_identity<D>());
    return f(type, type);
  });
}

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_SCALAR_H_
