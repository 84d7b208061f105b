#include "backends/core/binary_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

namespace tenon {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename R>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DType kReal = DType::kFloat32, kComplex = DType::kComplex64;
};
template <>
struct TypeOf<double> {
  static constexpr DType kReal = DType::kFloat64, kComplex = DType::kComplex128;
};

template <typename R>
int64_t Largest(std::vector<R> values) {
  return LargestExponent(TypeOf<R>::kReal, values.data(), static_cast<int64_t>(values.size()));
}

template <typename R>
class BinaryScale : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(BinaryScale, Reals);

// frexp is the definition, over the whole range with the subnormal numbers.
TYPED_TEST(BinaryScale, LargestExponentIsThatOfFrexp) {
  using Limits = std::numeric_limits<TypeParam>;
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent; ++e) {
    for (const TypeParam factor : {TypeParam(1), TypeParam(1.75), TypeParam(-1.25)}) {
      const TypeParam value = std::ldexp(factor, e);
      if (value == 0) continue;
      int expected = 0;
      std::frexp(value, &expected);
      EXPECT_EQ(Largest<TypeParam>({0, value, std::ldexp(value, -3)}), expected) << value;
    }
  }
}

TYPED_TEST(BinaryScale, WhatIsNotFiniteHasNoExponent) {
  const auto inf = static_cast<TypeParam>(kInf), nan = static_cast<TypeParam>(kNaN);
  EXPECT_EQ(Largest<TypeParam>({}), kNoExponent);
  EXPECT_EQ(Largest<TypeParam>({0, TypeParam(-0.0)}), kNoExponent);
  EXPECT_EQ(Largest<TypeParam>({inf, -inf, nan, 0}), kNoExponent);
  EXPECT_EQ(Largest<TypeParam>({inf, 3, nan}), 2);
  const std::vector<TypeParam> zeros = {0, TypeParam(-0.0)}, one_nan = {0, nan}, one_inf = {inf, 0};
  EXPECT_FALSE(HasNonZero(TypeOf<TypeParam>::kReal, zeros.data(), 2));
  EXPECT_TRUE(HasNonZero(TypeOf<TypeParam>::kReal, one_nan.data(), 2));
  EXPECT_TRUE(HasNonZero(TypeOf<TypeParam>::kComplex, one_inf.data(), 1));
}

// Every length up to some vectors' worth, the largest at every place.
TYPED_TEST(BinaryScale, FindsTheLargestAnywhere) {
  for (size_t count = 1; count < 70; ++count) {
    for (size_t place = 0; place < count; ++place) {
      std::vector<TypeParam> values(count, TypeParam(0.75));
      values[place] = TypeParam(-9);
      EXPECT_EQ(Largest(values), 4);
    }
  }
}

TYPED_TEST(BinaryScale, ScalingIsExactAndReachesEverywhere) {
  using Limits = std::numeric_limits<TypeParam>;
  const std::vector<TypeParam> source = {TypeParam(1) / 3, TypeParam(-2) / 7,
                                         static_cast<TypeParam>(kInf), 0};
  for (int shift = -2 * Limits::max_exponent; shift <= 2 * Limits::max_exponent; shift += 3) {
    std::vector<TypeParam> target(source.size(), 5);
    ScaleByPowerOfTwo(TypeOf<TypeParam>::kReal, source.data(), target.data(), 4, shift);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(target[i], std::ldexp(source[i], shift)) << shift;
    EXPECT_EQ(target[2], source[2]);
    EXPECT_EQ(target[3], 0);
  }
  // From one end of the range to the other, and far beyond.
  TypeParam tiny = Limits::denorm_min();
  ScaleByPowerOfTwo(TypeOf<TypeParam>::kReal, &tiny, &tiny, 1, Limits::max_exponent);
  EXPECT_EQ(tiny, std::ldexp(Limits::denorm_min(), Limits::max_exponent));
  TypeParam one = 1;
  ScaleByPowerOfTwo(TypeOf<TypeParam>::kReal, &one, &one, 1, -(int64_t{1} << 40));
  EXPECT_EQ(one, 0);
}

TYPED_TEST(BinaryScale, StridesLeaveTheRestAlone) {
  std::vector<std::complex<TypeParam>> values(7, {1, 3});
  ScaleStrided(TypeOf<TypeParam>::kComplex, values.data(), 3, 3, -1);
  for (size_t i = 0; i < values.size(); ++i) {
    const TypeParam factor = i % 3 == 0 ? TypeParam(0.5) : TypeParam(1);
    EXPECT_EQ(values[i], std::complex<TypeParam>(factor, 3 * factor)) << i;
  }
}

TYPED_TEST(BinaryScale, SumsAreThoseOfTheTrueValues) {
  const DType dtype = TypeOf<TypeParam>::kReal;
  for (const int64_t apart : {0, 1, 5, -7, 20, -20}) {
    std::vector<TypeParam> left = {3, -5, 1}, right = {2, 7, 1};
    const int64_t exponent = AddScaled(dtype, left.data(), 1000, right.data(), 1000 + apart, 3);
    for (size_t i = 0; i < 3; ++i) {
      const double l = std::vector<double>{3, -5, 1}[i], r = std::vector<double>{2, 7, 1}[i];
      EXPECT_EQ(std::ldexp(double{left[i]}, static_cast<int>(exponent - 1000)),
                l + std::ldexp(r, static_cast<int>(apart)));
    }
  }
}

TYPED_TEST(BinaryScale, FarTermsVanishAndZerosHaveNoSay) {
  const DType dtype = TypeOf<TypeParam>::kReal;
  std::vector<TypeParam> left = {3, 0}, right = {1, 1};
  EXPECT_EQ(AddScaled(dtype, left.data(), 100000, right.data(), -100000, 2), 100000);
  EXPECT_EQ(left, (std::vector<TypeParam>{3, 0}));
  EXPECT_EQ(AddScaled(dtype, left.data(), -100000, right.data(), 100000, 2), 100000);
  EXPECT_EQ(left, (std::vector<TypeParam>{1, 1}));
  const std::vector<TypeParam> zeros = {0, 0};
  EXPECT_EQ(AddScaled(dtype, left.data(), 7, zeros.data(), kNoExponent, 2), 7);
  left = zeros;
  EXPECT_EQ(AddScaled(dtype, left.data(), kNoExponent, right.data(), -7, 2), -7);
  EXPECT_EQ(left, right);
  // What cancels has no exponent, so that it doesn't drown what comes after.
  const std::vector<TypeParam> opposite = {-1, -1};
  EXPECT_EQ(AddScaled(dtype, left.data(), 90, opposite.data(), 90, 2), kNoExponent);
  EXPECT_EQ(AddScaled(dtype, left.data(), kNoExponent, right.data(), -9000, 2), -9000);
}

TYPED_TEST(BinaryScale, RescalesOnlyOutsideComfort) {
  using Limits = std::numeric_limits<TypeParam>;
  const DType dtype = TypeOf<TypeParam>::kReal;
  const int quarter = Limits::max_exponent / 4;
  for (const int e : {-quarter - 40, -quarter - 1, -quarter, 0, quarter, quarter + 1}) {
    TypeParam value = std::ldexp(TypeParam(0.625), e);
    const bool inside = e >= -quarter && e <= quarter;
    EXPECT_EQ(Rescale(dtype, &value, 11, 1), inside ? 11 : 11 + e);
    EXPECT_EQ(value, inside ? std::ldexp(TypeParam(0.625), e) : TypeParam(0.625));
    EXPECT_EQ(ScaleToUnit(dtype, &value, 0, 1), inside ? e : 0);
    EXPECT_EQ(value, TypeParam(0.625));
  }
  TypeParam zero = 0;
  EXPECT_EQ(Rescale(dtype, &zero, 11, 1), kNoExponent);
  EXPECT_EQ(ScaleToUnit(dtype, &zero, 11, 1), kNoExponent);
}

TEST(Log10OfPowerOfTwo, IsRoundedOnce) {
  EXPECT_EQ(Log10OfPowerOfTwo(0), 0);
  EXPECT_EQ(Log10OfPowerOfTwo(1), std::log10(2.0));
  EXPECT_EQ(Log10OfPowerOfTwo(kNoExponent), -kInf);
  for (const int64_t exponent : {1000, -3, 123456789, -20000}) {
    const double log10 = Log10OfPowerOfTwo(exponent);
    EXPECT_EQ(std::llround(log10 / std::log10(2.0)), exponent);
  }
}

}  // namespace
}  // namespace tenon
