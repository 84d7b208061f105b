// HDBSCAN and what its ties depend on. Orders were recorded from NumPy 2.4.6 with its vector
// sorting switched off and from CPython 3.11.7, labels from hdbscan 0.8.44 over that NumPy.

#include "backends/measurement/hdbscan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "backends/measurement/numpy_argsort.h"
#include "backends/measurement/python_set.h"
#include "tests/backends/measurement/dense_prim.h"

namespace tenon::measurement {
namespace {

using testing::DensePrim;
using testing::Square;

// One number for a long order.
uint64_t Digest(const std::vector<int32_t>& order) {
  uint64_t digest = 0;
  for (const int32_t value : order) digest = digest * 1000003 + static_cast<uint64_t>(value) + 1;
  return digest;
}

std::vector<double> TiedValues(int64_t n, int64_t modulus) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(static_cast<double>((i * i * 7 + 3 * i) % modulus));
  return values;
}

TEST(NumpyArgsort, OrdersTiesLikeNumPy) {
  EXPECT_EQ(NumpyArgsort(TiedValues(16, 5)),
            (std::vector<int32_t>{0, 1, 5, 6, 10, 11, 15, 3, 8, 13, 2, 4, 7, 9, 12, 14}));
  EXPECT_EQ(NumpyArgsort(TiedValues(17, 5)),
            (std::vector<int32_t>{0, 11, 10, 15, 6, 16, 1, 5, 3, 13, 8, 4, 7, 9, 2, 12, 14}));
  EXPECT_EQ(NumpyArgsort(TiedValues(40, 11)),
            (std::vector<int32_t>{0,  22, 20, 31, 11, 33, 9,  24, 18, 29, 13, 7,  35, 2,
                                  27, 15, 16, 5,  4,  38, 37, 26, 32, 21, 10, 36, 28, 39,
                                  17, 14, 6,  3,  25, 23, 30, 12, 8,  34, 1,  19}));
  EXPECT_EQ(Digest(NumpyArgsort(TiedValues(300, 37))), 12174887851965902792u);
  EXPECT_EQ(Digest(NumpyArgsort(TiedValues(1000, 101))), 4370333504282138660u);
  EXPECT_EQ(Digest(NumpyArgsort(TiedValues(5000, 997))), 8078926532042325670u);
}

TEST(NumpyArgsort, TakesNothingOneAndEqualValues) {
  EXPECT_EQ(NumpyArgsort({}), std::vector<int32_t>{});
  EXPECT_EQ(NumpyArgsort(std::vector<double>{7}), std::vector<int32_t>{0});
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(NumpyArgsort(std::vector<double>{infinity, -infinity, 0}),
            (std::vector<int32_t>{1, 2, 0}));
}

// An adversary of the median of three (McIlroy: A killer adversary for quicksort, 1999) nests
// partitions until the rest goes to the heap, whose order of the ties at 96 is not stable.
TEST(NumpyArgsort, FallsBackToTheHeapLikeNumPy) {
  std::vector<double> values = {0,  48, 2,  72, 4,  50, 6,  96, 8,  52, 10, 74, 12, 54, 14, 96,
                                16, 56, 18, 76, 20, 58, 22, 96, 24, 60, 26, 78, 28, 62, 30, 96,
                                32, 64, 34, 96, 36, 66, 38, 96, 40, 68, 42, 96, 44, 70, 46};
  for (int odd = 1; odd <= 79; odd += 2) values.push_back(odd);
  values.resize(96, 96);
  EXPECT_EQ(NumpyArgsort(values),
            (std::vector<int32_t>{0,  47, 2,  48, 4,  49, 6,  50, 8,  51, 10, 52, 12, 53, 14, 54,
                                  16, 55, 18, 56, 20, 57, 22, 58, 24, 59, 26, 60, 28, 61, 30, 62,
                                  32, 63, 34, 64, 36, 65, 38, 66, 40, 67, 42, 68, 44, 69, 46, 70,
                                  1,  71, 5,  72, 9,  73, 13, 74, 17, 75, 21, 76, 25, 77, 29, 78,
                                  33, 79, 37, 80, 41, 81, 45, 82, 3,  83, 11, 84, 19, 85, 27, 86,
                                  87, 15, 39, 7,  31, 94, 35, 88, 43, 95, 93, 23, 92, 91, 90, 89}));
}

std::vector<int32_t> SetOf(int64_t insertions, int64_t modulus, int64_t factor = 7919,
                           int64_t first = 0) {
  PythonSet set;
  std::set<int32_t> values;
  for (int64_t i = 0; i < insertions; ++i) {
    const auto value = static_cast<int32_t>(first + i * factor % modulus);
    set.Insert(value);
    values.insert(value);
  }
  const std::vector<int32_t> order = set.Values();
  EXPECT_EQ(set.size(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()), values);
  EXPECT_EQ(order.size(), values.size());
  return order;
}

TEST(PythonSet, IteratesLikeCPython) {
  EXPECT_EQ(PythonSet().Values(), std::vector<int32_t>{});
  EXPECT_EQ(SetOf(5, 5003), (std::vector<int32_t>{0, 3745, 2916, 1658, 829}));
  EXPECT_EQ(SetOf(20, 5003),
            (std::vector<int32_t>{0,    3716, 2058, 400,  2458, 800,  3745, 4145, 2487, 829,
                                  4545, 2887, 1229, 1629, 4574, 2916, 4974, 371,  3316, 1658}));
  EXPECT_EQ(SetOf(12, 1000, 8),  // all in one slot of the smallest table
            (std::vector<int32_t>{0, 32, 64, 8, 40, 72, 16, 48, 80, 24, 56, 88}));
  EXPECT_EQ(
      SetOf(30, 1000000, 1024, 3),
      (std::vector<int32_t>{1027,  2051,  3,     3075,  4099,  5123,  6147,  7171,  8195,  9219,
                            12291, 16387, 20483, 24579, 28675, 13315, 17411, 21507, 25603, 29699,
                            10243, 14339, 18435, 22531, 26627, 11267, 15363, 19459, 23555, 27651}));
  EXPECT_EQ(Digest(SetOf(300, 5003)), 1536856645309418762u);
  EXPECT_EQ(Digest(SetOf(5003, 5003)), 6080112049218791606u);
}

TEST(PythonSet, GrowsMoreSlowlyWhenItIsLarge) {
  EXPECT_EQ(Digest(SetOf(60000, 100003)), 6191603020641354755u);
  EXPECT_EQ(Digest(SetOf(200000, 300007)), 346862441061363400u);
}

TEST(PythonSet, KeepsTheSameOrderWhenValuesComeAgain) { EXPECT_EQ(SetOf(300, 31), SetOf(31, 31)); }

// ---- HDBSCAN ---------------------------------------------------------------------------------

// Points with integer coordinates, so that their distances have the same bits everywhere.
Square DistancesOf(int kind, int64_t n) {
  std::vector<std::pair<int64_t, int64_t>> points;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t third = i % 3;
    const std::pair<int64_t, int64_t> grids = {(i * 37) % 11 + 60 * third,
                                               (i * 53) % 13 + third * third * 40};
    const std::pair<int64_t, int64_t> options[] = {
        {(i * i * 7919) % 100003, (i * i * i * 104729 + 17 * i) % 100019},  // hardly any ties
        grids,                                                              // many ties
        {(i * i) % 7, (i * 3) % 5},                                         // duplicates
        {(i * i * 31) % 97 + (i % 4 == 0 ? 500 : 0), (i * i * 17) % 89},
        i % 7 != 0 ? grids : std::pair{(i * i * 7919) % 307, (i * i * i * 31) % 311}};
    points.push_back(options[kind]);
  }
  Square distances(n, std::vector<double>(n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t x = points[i].first - points[j].first, y = points[i].second - points[j].second;
      distances[i][j] = std::sqrt(static_cast<double>(x * x + y * y));
    }
  }
  return distances;
}

std::vector<int32_t> LabelsOf(int kind, int64_t n,
                              LinkageEdges edges = LinkageEdges::kSpanningTree) {
  return HdbscanLabels(DensePrim(DistancesOf(kind, n)), edges);
}

TEST(Hdbscan, ChoosesTheOnlyClusterOfScatteredPoints) {
  EXPECT_EQ(LabelsOf(0, 60),
            (std::vector<int32_t>{-1, 0,  0,  0, 0,  -1, 0,  0, 0,  0, 0, 0,  0, 0,  0,
                                  0,  0,  -1, 0, -1, 0,  0,  0, -1, 0, 0, 0,  0, -1, 0,
                                  0,  -1, 0,  0, 0,  -1, -1, 0, -1, 0, 0, -1, 0, 0,  0,
                                  0,  0,  0,  0, 0,  -1, -1, 0, 0,  0, 0, 0,  0, -1, 0}));
}

TEST(Hdbscan, SeparatesClustersInTheOrderOfTheTree) {
  const std::vector<int32_t> third = {1, 2, 0};
  for (const int64_t n : {33, 60}) {
    const std::vector<int32_t> labels = LabelsOf(1, n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(labels[i], third[i % 3]) << i;
  }
  const std::vector<int32_t> two = LabelsOf(3, 80);
  for (int64_t i = 0; i < 80; ++i) EXPECT_EQ(two[i], i % 4 == 0 ? 0 : 1) << i;
}

// As three clusters, but every seventh point lies anywhere: most of these are noise.
TEST(Hdbscan, LeavesNoiseOut) {
  EXPECT_EQ(LabelsOf(4, 90),
            (std::vector<int32_t>{1, 2, 0,  1,  2, 0, 1,  -1, 0, 1, 2, 0, 1,  2, -1, 1, 2, 0,
                                  1, 2, 0,  -1, 2, 0, 1,  2,  0, 1, 2, 0, 1,  2, 0,  1, 2, -1,
                                  1, 2, 0,  1,  2, 0, -1, 2,  0, 1, 2, 0, 1,  2, 0,  1, 2, 0,
                                  1, 2, -1, 1,  2, 0, 1,  2,  0, 0, 2, 0, 1,  2, 0,  1, 0, 0,
                                  1, 2, 0,  1,  2, 0, 1,  2,  0, 1, 2, 0, -1, 2, 0,  1, 2, 0}));
}

TEST(Hdbscan, TakesDuplicates) { EXPECT_EQ(LabelsOf(2, 40), std::vector<int32_t>(40, 0)); }

TEST(Hdbscan, HasOnlyTheRootBelowTwiceTheClusterSize) {
  EXPECT_EQ(LabelsOf(0, 2), (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(LabelsOf(0, 3), (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(LabelsOf(0, 5), (std::vector<int32_t>{0, 0, 0, 0, 0}));
  EXPECT_EQ(LabelsOf(0, 9), (std::vector<int32_t>{-1, 0, 0, 0, 0, -1, -1, -1, 0}));
  EXPECT_EQ(LabelsOf(0, 10), (std::vector<int32_t>{-1, 0, 0, -1, 0, -1, -1, -1, 0, 0}));
  EXPECT_EQ(LabelsOf(1, 12), (std::vector<int32_t>{-1, 0, -1, 0, 0, -1, 0, 0, -1, 0, -1, -1}));
}

TEST(Hdbscan, HasTheSameLabelsFromThePathWithoutTies) {
  for (const int64_t n : {2, 9, 60, 200}) {
    EXPECT_EQ(LabelsOf(0, n), LabelsOf(0, n, LinkageEdges::kPath)) << n;
  }
}

// Ten points close together and ten that are equally far from everything. The spanning tree lets
// those fall out one by one; the path links them to each other first, which makes a second cluster
// at the distance at which everything meets, and no noise.
TEST(Hdbscan, HasOtherLabelsFromThePathAmongTies) {
  Square distances(20, std::vector<double>(20, 10));
  for (int64_t i = 0; i < 20; ++i) distances[i][i] = 0;
  for (int64_t i = 0; i < 10; ++i) {
    for (int64_t j = 0; j < 10; ++j) {
      if (i != j) distances[i][j] = 1;
    }
  }
  const PrimOrder prim = DensePrim(distances);
  std::vector<int32_t> expected(20, -1);
  std::fill(expected.begin(), expected.begin() + 10, 0);
  EXPECT_EQ(HdbscanLabels(prim, LinkageEdges::kSpanningTree), expected);  // also hdbscan 0.8.44's
  const std::vector<int32_t> path = HdbscanLabels(prim, LinkageEdges::kPath);
  EXPECT_NE(path, expected);
}

}  // namespace
}  // namespace tenon::measurement
