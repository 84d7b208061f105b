#include "backends/measurement/dbscan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backends/core/error.h"
#include "backends/measurement/row_metric.h"

namespace tenon::testing {
namespace {

using measurement::Dbscan;
using measurement::RowMetric;

struct Points {
  std::vector<double> values;
  int64_t columns;

  int64_t rows() const { return static_cast<int64_t>(values.size()) / columns; }
  const double* Row(int64_t i) const { return values.data() + i * columns; }
  tenon_matrix Matrix() const { return {values.data(), TENON_DTYPE_FLOAT64, 0, rows(), columns}; }
};

std::vector<int32_t> Cluster(const Points& points, double eps, int64_t min_samples,
                             RowMetric metric = RowMetric::kEuclidean, double p = 2,
                             int threads = 1) {
  const Parallel parallel(threads, nullptr);
  const auto labels = Dbscan(points.Matrix(), eps, min_samples, metric, p, parallel);
  EXPECT_TRUE(labels.ok()) << labels.status();
  return labels.ok() ? *labels : std::vector<int32_t>{};
}

// Few values, many ties, zero rows and a duplicate.
Points SmallPoints() {
  constexpr double kValues[] = {0, 0, 1, 2, 0.5};
  Points points{{}, 5};
  uint32_t state = 1;
  for (int i = 0; i < 24 * 5; ++i) {
    state = (state * 1103515245u + 12345u) % (1u << 31);
    points.values.push_back(kValues[(state >> 16) % 5]);
  }
  for (int c = 0; c < 5; ++c) {
    points.values[7 * 5 + c] = points.values[15 * 5 + c] = 0;
    points.values[19 * 5 + c] = points.values[3 * 5 + c];
  }
  return points;
}

struct Expected {
  std::string metric;
  double eps, p;
  std::vector<int32_t> labels;
};

// scikit-learn 1.9.1 and 1.2.1: DBSCAN(eps=eps, min_samples=3, metric=metric, p=p).
const std::vector<Expected> kExpected = {
    {"euclidean", 1.2, 2, {1, 0, 0, 1, 3, 0, 0, 0, -1, 2, -1, 1,
                           3, 3, 2, 0, 1, 0, 0, 1, 0,  2, -1, 3}},
    {"cityblock", 1.75, 2, {1, 0, 0, 1, 3, 0, 0, 0, -1, 2, -1, 1,
                            3, 3, 2, 0, 1, 0, 0, 1, 0,  2, -1, 3}},
    {"chebyshev", 0.5, 2, {-1, 0,  -1, -1, 1,  0, 0, 0,  -1, -1, -1, -1,
                           1,  -1, -1, 0,  -1, 0, 0, -1, -1, -1, -1, 1}},
    {"minkowski", 1.0, 4.5, {-1, 0, -1, -1, 2,  0, 0, 0,  -1, 1, -1, -1,
                             2,  2, 1,  0,  -1, 0, 0, -1, 0,  1, -1, 2}},
    {"cosine", 0.2, 2, {0, 0, 0, 0,  0, 0,  0, -1, 0, 0, 0,  0,
                        0, 0, 0, -1, 0, -1, 0, 0,  0, 0, -1, 0}},
    {"correlation", 0.3, 2, {0, 0, 0, 0,  0, 0, 0, -1, -1, 0, 0,  0,
                             0, 0, 0, -1, 0, 0, 0, 0,  0,  0, -1, 0}},
    {"canberra", 1.2, 2, {3,  0,  3, 1, -1, 0, 0,  0, -1, 2, 0,  1,
                          -1, -1, 2, 0, 3,  0, -1, 1, 0,  2, -1, -1}},
    {"braycurtis", 0.3, 2, {0, 1, -1, 0,  0, 1,  1,  -1, 1, 2, 1,  0,
                            0, 0, 2,  -1, 0, -1, -1, 0,  1, 2, -1, 0}},
    {"hamming", 0.4, 2, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0}},
    {"jaccard", 0.4, 2, {0, 0, 0, 0,  -1, 0,  0, -1, 0, 0, 0, 0,
                         0, 0, 0, -1, 0,  -1, 0, 0,  0, 0, 0, -1}},
    {"dice", 0.21, 2, {0, 0, 0, 0,  -1, 0,  0, -1, 0, 0, 0, 0,
                       0, 0, 0, -1, 0,  -1, 0, 0,  0, 0, 0, -1}},
    {"russellrao", 0.5, 2, {0, 0, 0,  0,  -1, -1, 0,  -1, 0, 0,  0, 0,
                            0, 0, -1, -1, 0,  -1, -1, 0,  0, -1, 0, -1}},
    {"rogerstanimoto", 0.4, 2, {0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0,
                                0, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, -1}},
    {"sokalsneath", 0.5, 2, {0, 0, 0, 0,  -1, 0,  0, -1, 0, 0, 0, 0,
                             0, 0, 0, -1, 0,  -1, 0, 0,  0, 0, 0, -1}},
    {"yule", 0.2, 2, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {"sqeuclidean", 1.44, 2, {1, 0, 0, 1, 3, 0, 0, 0, -1, 2, -1, 1,
                              3, 3, 2, 0, 1, 0, 0, 1, 0,  2, -1, 3}},
};

TEST(Dbscan, HasTheLabelsOfScikitLearn) {
  for (const Expected& expected : kExpected) {
    SCOPED_TRACE(expected.metric);
    const RowMetric metric = *measurement::ParseRowMetric(expected.metric);
    EXPECT_EQ(Cluster(SmallPoints(), expected.eps, 3, metric, expected.p), expected.labels);
  }
}

// By the definition, from all neighbourhoods: every cluster is flooded from its first core row.
std::vector<int32_t> NaiveLabels(const Points& points, double eps, int64_t min_samples, double p) {
  const int64_t n = points.rows();
  std::vector<std::vector<int64_t>> neighbors(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t c = 0; c < points.columns; ++c) {
        const double difference = std::abs(points.Row(i)[c] - points.Row(j)[c]);
        sum += p == 2 ? difference * difference : std::pow(difference, p);
      }
      if (sum <= (p == 2 ? eps * eps : std::pow(eps, p))) neighbors[i].push_back(j);
    }
  }
  const auto is_core = [&](int64_t i) {
    return static_cast<int64_t>(neighbors[i].size()) >= min_samples;
  };
  std::vector<int32_t> labels(n, -1);
  int32_t label = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (labels[i] >= 0 || !is_core(i)) continue;
    std::vector<int64_t> stack = {i};
    while (!stack.empty()) {
      const int64_t j = stack.back();
      stack.pop_back();
      if (labels[j] >= 0) continue;
      labels[j] = label;
      if (is_core(j)) stack.insert(stack.end(), neighbors[j].begin(), neighbors[j].end());
    }
    ++label;
  }
  return labels;
}

// Blobs and a background; `step` > 0 rounds to a lattice, which makes distances equal the radius.
Points Blobs(int64_t n, int64_t columns, uint32_t seed, double step, double scale, double shift) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(-5, 5);
  std::vector<double> centers(6 * columns);
  for (double& center : centers) center = uniform(generator);
  Points points{{}, columns};
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      double value =
          i % 7 == 6 ? uniform(generator) : centers[i % 7 * columns + c] + 0.4 * normal(generator);
      if (step > 0) value = std::round(value / step) * step;
      points.values.push_back(value * scale + shift);
    }
  }
  return points;
}

TEST(Dbscan, AgreesWithTheDefinitionOnManyPoints) {
  for (const int64_t columns : {1, 2, 3, 17}) {
    for (const double step : {0.0, 0.25}) {
      for (const double eps : {0.05, 0.25, 0.5, 1.0, 30.0}) {
        for (const int64_t min_samples : {1, 4, 12}) {
          SCOPED_TRACE(::testing::Message() << columns << " columns, step " << step << ", eps "
                                            << eps << ", min_samples " << min_samples);
          const Points points = Blobs(250, columns, 7, step, 1, 0);
          EXPECT_EQ(Cluster(points, eps, min_samples), NaiveLabels(points, eps, min_samples, 2));
        }
      }
    }
  }
}

TEST(Dbscan, AgreesWithTheDefinitionInOtherMinkowskiMetrics) {
  const Points points = Blobs(300, 2, 9, 0.125, 1, 0);
  for (const double p : {1.0, 1.5, 3.0}) {
    EXPECT_EQ(Cluster(points, 0.375, 5, RowMetric::kMinkowski, p), NaiveLabels(points, 0.375, 5, p))
        << p;
  }
  EXPECT_EQ(Cluster(points, 0.375, 5, RowMetric::kCityBlock), NaiveLabels(points, 0.375, 5, 1));
  // Both are exact on this lattice.
  EXPECT_EQ(Cluster(points, 0.140625, 5, RowMetric::kSqEuclidean),
            NaiveLabels(points, 0.375, 5, 2));
}

TEST(Dbscan, KeepsItsLabelsFarFromTheOriginAndAtAnyScale) {
  for (const double scale : {0x1p-500, 1.0, 0x1p400}) {
    const Points points = Blobs(300, 2, 3, 0.25, scale, 0);
    EXPECT_EQ(Cluster(points, 0.25 * scale, 4), NaiveLabels(points, 0.25 * scale, 4, 2)) << scale;
  }
  const Points shifted = Blobs(300, 2, 3, 0.25, 1, 1e9);
  EXPECT_EQ(Cluster(shifted, 0.25, 4), NaiveLabels(shifted, 0.25, 4, 2));
  // Cells as wide as the radius would be far too many.
  Points spread = Blobs(300, 2, 3, 0, 1, 0);
  spread.values[0] = 1e12;
  EXPECT_EQ(Cluster(spread, 0.3, 4), NaiveLabels(spread, 0.3, 4, 2));
  spread.values[0] = 1e308;
  spread.values[2] = -1e308;
  EXPECT_EQ(Cluster(spread, 0.3, 4), NaiveLabels(spread, 0.3, 4, 2));
}

TEST(Dbscan, TakesPowersThatOverflowOrVanishForNeighbours) {
  const Points wide{{0, 1e155, -1e155, 1e300}, 1};
  EXPECT_EQ(Cluster(wide, 1e200, 4), (std::vector<int32_t>{0, 0, 0, 0}));
  const Points narrow{{0, 1e-170, 3e-170, 1e-3}, 1};
  EXPECT_EQ(Cluster(narrow, 1e-180, 3), (std::vector<int32_t>{0, 0, 0, -1}));
  EXPECT_EQ(Cluster(narrow, 1e-5, 4, RowMetric::kMinkowski, 200),
            (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST(Dbscan, FindsEverythingOrNothing) {
  const Points same{std::vector<double>(40, 3.5), 2};
  EXPECT_EQ(Cluster(same, 1e-9, 20), std::vector<int32_t>(20, 0));
  EXPECT_EQ(Cluster(same, 1e-9, 21), std::vector<int32_t>(20, -1));
  const Points line{{0, 1, 2, 3}, 1};
  EXPECT_EQ(Cluster(line, 0.5, 1), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(Dbscan, GivesABorderRowToTheFirstCluster) {
  // Row 0 lies within the radius of a core row of either cluster and is none itself.
  const Points points{{0, 2, 2.5, 3, -2, -2.5, -3}, 1};
  EXPECT_EQ(Cluster(points, 2, 4), (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1}));
}

TEST(Dbscan, WidensSinglePrecision) {
  const std::vector<float> values = {0.1f, 0.2f, 0.3f, 5};
  const tenon_matrix matrix = {values.data(), TENON_DTYPE_FLOAT32, 0, 4, 1};
  const Parallel parallel(1, nullptr);
  // 0.2f - 0.1f is just above, 0.3f - 0.2f just above 0.1 in float64, too.
  const auto labels = Dbscan(matrix, 0.10000001, 2, RowMetric::kEuclidean, 2, parallel);
  ASSERT_TRUE(labels.ok());
  const Points wide{{values.begin(), values.end()}, 1};
  EXPECT_EQ(*labels, NaiveLabels(wide, 0.10000001, 2, 2));
}

TEST(Dbscan, DoesNotDependOnTheNumberOfThreads) {
  const Points points = Blobs(3000, 2, 5, 0, 1, 0);
  for (const RowMetric metric : {RowMetric::kEuclidean, RowMetric::kCosine}) {
    EXPECT_EQ(Cluster(points, 0.05, 4, metric, 2, 1), Cluster(points, 0.05, 4, metric, 2, 4));
  }
}

TEST(Dbscan, StopsWhenCancelled) {
  const int32_t cancelled = 1;
  const Parallel parallel(2, &cancelled);
  const Points points = Blobs(1000, 2, 5, 0, 1, 0);
  const auto labels = Dbscan(points.Matrix(), 0.1, 4, RowMetric::kEuclidean, 2, parallel);
  ASSERT_FALSE(labels.ok());
  EXPECT_EQ(GetErrorDetails(labels.status()).reason, Reason::kClientCancelled);
}

}  // namespace
}  // namespace tenon::testing
