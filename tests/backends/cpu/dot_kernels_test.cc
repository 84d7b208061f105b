// Sums of products along contiguous terms, for each instruction set.

#include "backends/cpu/dot_kernels.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "backends/core/strings.h"
#include "backends/plugin/abi.h"
#include "tests/backends/cpu/highway_target.h"
#include "tests/backends/cpu/kernel_numbers.h"

namespace tenon::cpu {
namespace {

using testing::Exact;
using testing::ExactSum;
using testing::SameBits;

class DotKernelsTest : public ::testing::TestWithParam<std::tuple<int64_t, int32_t>> {
 protected:
  // Sums of `count` terms; rows lie `gap` elements apart, which are NaN. What follows the last row
  // and y does not belong to them, and sums of other rows stay as they are.
  template <typename T>
  void Check(int rows, int64_t count, int64_t gap) {
    SCOPED_TRACE(StrCat(rows, " rows, ", count, " terms, ", gap, " between"));
    const int64_t x_row = count + gap;
    std::vector<T> x((rows - 1) * x_row + count, testing::NotANumber<T>());
    std::vector<T> y(count), sums(kDotRows);
    for (int row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < count; ++i) {
        x[row * x_row + i] = testing::RandomNumber<T>(random_);
      }
    }
    for (T& value : y) value = testing::RandomNumber<T>(random_);
    for (T& value : sums) value = testing::RandomNumber<T>(random_);
    const std::vector<T> before = sums;
    AddDots(rows, count, x.data(), x_row, y.data(), sums.data());
    for (int row = 0; row < kDotRows; ++row) {
      if (row >= rows) {
        ASSERT_TRUE(SameBits(sums[row], before[row])) << "row " << row;
        continue;
      }
      ExactSum sum;
      sum.Add(Exact(before[row]));
      for (int64_t i = 0; i < count; ++i) sum.Add(Exact(x[row * x_row + i]) * Exact(y[i]));
      ASSERT_TRUE(sum.IsNear(sums[row]))
          << "row " << row << " is " << Exact(sums[row]) << ", expected " << sum.value;
    }
  }

  // Where the same numbers lie does not matter.
  template <typename T>
  void CheckPlaces(int64_t count) {
    std::vector<T> x(kDotRows * count), y(count);
    for (T& value : x) value = testing::RandomNumber<T>(random_);
    for (T& value : y) value = testing::RandomNumber<T>(random_);
    std::vector<T> sums(kDotRows, T{}), moved(kDotRows, T{});
    AddDots(kDotRows, count, x.data(), count, y.data(), sums.data());
    constexpr int64_t kShift = 3;
    std::vector<T> far(kDotRows * (count + kShift) + kShift), y_far(count + 1);
    for (int row = 0; row < kDotRows; ++row) {
      std::copy_n(&x[row * count], count, &far[row * (count + kShift) + kShift]);
    }
    std::copy_n(y.data(), count, &y_far[1]);
    AddDots(kDotRows, count, &far[kShift], count + kShift, &y_far[1], moved.data());
    for (int row = 0; row < kDotRows; ++row) ASSERT_TRUE(SameBits(sums[row], moved[row])) << count;
  }

  template <typename F>
  void ForType(F&& f) {
    DispatchDType(std::get<1>(GetParam()), std::forward<F>(f));
  }

  const testing::TargetScope target_{std::get<0>(GetParam())};
  std::mt19937_64 random_{1};
};

TEST_P(DotKernelsTest, EveryCount) {
  ForType([&](auto type) {
    using T = typename decltype(type)::type;
    for (int rows = 1; rows <= kDotRows; ++rows) {
      for (int64_t count = 0; count <= 150 && !HasFailure(); ++count) {
        Check<T>(rows, count, 0);
        Check<T>(rows, count, 5);
      }
      Check<T>(rows, 10007, 1);
    }
  });
}

TEST_P(DotKernelsTest, BitsDoNotDependOnTheAddress) {
  ForType([&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t count = 1; count <= 150 && !HasFailure(); ++count) CheckPlaces<T>(count);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Targets, DotKernelsTest,
    ::testing::Combine(::testing::ValuesIn(testing::MachineTargets()),
                       ::testing::Values(TENON_DTYPE_FLOAT32, TENON_DTYPE_FLOAT64,
                                         TENON_DTYPE_COMPLEX64, TENON_DTYPE_COMPLEX128)),
    [](const auto& info) {
      return StrCat(testing::TargetName(std::get<0>(info.param)), "_", std::get<1>(info.param));
    });

}  // namespace
}  // namespace tenon::cpu
