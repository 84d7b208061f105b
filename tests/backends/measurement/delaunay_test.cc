#include "backends/measurement/delaunay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "backends/measurement/plane_triangulation.h"
#include "tests/backends/measurement/measurement_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon::testing {
namespace {

using measurement::DelaunayTriangles;
using measurement::QhullTriangles;
using measurement::TriangulatePlane;

using Triangles = std::vector<int32_t>;
using TriangleSet = std::set<std::array<int32_t, 3>>;

const Parallel kOneThread(1, nullptr);

// Triangles from their smallest corner on, so that only their orientation and corners count.
TriangleSet SetOf(const Triangles& triangles) {
  TriangleSet set;
  for (size_t t = 0; t < triangles.size(); t += 3) {
    std::array<int32_t, 3> corners = {triangles[t], triangles[t + 1], triangles[t + 2]};
    std::rotate(corners.begin(), std::min_element(corners.begin(), corners.end()), corners.end());
    EXPECT_TRUE(set.insert(corners).second);
  }
  return set;
}

int64_t Rows(const std::vector<double>& points) { return static_cast<int64_t>(points.size() / 2); }

Triangles Qhull(const std::vector<double>& points) {
  const auto triangles = QhullTriangles(points.data(), Rows(points), kOneThread);
  EXPECT_TRUE(triangles.ok()) << triangles.status();
  return triangles.ok() ? *triangles : Triangles{};
}

Triangles Fast(const std::vector<double>& points, int threads = 1) {
  const auto triangles = TriangulatePlane(points.data(), Rows(points), Parallel(threads, nullptr));
  EXPECT_TRUE(triangles.ok()) << triangles.status();
  return triangles.ok() ? *triangles : Triangles{};
}

enum class Shape { kNormal, kSquare, kClusters, kCircle, kShifted };

std::vector<double> RandomPoints(Shape shape, int64_t rows, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(-3, 1);
  std::vector<double> points;
  for (int64_t i = 0; i < rows; ++i) {
    double x = normal(generator), y = normal(generator);
    if (shape == Shape::kSquare) x = uniform(generator), y = uniform(generator);
    if (shape == Shape::kClusters) x = 0.01 * x + i % 5, y = 0.01 * y + i % 3;
    if (shape == Shape::kCircle) {
      const double radius = std::hypot(x, y) / (5 + 0.01 * uniform(generator));
      x /= radius, y /= radius;
    }
    if (shape == Shape::kShifted) x += 300, y -= 40;
    points.insert(points.end(), {x, y});
  }
  return points;
}

std::vector<double> Grid(int64_t side) {
  std::vector<double> points;
  for (int64_t i = 0; i < side * side; ++i) {
    points.insert(points.end(), {static_cast<double>(i / side), static_cast<double>(i % side)});
  }
  return points;
}

double Area(const std::vector<double>& points, int32_t a, int32_t b, int32_t c) {
  const double ux = points[2 * b] - points[2 * a], uy = points[2 * b + 1] - points[2 * a + 1];
  const double vx = points[2 * c] - points[2 * a], vy = points[2 * c + 1] - points[2 * a + 1];
  return 0.5 * (ux * vy - uy * vx);
}

TEST(QhullTriangles, AreThoseOfScipyInItsOrder) {
  const auto recorded = ReadJsonOrDie(TestPath("golden/cases/resource_gap_gauss200.json"));
  Triangles want;
  for (const auto& triangle : recorded.at("triangles")) {
    for (const auto& corner : triangle) want.push_back(corner.get<int32_t>());
  }
  const Tensor points = GoldenMatrix("golden/inputs/gauss200.ld.npy");
  const auto got = QhullTriangles(points.buffer.as<double>(), points.spec.shape[0], kOneThread);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, want);
}

TEST(QhullTriangles, CoverAGridOfCocircularPoints) {
  const std::vector<double> grid = Grid(8);
  const Triangles triangles = Qhull(grid);
  EXPECT_EQ(triangles.size(), 3u * 2 * 7 * 7);
  for (size_t t = 0; t < triangles.size(); t += 3) {
    EXPECT_EQ(Area(grid, triangles[t], triangles[t + 1], triangles[t + 2]), 0.5);
  }
}

TEST(QhullTriangles, LeaveOutDuplicates) {
  std::vector<double> points = RandomPoints(Shape::kNormal, 20, 1);
  const TriangleSet once = SetOf(Qhull(points));
  points.insert(points.end(), points.begin(), points.begin() + 20);
  size_t corners = 0;
  std::set<int32_t> used;
  for (const auto& triangle : SetOf(Qhull(points))) {
    for (const int32_t corner : triangle) used.insert(corner % 20);
    ++corners;
  }
  EXPECT_EQ(corners, once.size());
  EXPECT_EQ(used.size(), 20u);
  // SciPy 1.17.1: 60 rows at 15 places.
  const Tensor repeated = GoldenMatrix("golden/inputs/dup60.ld.npy");
  EXPECT_EQ(QhullTriangles(repeated.buffer.as<double>(), 60, kOneThread)->size(), 3u * 16);
}

TEST(QhullTriangles, AreUndefinedOnALine) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const std::vector<std::vector<double>> lines = {
      {0, 0, 1, 1},
      {0, 0, 1, 1, 2, 2},
      {5, 5, 5, 5, 5, 5, 5, 5},
      {0, 0, 0, 0, 1, 0, 1, 0},
      {0.1, 0.3, 0.2, 0.6, 0.3, 0.9, 0.7, 2.1, 1.1, 3.3},
  };
  for (const auto& points : lines) {
    EXPECT_TRUE(
        Fails(QhullTriangles(points.data(), Rows(points), kOneThread), Reason::kUndefinedScore));
    EXPECT_TRUE(
        Fails(DelaunayTriangles(points.data(), Rows(points), kOneThread), Reason::kUndefinedScore));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(QhullTriangles, TakeCoordinatesOfAnyMagnitude) {
  const std::vector<double> points = RandomPoints(Shape::kNormal, 60, 3);
  const Triangles want = Qhull(points);
  for (const int exponent : {-1060, -500, 500, 1020}) {
    std::vector<double> scaled = points;
    for (double& value : scaled) value = std::ldexp(value, exponent);
    const auto got = DelaunayTriangles(scaled.data(), 60, kOneThread);
    ASSERT_TRUE(got.ok()) << exponent << " " << got.status();
    if (exponent > -1000) {
      EXPECT_EQ(SetOf(*got), SetOf(want)) << exponent;
      EXPECT_EQ(Qhull(scaled), want) << exponent;
    }
  }
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(Qhull({-largest, -largest, largest, -largest, 0, largest}).size(), 3u);
}

TEST(QhullTriangles, CanBeFoundSideBySide) {
  const std::vector<double> points = RandomPoints(Shape::kNormal, 500, 3),
                            line = {0, 0, 1, 1, 2, 2};
  const Triangles want = Qhull(points);
  std::vector<Triangles> got(4);
  std::vector<std::thread> threads;
  for (Triangles& triangles : got) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        EXPECT_FALSE(QhullTriangles(line.data(), 3, kOneThread).ok());
        triangles = Qhull(points);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Triangles& triangles : got) EXPECT_EQ(triangles, want);
}

TEST(TriangulatePlane, FindsTheTrianglesOfQhull) {
  for (const Shape shape :
       {Shape::kNormal, Shape::kSquare, Shape::kClusters, Shape::kCircle, Shape::kShifted}) {
    int found = 0;
    for (uint32_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(::testing::Message() << "shape " << static_cast<int>(shape) << " seed " << seed);
      const std::vector<double> points = RandomPoints(shape, 3 + seed * seed, seed);
      const Triangles fast = Fast(points);
      if (fast.empty()) continue;
      ++found;
      EXPECT_EQ(SetOf(fast), SetOf(Qhull(points)));
    }
    EXPECT_GE(found, 36) << static_cast<int>(shape);
  }
}

TEST(TriangulatePlane, FindsTheTrianglesOfQhullForManyPoints) {
  const std::vector<double> points = RandomPoints(Shape::kNormal, 30000, 5);
  const Triangles fast = Fast(points);
  ASSERT_FALSE(fast.empty());
  EXPECT_EQ(SetOf(fast), SetOf(Qhull(points)));
}

TEST(TriangulatePlane, HasEmptyCirclesAndCoversTheHull) {
  const std::vector<double> points = RandomPoints(Shape::kSquare, 150, 11);
  const Triangles triangles = Fast(points);
  ASSERT_FALSE(triangles.empty());
  for (size_t t = 0; t < triangles.size(); t += 3) {
    const int32_t a = triangles[t], b = triangles[t + 1], c = triangles[t + 2];
    EXPECT_GT(Area(points, a, b, c), 0);
    // The centre, from two equations of equal distances.
    const double ax = points[2 * a], ay = points[2 * a + 1];
    const double bx = points[2 * b] - ax, by = points[2 * b + 1] - ay;
    const double cx = points[2 * c] - ax, cy = points[2 * c + 1] - ay;
    const double factor = 0.5 / (bx * cy - by * cx);
    const double x = ax + factor * (cy * (bx * bx + by * by) - by * (cx * cx + cy * cy));
    const double y = ay + factor * (bx * (cx * cx + cy * cy) - cx * (bx * bx + by * by));
    const double radius = std::hypot(ax - x, ay - y);
    for (int32_t i = 0; i < 150; ++i) {
      if (i == a || i == b || i == c) continue;
      EXPECT_GT(std::hypot(points[2 * i] - x, points[2 * i + 1] - y), radius);
    }
  }
}

TEST(TriangulatePlane, DoesNotDependOnTheNumberOfThreads) {
  const std::vector<double> points = RandomPoints(Shape::kNormal, 20000, 6);
  const Triangles one = Fast(points, 1);
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(Fast(points, 4), one);
}

TEST(TriangulatePlane, GivesUpInDoubt) {
  std::vector<double> twice = RandomPoints(Shape::kNormal, 30, 1);
  twice.insert(twice.end(), twice.begin(), twice.begin() + 2);
  std::vector<double> near = RandomPoints(Shape::kNormal, 30, 1);
  near.insert(near.end(), {near[0] + 1e-9, near[1]});
  const std::vector<std::vector<double>> doubtful = {
      {},
      {0, 0, 1, 1},
      {0, 0, 1, 1, 2, 2},
      {0, 0, 1, 1, 2, 2 + 1e-14},
      {0, 0, 1, 0, 1, 1, 0, 1},
      {0, 0, 1, 0, 1, 1, 0, 1 + 1e-15},
      Grid(5),
      twice,
      near,
  };
  for (size_t i = 0; i < doubtful.size(); ++i) EXPECT_TRUE(Fast(doubtful[i]).empty()) << i;
  // Few digits: the determinants are exact, but of points with such coordinates many are
  // cocircular.
  std::vector<double> rounded = RandomPoints(Shape::kNormal, 3000, 2);
  for (double& value : rounded) value = std::round(value * 64) / 64;
  EXPECT_TRUE(Fast(rounded).empty());
}

TEST(DelaunayTriangles, AskQhullInDoubtOnly) {
  for (const auto& points : {Grid(6), RandomPoints(Shape::kNormal, 100, 4)}) {
    const auto got = DelaunayTriangles(points.data(), Rows(points), kOneThread);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(SetOf(*got), SetOf(Qhull(points)));
    EXPECT_EQ(*got == Qhull(points), Fast(points).empty());
  }
}

TEST(DelaunayTriangles, StopWhenCancelled) {
  const int32_t cancelled = 1;
  // Qhull would take many seconds.
  const std::vector<double> grid = Grid(700);
  EXPECT_TRUE(Fails(QhullTriangles(grid.data(), Rows(grid), Parallel(1, &cancelled)),
                    Reason::kClientCancelled));
  EXPECT_TRUE(
      Fails(QhullTriangles(grid.data(), 710, Parallel(1, &cancelled)), Reason::kClientCancelled));
  const std::vector<double> points = RandomPoints(Shape::kNormal, 5000, 4);
  EXPECT_TRUE(Fails(DelaunayTriangles(points.data(), 5000, Parallel(2, &cancelled)),
                    Reason::kClientCancelled));
}

}  // namespace
}  // namespace tenon::testing
