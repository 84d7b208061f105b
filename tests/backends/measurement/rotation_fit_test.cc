#include "backends/measurement/rotation_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "backends/measurement/jacobi_svd.h"

namespace tenon::testing {
namespace {

using measurement::OrthogonalizeColumns;
using measurement::ReduceColumns;
using measurement::RotationFit;

struct Matrix {
  int64_t rows, columns;
  std::vector<double> values = std::vector<double>(rows * columns);
  double& At(int64_t r, int64_t c) { return values[r * columns + c]; }
  double At(int64_t r, int64_t c) const { return values[r * columns + c]; }
};

Matrix Random(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Matrix matrix{rows, columns};
  for (double& value : matrix.values) value = normal(generator);
  return matrix;
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix product{a.rows, b.columns};
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < b.columns; ++c) {
      for (int64_t i = 0; i < a.columns; ++i) product.At(r, c) += a.At(r, i) * b.At(i, c);
    }
  }
  return product;
}

// Orthonormal rows or columns, whichever are fewer, by Gram and Schmidt.
Matrix Orthonormal(int64_t rows, int64_t columns, uint32_t seed) {
  const bool wide = columns > rows;
  const int64_t length = std::max(rows, columns), count = std::min(rows, columns);
  Matrix basis = Random(count, length, seed), result{rows, columns};
  for (int64_t i = 0; i < count; ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        double dot = 0;
        for (int64_t c = 0; c < length; ++c) dot += basis.At(i, c) * basis.At(j, c);
        for (int64_t c = 0; c < length; ++c) basis.At(i, c) -= dot * basis.At(j, c);
      }
    }
    double norm = 0;
    for (int64_t c = 0; c < length; ++c) norm += basis.At(i, c) * basis.At(i, c);
    for (int64_t c = 0; c < length; ++c) basis.At(i, c) /= std::sqrt(norm);
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < length; ++c)
      (wide ? result.At(i, c) : result.At(c, i)) = basis.At(i, c);
  }
  return result;
}

bool GoOn() { return false; }

double Fit(const Matrix& x, const Matrix& y, absl::FunctionRef<bool()> stop = GoOn) {
  RotationFit fit(x.rows, x.columns, y.columns);
  std::copy(x.values.begin(), x.values.end(), fit.x());
  std::copy(y.values.begin(), y.values.end(), fit.y());
  return fit.RelativeResidual(stop);
}

TEST(RotationFit, IsPerfectForRotatedReflectedAndMovedPoints) {
  for (const auto& [x_columns, y_columns] :
       {std::pair{2, 2}, {3, 3}, {1, 1}, {2, 1}, {10, 2}, {7, 4}, {2, 5}, {1, 2}}) {
    SCOPED_TRACE(::testing::Message() << x_columns << " and " << y_columns);
    // x is what the rotation makes of y, so that y has all of x.
    const int rank = std::min(x_columns, y_columns);
    const Matrix core = Random(12, rank, 1);
    Matrix x = Product(core, Orthonormal(rank, x_columns, 2));
    Matrix y = Product(core, Orthonormal(rank, y_columns, 3));
    for (int64_t r = 0; r < 12; ++r) {
      for (int64_t c = 0; c < x_columns; ++c) x.At(r, c) += 5;
      for (int64_t c = 0; c < y_columns; ++c) y.At(r, c) -= 3;
    }
    EXPECT_LT(Fit(x, y), 1e-28);
    for (double& value : y.values) value = 0.5 * (value + 3);
    EXPECT_NEAR(Fit(x, y), 0.25, 1e-13);
  }
}

TEST(RotationFit, KeepsItsDigitsForNearlyPerfectFits) {
  // Integers whose columns sum to zero, so that centring is exact.
  const Matrix x{4, 2, {3, -1, -5, 2, 1, -4, 1, 3}};
  for (const double change : {0x1p-4, 0x1p-12, 0x1p-30}) {
    Matrix y = x;
    for (double& value : y.values) value *= 1 - change;
    const double want = change * change;
    EXPECT_NEAR(Fit(x, y), want, 1e-5 * want + 1e-31) << change;
    // One column and three columns take other paths.
    const Matrix line{4, 1, {3, -5, 1, 1}};
    Matrix near_line = line;
    for (double& value : near_line.values) value *= 1 - change;
    EXPECT_NEAR(Fit(line, near_line), want, 1e-5 * want + 1e-31) << change;
  }
}

TEST(RotationFit, AgreesBetweenItsFastAndItsExplicitForm) {
  // A third column of zeros in both sets changes nothing but the path.
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Matrix x = Random(9, 4, seed), y = Random(9, 2, seed + 100);
    Matrix wide_y{9, 3};
    for (int64_t r = 0; r < 9; ++r) {
      wide_y.At(r, 0) = y.At(r, 0);
      wide_y.At(r, 2) = y.At(r, 1);
    }
    const double fast = Fit(x, y);
    EXPECT_NEAR(Fit(x, wide_y), fast, 1e-13 * fast);
  }
}

TEST(RotationFit, TakesSetsOfLowRank) {
  // y on a line: both singular values follow from the line alone.
  const Matrix x = Random(8, 5, 3), t = Random(8, 1, 4);
  Matrix line{8, 2};
  for (int64_t r = 0; r < 8; ++r) {
    line.At(r, 0) = 0.6 * t.At(r, 0);
    line.At(r, 1) = -0.8 * t.At(r, 0);
  }
  EXPECT_NEAR(Fit(x, line), Fit(x, t), 1e-13);
  // y in one point: nothing fits.
  EXPECT_EQ(Fit(x, Matrix{8, 2}), 1);
  EXPECT_EQ(Fit(x, Matrix{8, 3}), 1);
  EXPECT_EQ(Fit(x, Matrix{8, 7}), 1);
}

TEST(RotationFit, ReducesMoreColumnsThanPoints) {
  // What the points of few columns become by rotations into many: the fit stays.
  for (const auto& [x_columns, y_columns] : {std::pair{4, 3}, {3, 4}, {6, 6}, {2, 5}, {4, 1}}) {
    const Matrix x = Random(9, x_columns, 1), y = Random(9, y_columns, 2);
    const double want = Fit(x, y);
    for (const auto& [wide_x, wide_y] :
         {std::pair{50, 40}, {400, 400}, {x_columns + 0, 70}, {70, y_columns + 0}, {12, 600}}) {
      // Of a wider set y only what x has a part in counts, so it must be the wider one before.
      if ((wide_y > wide_x) != (y_columns > x_columns)) continue;
      SCOPED_TRACE(::testing::Message() << wide_x << " and " << wide_y);
      EXPECT_NEAR(Fit(Product(x, Orthonormal(x_columns, wide_x, 3)),
                      Product(y, Orthonormal(y_columns, wide_y, 4))),
                  want, 1e-13 * want);
    }
  }
}

TEST(RotationFit, TakesAsManyColumnsAsThereAre) {
  constexpr int64_t kX = 30000, kY = 20000;
  const Matrix x = Random(5, 4, 1), y = Random(5, 3, 2);
  // Columns of zeros rotate nothing.
  Matrix wide_x{5, kX}, wide_y{5, kY};
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t c = 0; c < 4; ++c) wide_x.At(r, c * 7000) = x.At(r, c);
    for (int64_t c = 0; c < 3; ++c) wide_y.At(r, c * 9000) = y.At(r, c);
  }
  const double want = Fit(x, y);
  EXPECT_NEAR(Fit(wide_x, wide_y), want, 1e-13 * want);
  EXPECT_LT(RotationFit::Bytes(5, kX, kY), 4 << 20);
}

TEST(RotationFit, AsksWithinAFitWhetherToStop) {
  // More points than columns, and fewer; both kinds of long fits ask often, and stop at once.
  for (const auto& [points, columns] : {std::pair{80, 60}, {30, 300}}) {
    const Matrix x = Random(points, columns, 1), y = Random(points, columns, 2);
    int64_t asked = 0;
    EXPECT_TRUE(std::isfinite(Fit(x, y, [&] {
      ++asked;
      return false;
    })));
    EXPECT_GT(asked, 4 * std::min(points, columns));
    for (const int64_t last : {int64_t{1}, asked / 4, asked / 2, asked - 1}) {
      int64_t again = 0;
      EXPECT_TRUE(std::isnan(Fit(x, y, [&] { return ++again == last; })));
      EXPECT_EQ(again, last);
    }
  }
}

TEST(RotationFit, IsUndefinedWithoutVariance) {
  const Matrix same{3, 2, {0.1, 0.3, 0.1, 0.3, 0.1, 0.3}};
  EXPECT_TRUE(std::isnan(Fit(same, Random(3, 2, 1))));
  EXPECT_TRUE(std::isnan(Fit(Matrix{1, 2, {4, 5}}, Matrix{1, 2, {1, 2}})));
}

TEST(RotationFit, TakesPointsOfAnyMagnitude) {
  for (const int64_t columns : {1, 2, 3}) {
    const Matrix x = Random(7, 3, 5), y = Random(7, columns, 6);
    const double want = Fit(x, y);
    for (const int exponent : {-1000, -520, 510, 1015}) {
      Matrix big_x = x, big_y = y;
      for (double& value : big_x.values) value = std::ldexp(value, exponent);
      for (double& value : big_y.values) value = std::ldexp(value, exponent);
      EXPECT_NEAR(Fit(big_x, big_y), want, 1e-12 * want) << exponent;
    }
    Matrix tiny_y = y, huge_y = y;
    for (double& value : tiny_y.values) value = std::ldexp(value, -700);
    for (double& value : huge_y.values) value = std::ldexp(value, 800);
    EXPECT_NEAR(Fit(x, tiny_y), 1, 1e-15);
    EXPECT_FALSE(std::isfinite(Fit(x, huge_y)));
  }
}

TEST(OrthogonalizeColumns, GivesSingularValuesAndRotations) {
  for (const auto& [rows, columns] : {std::pair{6, 1}, {4, 4}, {9, 5}, {30, 12}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
    // Columns lie together; their scales differ by 1e-9.
    Matrix original = Random(columns, rows, 8);
    for (int64_t r = 0; r < rows; ++r) original.At(columns - 1, r) *= 1e-9;
    Matrix w = original, v{columns, columns};
    ASSERT_TRUE(OrthogonalizeColumns(rows, columns, w.values.data(), v.values.data(), GoOn));
    for (int64_t a = 0; a < columns; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double dot = 0, norm_a = 0, norm_b = 0, rotations = 0;
        for (int64_t r = 0; r < rows; ++r) {
          dot += w.At(a, r) * w.At(b, r);
          norm_a += w.At(a, r) * w.At(a, r);
          norm_b += w.At(b, r) * w.At(b, r);
        }
        for (int64_t c = 0; c < columns; ++c) rotations += v.At(a, c) * v.At(b, c);
        if (a != b) {
          EXPECT_LT(std::abs(dot), 1e-14 * std::sqrt(norm_a * norm_b));
        }
        EXPECT_NEAR(rotations, a == b, 1e-14);
      }
      // The old column is the new ones times the rotations.
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t s = 0; s < columns; ++s) sum += w.At(s, r) * v.At(s, a);
        EXPECT_NEAR(sum, original.At(a, r), 1e-14);
      }
    }
  }
}

TEST(ReduceColumns, KeepsLengthsAndAngles) {
  for (const auto& [rows, columns] : {std::pair{5, 5}, {40, 6}, {300, 20}}) {
    Matrix original = Random(columns, rows, 8);
    // The last column depends on the first ones, and another one is very short.
    for (int64_t r = 0; r < rows; ++r) {
      original.At(columns - 1, r) = original.At(0, r) - 2 * original.At(1, r);
      original.At(columns - 2, r) *= 1e-170;
    }
    Matrix w = original;
    ASSERT_TRUE(ReduceColumns(rows, columns, w.values.data(), GoOn));
    for (int64_t a = 0; a < columns; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double want = 0, got = 0;
        for (int64_t r = 0; r < rows; ++r) want += original.At(a, r) * original.At(b, r);
        for (int64_t r = 0; r < columns; ++r) {
          got += w.values[a * columns + r] * w.values[b * columns + r];
        }
        EXPECT_NEAR(got, want, 1e-14 * static_cast<double>(rows)) << a << " " << b;
      }
      for (int64_t r = a + 1; r < columns; ++r) EXPECT_EQ(w.values[a * columns + r], 0);
    }
  }
}

}  // namespace
}  // namespace tenon::testing
