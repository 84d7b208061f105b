#include "backends/measurement/kmeans.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "backends/core/error.h"
#include "tests/support/status_matchers.h"

namespace tenon::measurement {
namespace {

using ::tenon::testing::Fails;

constexpr int64_t kColumns = 3;

// A cloud of 300 points without clear clusters.
std::vector<double> Cloud() {
  std::vector<double> points;
  for (int i = 0; i < 300; ++i) {
    points.push_back(std::sin(i * 1.7) * 3 + i % 7);
    points.push_back(std::cos(i * 0.9) * 2 + i % 5 * 1.5);
    points.push_back(std::sin(i * 0.31) * std::cos(i * 2.3));
  }
  return points;
}

// `count` points around each of the centres (0, 0), (10, 0), (20, 0), ...; point i belongs to
// centre i % blobs.
std::vector<double> Blobs(int64_t blobs, int64_t count) {
  std::vector<double> points;
  for (int64_t i = 0; i < blobs * count; ++i) {
    points.push_back(static_cast<double>(i % blobs) * 10 + std::sin(static_cast<double>(i) * 1.3));
    points.push_back(std::cos(static_cast<double>(i) * 0.7));
  }
  return points;
}

absl::StatusOr<KMeansResult> Cluster(const std::vector<double>& points, int64_t columns,
                                     const KMeansOptions& options, int threads = 1) {
  const auto n = static_cast<int64_t>(points.size()) / columns;
  return KMeans(points.data(), n, columns, options, Parallel(threads, nullptr));
}

// Means of clusters by their definition; clusters without points are NaN.
std::vector<double> MeansOf(const std::vector<double>& points, int64_t columns,
                            const KMeansResult& result, int64_t clusters) {
  std::vector<double> means(clusters * columns), counts(clusters);
  for (size_t i = 0; i < result.labels.size(); ++i) {
    counts[result.labels[i]] += 1;
    for (int64_t c = 0; c < columns; ++c) {
      means[result.labels[i] * columns + c] += points[i * columns + c];
    }
  }
  for (int64_t k = 0; k < clusters; ++k) {
    for (int64_t c = 0; c < columns; ++c) means[k * columns + c] /= counts[k];
  }
  return means;
}

double Square(const double* a, const double* b, int64_t columns) {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return sum;
}

TEST(KMeans, FindsSeparatedBlobsFromEveryStart) {
  const std::vector<double> points = Blobs(4, 40);
  for (const bool plus_plus : {true, false}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(seed);
      const auto result =
          Cluster(points, 2, {.clusters = 4, .n_init = 10, .plus_plus = plus_plus, .seed = seed});
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->labels.size(), 160u);
      for (size_t i = 0; i < 160; ++i) EXPECT_EQ(result->labels[i], result->labels[i % 4]);
      EXPECT_EQ(std::set<int32_t>(result->labels.begin(), result->labels.end()).size(), 4u);
    }
  }
}

TEST(KMeans, EndsWhereEveryPointIsNearestToItsOwnMean) {
  const std::vector<double> points = Cloud();
  for (const int64_t clusters : {1, 2, 5, 17, 64}) {
    SCOPED_TRACE(clusters);
    const auto result = Cluster(points, kColumns, {.clusters = clusters, .tolerance = 0});
    ASSERT_TRUE(result.ok()) << result.status();
    const std::vector<double> means = MeansOf(points, kColumns, *result, clusters);
    double inertia = 0;
    for (int64_t i = 0; i < 300; ++i) {
      const double* row = &points[i * kColumns];
      const double own = Square(row, &means[result->labels[i] * kColumns], kColumns);
      for (int64_t k = 0; k < clusters; ++k) {
        EXPECT_LE(own, Square(row, &means[k * kColumns], kColumns) + 1e-12);
      }
      inertia += own;
    }
    EXPECT_NEAR(result->inertia, inertia, 1e-12 * inertia);
    EXPECT_GE(result->iterations, 1);
    EXPECT_LT(result->iterations, 300);
  }
}

TEST(KMeans, StopsAfterTheAllowedIterations) {
  const auto result =
      Cluster(Cloud(), kColumns, {.clusters = 17, .max_iterations = 2, .tolerance = 0});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->iterations, 2);
}

TEST(KMeans, StopsSoonerWithALargeTolerance) {
  const auto strict = Cluster(Cloud(), kColumns, {.clusters = 17, .tolerance = 0});
  const auto loose = Cluster(Cloud(), kColumns, {.clusters = 17, .tolerance = 1e6});
  ASSERT_TRUE(strict.ok() && loose.ok());
  EXPECT_EQ(loose->iterations, 1);
  EXPECT_GT(strict->iterations, 1);
  EXPECT_LT(strict->inertia, loose->inertia);
}

// scikit-learn 1.9.1: least inertia of KMeans(clusters, n_init=10, random_state=s), s = 0 .. 19.
TEST(KMeans, FindsTheBestClusteringThatAPeerFinds) {
  const auto three = Cluster(Cloud(), kColumns, {.clusters = 3, .n_init = 60, .tolerance = 0});
  const auto eight = Cluster(Cloud(), kColumns, {.clusters = 8, .n_init = 1000, .tolerance = 0});
  ASSERT_TRUE(three.ok() && eight.ok());
  EXPECT_NEAR(three->inertia, 1900.8136349724277, 1e-9);
  EXPECT_LE(eight->inertia, 746.934665082552);
}

double MeanInertia(bool plus_plus) {
  double sum = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    sum +=
        Cluster(Cloud(), kColumns, {.clusters = 20, .plus_plus = plus_plus, .seed = seed})->inertia;
  }
  return sum / 200;
}

// scikit-learn 1.9.1, KMeans(20, n_init=1, init=..., random_state=s), s = 0 .. 199: mean 324.38,
// deviation 9.1 with k-means++; mean 339.6, deviation below 15 with random rows. The bounds are
// four standard errors of the difference of two such means.
TEST(KMeans, IsAsGoodAsAPeerOnAverage) {
  EXPECT_NEAR(MeanInertia(true), 324.38, 3.7);
  EXPECT_NEAR(MeanInertia(false), 339.6, 6.0);
}

TEST(KMeans, KeepsTheBestRunAndTheFirstOfEquals) {
  const std::vector<double> points = Cloud();
  double best = std::numeric_limits<double>::infinity();
  for (int64_t runs = 1; runs <= 6; ++runs) {
    const auto result = Cluster(points, kColumns, {.clusters = 8, .n_init = runs, .seed = 3});
    ASSERT_TRUE(result.ok());
    EXPECT_LE(result->inertia, best);
    best = result->inertia;
  }
  const auto one = Cluster(Blobs(3, 5), 2, {.clusters = 3, .n_init = 1});
  const auto many = Cluster(Blobs(3, 5), 2, {.clusters = 3, .n_init = 5});
  EXPECT_EQ(one->labels, many->labels);
}

TEST(KMeans, RefillsClustersThatLoseTheirPoints) {
  // Random rows are mostly equal ones; the clusters of all but one of them start empty.
  std::vector<double> points(50, 0.0);
  points.insert(points.end(), {10.0, 20.0, 35.0});
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto result = Cluster(points, 1, {.clusters = 4, .plus_plus = false, .seed = seed});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->inertia, 0.0);
    EXPECT_EQ(std::set<int32_t>(result->labels.begin(), result->labels.end()).size(), 4u);
  }
}

TEST(KMeans, LeavesClustersEmptyWhenThereAreFewerDistinctPoints) {
  const std::vector<double> points = {1, 1, 1, 4, 4, 4, 1};
  for (const bool plus_plus : {true, false}) {
    const auto result = Cluster(points, 1, {.clusters = 5, .plus_plus = plus_plus});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->inertia, 0.0);
    EXPECT_EQ(result->labels[0], result->labels[6]);
    EXPECT_EQ(result->labels[3], result->labels[5]);
    EXPECT_NE(result->labels[0], result->labels[3]);
  }
}

TEST(KMeans, ClustersAllPointsIntoOneOrEachIntoItsOwn) {
  const std::vector<double> points = {3, 1, 7, 9};
  const auto one = Cluster(points, 1, {.clusters = 1});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->labels, (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(one->inertia, 40.0);
  const auto all = Cluster(points, 1, {.clusters = 4});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->inertia, 0.0);
  EXPECT_EQ(std::set<int32_t>(all->labels.begin(), all->labels.end()).size(), 4u);
}

TEST(KMeans, HasTheSameBitsForAnyNumberOfThreads) {
  const std::vector<double> points = Blobs(7, 9001);  // many blocks
  for (const bool plus_plus : {true, false}) {
    const KMeansOptions options = {.clusters = 12, .plus_plus = plus_plus, .max_iterations = 8};
    const auto one = Cluster(points, 2, options, 1);
    ASSERT_TRUE(one.ok());
    for (const int threads : {2, 5}) {
      const auto many = Cluster(points, 2, options, threads);
      ASSERT_TRUE(many.ok());
      EXPECT_EQ(one->labels, many->labels);
      EXPECT_EQ(std::bit_cast<uint64_t>(one->inertia), std::bit_cast<uint64_t>(many->inertia));
    }
  }
}

TEST(KMeans, HasAnInfiniteInertiaWhereSquaresOverflow) {
  const std::vector<double> points = {1e200, -1e200, 3e200, 1e308, -1e308, 0, 5, 1e200};
  for (const bool plus_plus : {true, false}) {
    const auto result = Cluster(points, 1, {.clusters = 3, .plus_plus = plus_plus});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->inertia, std::numeric_limits<double>::infinity());
    for (const int32_t label : result->labels) EXPECT_TRUE(label >= 0 && label < 3) << label;
  }
}

TEST(KMeans, RefusesOptionsOutOfRange) {
  const std::vector<double> points = {1, 2, 3};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const KMeansOptions& options : {KMeansOptions{.clusters = 0}, KMeansOptions{.clusters = 4},
                                       KMeansOptions{.clusters = 2, .n_init = 0},
                                       KMeansOptions{.clusters = 2, .max_iterations = 0},
                                       KMeansOptions{.clusters = 2, .tolerance = -1},
                                       KMeansOptions{.clusters = 2, .tolerance = nan}}) {
    EXPECT_TRUE(Fails(Cluster(points, 1, options), Reason::kBadParameter));
  }
}

TEST(KMeans, StopsWhenCancelled) {
  const int32_t cancel = 1;
  const std::vector<double> points = Cloud();
  for (const bool plus_plus : {true, false}) {
    EXPECT_TRUE(Fails(KMeans(points.data(), 300, kColumns, {.clusters = 4, .plus_plus = plus_plus},
                             Parallel(2, &cancel)),
                      Reason::kClientCancelled));
  }
}

}  // namespace
}  // namespace tenon::measurement
