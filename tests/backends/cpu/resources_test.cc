// Measurement resources of the CPU against plain definitions, recorded values, and each other.

#include "backends/cpu/resources.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/npy.h"
#include "backends/core/tensor.h"
#include "tests/backends/cpu/resource_job.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon::cpu {
namespace {

using measurement::OrderedPairStatistics;
using measurement::PairStatistics;
using ::tenon::testing::Fails;
using ::tenon::testing::TestPath;

// Resources that are whole numbers or distances: every provider gives the same bits.
std::vector<tenon_resource_key> ExactKeys(int64_t n) {
  const int64_t k = std::min<int64_t>(7, n - 1);
  return {{TENON_RESOURCE_KNN, kOriginal, k, 0},
          {TENON_RESOURCE_KNN, kOriginal, 1, 0},
          {TENON_RESOURCE_KNN, kEmbedded, n - 1, 0},
          {TENON_RESOURCE_SELECTED_RANKS, kPair, k, 0},
          {TENON_RESOURCE_SELECTED_RANKS, kPair, n - 1, 0},
          {TENON_RESOURCE_CONDENSED, kOriginal, 0, 0},
          {TENON_RESOURCE_CONDENSED, kEmbedded, 0, 0},
          kRankOrderKey,
          kTableKey};
}

struct Shape {
  int64_t rows, hd_columns, ld_columns;
};

class ExactResources : public ::testing::TestWithParam<Shape> {
 protected:
  const Points hd_ = GridPoints(GetParam().rows, GetParam().hd_columns, 1);
  const Points ld_ = GridPoints(GetParam().rows, GetParam().ld_columns, 2);
};

TEST_P(ExactResources, HaveTheBitsOfTheReference) {
  Job got(ExactKeys(hd_.rows), hd_, ld_), want(ExactKeys(hd_.rows), hd_, ld_);
  ASSERT_TRUE(got.Build().ok());
  ASSERT_TRUE(want.Build(true).ok());
  for (size_t o = 0; o < got.keys.size(); ++o) EXPECT_EQ(got.memory[o], want.memory[o]) << o;
}

TEST_P(ExactResources, FollowTheDefinitions) {
  Job job(ExactKeys(hd_.rows), hd_, ld_);
  ASSERT_TRUE(job.Build().ok());
  const int64_t n = hd_.rows, k = job.keys[3].k;
  int64_t pair = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j, ++pair) {
      ASSERT_EQ(job.Read<double>(5)[pair], hd_.Distance(i, j));
      ASSERT_EQ(job.Read<double>(6)[pair], ld_.Distance(i, j));
    }
    const auto before = [i](const Points& points, int64_t a, int64_t b) {
      const double da = points.Distance(i, a), db = points.Distance(i, b);
      return da < db || (da == db && a < b);
    };
    for (int64_t r = 0; r < k; ++r) {
      const int64_t neighbor = job.Read<int32_t>(0)[i * k + r];
      int64_t hd_rank = 1, ld_rank = 1;
      for (int64_t j = 0; j < n; ++j) {
        hd_rank += j != i && before(hd_, j, neighbor);
        ld_rank += j != i && before(ld_, j, neighbor);
      }
      ASSERT_NE(neighbor, i);
      ASSERT_EQ(hd_rank, r + 1);
      ASSERT_EQ(job.Read<int32_t>(3)[n * k + i * k + r], ld_rank);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExactResources,
                         ::testing::Values(Shape{2, 1, 1}, Shape{3, 2, 1}, Shape{8, 3, 2},
                                           Shape{9, 1, 3}, Shape{61, 5, 2}, Shape{200, 4, 2},
                                           Shape{130, 300, 2}, Shape{97, 17, 3}));

TEST(Resources, AreTheSameInManyTiles) {
  // More rows than the tiles of counting and filtering hold, distances in falling order by index.
  Points line{2500, 1, {}};
  for (int64_t i = 0; i < line.rows; ++i) line.values.push_back((line.rows - i) / 4);
  const Points ld = GridPoints(line.rows, 2, 5);
  const std::vector<tenon_resource_key> keys = {{TENON_RESOURCE_KNN, kOriginal, 3, 0},
                                                {TENON_RESOURCE_SELECTED_RANKS, kPair, 40, 0}};
  Job got(keys, line, ld), want(keys, line, ld);
  got.request.threads = 2;
  ASSERT_TRUE(got.Build().ok());
  ASSERT_TRUE(want.Build(true).ok());
  EXPECT_EQ(got.memory, want.memory);
}

TEST(Resources, AreTheSameForPermutedColumnsWhereSumsAreExact) {
  Points hd = GridPoints(120, 4, 3);
  for (double& value : hd.values) value = std::round(value * 10);
  Points permuted = hd;
  for (int64_t i = 0; i < hd.rows; ++i) {
    for (int64_t c = 0; c < 4; ++c) permuted.values[i * 4 + c] = hd.values[i * 4 + 3 - c];
  }
  Job got(ExactKeys(120), permuted, hd), want(ExactKeys(120), hd, permuted);
  ASSERT_TRUE(got.Build().ok());
  ASSERT_TRUE(want.Build().ok());
  EXPECT_EQ(got.memory, want.memory);
}

TEST(Resources, AgreeWithTheRecordedNeighborsAndRanks) {
  for (const char* name : {"dup60_k7", "grid64_k6"}) {
    const auto test =
        testing::ReadJsonOrDie(TestPath(std::string("golden/cases/resource_") + name + ".json"));
    const int64_t k = test.at("k").get<int64_t>();
    const std::string input = test.at("input").get<std::string>();
    Points hd, ld;
    for (auto [points, suffix] : {std::pair{&hd, ".hd.npy"}, std::pair{&ld, ".ld.npy"}}) {
      const Tensor tensor = *ReadNpyFile(TestPath("golden/inputs/" + input + suffix));
      *points = {tensor.spec.shape[0], tensor.spec.shape[1], {}};
      const double* values = tensor.buffer.as<double>();
      points->values.assign(values, values + points->rows * points->columns);
    }
    Job job({{TENON_RESOURCE_KNN, kOriginal, k, 0},
             {TENON_RESOURCE_KNN, kEmbedded, k, 0},
             {TENON_RESOURCE_SELECTED_RANKS, kPair, k, 0}},
            hd, ld);
    ASSERT_TRUE(job.Build().ok());
    for (int64_t i = 0; i < hd.rows; ++i) {
      for (int64_t r = 0; r < k; ++r) {
        const int64_t at = i * k + r;
        ASSERT_EQ(job.Read<int32_t>(0)[at], test.at("knn_hd")[i][r].get<int>());
        ASSERT_EQ(job.Read<int32_t>(1)[at], test.at("knn_ld")[i][r].get<int>());
        ASSERT_EQ(job.Read<int32_t>(2)[at], test.at("hd_rank_of_ld_neighbours")[i][r].get<int>());
        ASSERT_EQ(job.Read<int32_t>(2)[hd.rows * k + at],
                  test.at("ld_rank_of_hd_neighbours")[i][r].get<int>());
      }
    }
  }
}

// ---- Sums ------------------------------------------------------------------------------------

std::vector<tenon_resource_key> SumKeys() {
  return {{TENON_RESOURCE_PAIR_STATISTICS, kPair, 0, 0},
          {TENON_RESOURCE_DENSITY, kOriginal, 0, 0.1},
          {TENON_RESOURCE_DENSITY, kEmbedded, 0, 3.0},
          {TENON_RESOURCE_ORDERED_PAIR_STATISTICS, kPair, 0, measurement::kRankCorrelation},
          {TENON_RESOURCE_ORDERED_PAIR_STATISTICS, kPair, 0, measurement::kIsotonicFit}};
}

void ExpectNear(double got, double want, const char* what) {
  EXPECT_NEAR(got, want, 1e-13 * std::abs(want) + 1e-13) << what;
}

void ExpectClose(const PairStatistics& got, const PairStatistics& want) {
  EXPECT_EQ(got.count, want.count);
  ExpectNear(got.sum_original_squared, want.sum_original_squared, "o^2");
  ExpectNear(got.sum_embedded_squared, want.sum_embedded_squared, "e^2");
  ExpectNear(got.sum_product, want.sum_product, "o e");
  ExpectNear(got.sum_difference_squared, want.sum_difference_squared, "(o - e)^2");
  EXPECT_NEAR(got.scaled_residual, want.scaled_residual, 1e-13 * want.sum_original_squared);
  ExpectNear(got.mean_original, want.mean_original, "mean o");
  ExpectNear(got.mean_embedded, want.mean_embedded, "mean e");
  ExpectNear(got.moment_original, want.moment_original, "moment o");
  ExpectNear(got.moment_embedded, want.moment_embedded, "moment e");
  EXPECT_NEAR(got.comoment, want.comoment,
              1e-12 * std::sqrt(want.moment_original * want.moment_embedded));
  EXPECT_EQ(got.min_original, want.min_original);
  EXPECT_EQ(got.max_original, want.max_original);
  EXPECT_EQ(got.min_embedded, want.min_embedded);
  EXPECT_EQ(got.max_embedded, want.max_embedded);
}

void ExpectFit(const OrderedPairStatistics& got, const OrderedPairStatistics& want) {
  EXPECT_EQ(got.min_original, want.min_original);
  EXPECT_EQ(got.max_original, want.max_original);
  EXPECT_EQ(got.min_embedded, want.min_embedded);
  EXPECT_EQ(got.max_embedded, want.max_embedded);
  EXPECT_EQ(got.isotonic_blocks, want.isotonic_blocks);
  ExpectNear(got.sum_embedded_squared, want.sum_embedded_squared, "e^2");
  EXPECT_NEAR(got.isotonic_residual, want.isotonic_residual, 1e-14 * want.sum_embedded_squared);
}

TEST(Sums, AreThoseOfTheReference) {
  for (const int64_t n : {2, 3, 17, 150}) {
    SCOPED_TRACE(n);
    const Points hd = NormalPoints(n, 5, 1), ld = NormalPoints(n, 2, 2);
    Job order({kRankOrderKey, kPositionOrderKey}, hd, ld);
    ASSERT_TRUE(order.Build().ok());
    Job got(SumKeys(), hd, ld), want(SumKeys(), hd, ld);
    got.Offer(order);
    want.Offer(order);
    ASSERT_TRUE(got.Build().ok());
    ASSERT_TRUE(want.Build(true).ok());
    ExpectClose(*got.Read<PairStatistics>(0), *want.Read<PairStatistics>(0));
    for (const size_t density : {1, 2}) {
      for (int64_t i = 0; i <= n; ++i) {
        ExpectNear(got.Read<double>(density)[i], want.Read<double>(density)[i], "density");
      }
    }
    EXPECT_EQ(got.memory[3], want.memory[3]);
    ExpectFit(*got.Read<OrderedPairStatistics>(4), *want.Read<OrderedPairStatistics>(4));
  }
}

TEST(Sums, HaveTheSameBitsForAnyThreadsAndMemory) {
  const tbb::global_control allow(tbb::global_control::max_allowed_parallelism, 8);
  // Original distances tie; the places of ties in the order depend on threads.
  const Points hd = GridPoints(260, 3, 3), ld = NormalPoints(260, 2, 4);
  Job order({kRankOrderKey, kPositionOrderKey}, hd, ld);
  ASSERT_TRUE(order.Build().ok());
  Job one(SumKeys(), hd, ld);
  one.Offer(order);
  ASSERT_TRUE(one.Build().ok());
  for (const int threads : {2, 3, 8}) {
    Job other({kRankOrderKey, kPositionOrderKey}, hd, ld);
    other.request.threads = threads;
    ASSERT_TRUE(other.Build().ok());
    Job many(SumKeys(), hd, ld);
    many.Offer(other);
    many.request.threads = threads;
    ASSERT_TRUE(many.Build().ok());
    EXPECT_EQ(many.memory, one.memory);
  }
  Job small(SumKeys(), hd, ld);
  small.Offer(order);
  small.request.threads = 8;
  int64_t smallest = int64_t{1} << 30;
  while (ResourceWorkingMemory(small.request, smallest - smallest / 16).ok()) {
    smallest -= smallest / 16;
  }
  small.request.working_memory_bytes = smallest;
  ASSERT_TRUE(small.Build().ok());
  EXPECT_LE(small.statistics.working_bytes, smallest);
  EXPECT_LT(small.statistics.block_rows, one.statistics.block_rows);
  EXPECT_EQ(small.memory, one.memory);
}

TEST(Sums, OfManyBucketsOfPairsAreThoseOfTheReference) {
  const Points hd = GridPoints(500, 3, 7), ld = NormalPoints(500, 2, 8);
  Job got({kRankOrderKey, kPositionOrderKey}, hd, ld);
  Job want({kRankOrderKey, kPositionOrderKey}, hd, ld);
  got.request.threads = 2;
  ASSERT_TRUE(got.Build().ok());
  ASSERT_TRUE(want.Build(true).ok());
  ASSERT_EQ(got.memory[0], want.memory[0]);
  Job sums(SumKeys(), hd, ld), reference(SumKeys(), hd, ld);
  sums.Offer(got);
  reference.Offer(got);
  ASSERT_TRUE(sums.Build().ok());
  ASSERT_TRUE(reference.Build(true).ok());
  EXPECT_EQ(sums.memory[3], reference.memory[3]);
}

TEST(Sums, FitNonDecreasingValuesByMinMaxFormula) {
  const Points hd = GridPoints(14, 2, 5), ld = NormalPoints(14, 2, 6);
  Job order({kPositionOrderKey, {TENON_RESOURCE_CONDENSED, kOriginal, 0, 0}}, hd, ld);
  ASSERT_TRUE(order.Build().ok());
  const int64_t pairs = measurement::PairCount(14);
  std::vector<double> o(order.Read<double>(1), order.Read<double>(1) + pairs), e;
  for (int64_t i = 0; i < 14; ++i) {
    for (int64_t j = i + 1; j < 14; ++j) e.push_back(ld.Distance(i, j));
  }
  // The fit at o is the largest, over lower ends, of the smallest, over upper ends, mean of e.
  double residual = 0;
  for (int64_t p = 0; p < pairs; ++p) {
    double fit = -1;
    for (const double low : o) {
      if (low > o[p]) continue;
      double smallest = HUGE_VAL;
      for (const double high : o) {
        if (high < o[p]) continue;
        double sum = 0, count = 0;
        for (int64_t q = 0; q < pairs; ++q) {
          if (o[q] < low || o[q] > high) continue;
          sum += e[q];
          count += 1;
        }
        smallest = std::min(smallest, sum / count);
      }
      fit = std::max(fit, smallest);
    }
    residual += (e[p] - fit) * (e[p] - fit);
  }
  Job fit({{TENON_RESOURCE_ORDERED_PAIR_STATISTICS, kPair, 0, measurement::kIsotonicFit}}, hd, ld);
  fit.Offer(order);
  ASSERT_TRUE(fit.Build().ok());
  EXPECT_NEAR(fit.Read<OrderedPairStatistics>(0)->isotonic_residual, residual, 1e-12);
}

TEST(Sums, KeepTheResidualOfAScaledCopy) {
  const Points hd = NormalPoints(90, 3, 5);
  Points ld = hd;
  for (double& value : ld.values) value *= 0.25;
  Job job({{TENON_RESOURCE_PAIR_STATISTICS, kPair, 0, 0}}, hd, ld);
  ASSERT_TRUE(job.Build().ok());
  const auto* sums = job.Read<PairStatistics>(0);
  EXPECT_LE(sums->scaled_residual, 1e-28 * sums->sum_original_squared);
  ld.values[0] += 1e-9;
  ASSERT_TRUE(job.Build().ok());
  const double scale = sums->sum_product / sums->sum_embedded_squared;
  double want = 0;
  for (int64_t i = 0; i < 90; ++i) {
    for (int64_t j = i + 1; j < 90; ++j) {
      want += std::pow(hd.Distance(i, j) - scale * ld.Distance(i, j), 2);
    }
  }
  EXPECT_NEAR(sums->scaled_residual, want, 1e-6 * want);
}

TEST(Densities, AreZeroWhereAllPointsCoincide) {
  const Points hd = NormalPoints(5, 2, 1);
  const Points ld{5, 1, {3, 3, 3, 3, 3}};
  Job job({{TENON_RESOURCE_DENSITY, kEmbedded, 0, 0.1}}, hd, ld);
  ASSERT_TRUE(job.Build().ok());
  for (int64_t i = 0; i <= 5; ++i) EXPECT_EQ(job.Read<double>(0)[i], 0.0);
}

TEST(Densities, HaveVanishingKernels) {
  const Points hd = NormalPoints(40, 2, 1);
  Job got({{TENON_RESOURCE_DENSITY, kOriginal, 0, 1e-4}}, hd, hd);
  Job want({{TENON_RESOURCE_DENSITY, kOriginal, 0, 1e-4}}, hd, hd);
  ASSERT_TRUE(got.Build().ok());
  ASSERT_TRUE(want.Build(true).ok());
  for (int64_t i = 0; i < 40; ++i) ExpectNear(got.Read<double>(0)[i], want.Read<double>(0)[i], "g");
}

TEST(Geodesic, DistancesAreGreatCircles) {
  const double pi = std::acos(-1.0);
  const Points hd{4, 2, {0, 0, pi / 2, 0, 0, pi / 2, pi, 0}};
  for (const bool reference : {false, true}) {
    Job job({{TENON_RESOURCE_CONDENSED, kOriginal, 0, 0}}, hd, hd);
    job.request.original.geodesic = 1;
    ASSERT_TRUE(job.Build(reference).ok());
    const double want[] = {pi / 2, pi / 2, pi, pi / 2, pi / 2, pi / 2};
    for (int p = 0; p < 6; ++p) EXPECT_NEAR(job.Read<double>(0)[p], want[p], 1e-15) << p;
  }
}

TEST(SinglePrecision, DistancesAreRoundedOncePerOperation) {
  std::vector<float> values;
  for (int p = 0; p < 33 * 3; ++p) values.push_back(static_cast<float>(p * p % 31) / 7.0f);
  Points shape{33, 3, std::vector<double>(99)};
  Job job({{TENON_RESOURCE_CONDENSED, kEmbedded, 0, 0}}, shape, shape);
  job.request.embedded = {values.data(), TENON_DTYPE_FLOAT32, 0, 33, 3};
  ASSERT_TRUE(job.Build().ok());
  const double* got = job.Read<double>(0);
  for (int i = 0; i < 33; ++i) {
    for (int j = i + 1; j < 33; ++j) {
      float sum = 0;
      for (int c = 0; c < 3; ++c) {
        const float difference = values[i * 3 + c] - values[j * 3 + c];
        sum += difference * difference;
      }
      ASSERT_EQ(*got++, static_cast<double>(std::sqrt(sum)));
    }
  }
}

// ---- Errors ----------------------------------------------------------------------------------

class BadRequest : public ::testing::Test {
 protected:
  void ExpectRefused(Reason reason) {
    for (const bool reference : {false, true}) {
      EXPECT_TRUE(Fails(job_.Build(reference), reason)) << reference;
    }
  }
  const Points points_ = NormalPoints(6, 2, 1);
  Job job_{{{TENON_RESOURCE_KNN, kOriginal, 2, 0}}, points_, points_};
};

TEST_F(BadRequest, WithoutOutputs) {
  job_.request.n_outputs = 0;
  ExpectRefused(Reason::kBadParameter);
}

TEST_F(BadRequest, WithTooLittleMemoryForAnOutput) {
  --job_.outputs[0].bytes;
  ExpectRefused(Reason::kShapeMismatch);
}

TEST_F(BadRequest, WithoutPoints) {
  job_.request.original.data = nullptr;
  ExpectRefused(Reason::kBadParameter);
}

TEST_F(BadRequest, WithUnknownKind) {
  job_.outputs[0].key.kind = 77;
  ExpectRefused(Reason::kBadParameter);
}

TEST_F(BadRequest, WithKOfAllRows) {
  job_.outputs[0].key.k = 6;
  ExpectRefused(Reason::kBadParameter);
}

TEST_F(BadRequest, WithUnknownElementType) {
  job_.request.original.dtype = TENON_DTYPE_INT32;
  ExpectRefused(Reason::kUnsupportedDtype);
}

TEST_F(BadRequest, WithGeodesicPointsOfOneColumn) {
  job_.request.original.geodesic = 1;
  job_.request.original.columns = 1;
  ExpectRefused(Reason::kShapeMismatch);
}

TEST_F(BadRequest, WithoutThePairOrder) {
  Job job({{TENON_RESOURCE_ORDERED_PAIR_STATISTICS, kPair, 0, measurement::kIsotonicFit}}, points_,
          points_);
  EXPECT_TRUE(Fails(job.Build(), Reason::kBadParameter));
  EXPECT_TRUE(Fails(job.Build(true), Reason::kBadParameter));
}

TEST_F(BadRequest, WithSpacesOfDifferentRows) {
  Job job({{TENON_RESOURCE_PAIR_STATISTICS, kPair, 0, 0}}, points_, points_);
  --job.request.embedded.rows;
  EXPECT_TRUE(Fails(job.Build(), Reason::kShapeMismatch));
}

TEST_F(BadRequest, WithTooLittleScratch) {
  const auto needed = ResourceWorkingMemory(job_.request, int64_t{1} << 40);
  ASSERT_TRUE(needed.ok());
  EXPECT_TRUE(Fails(ResourceWorkingMemory(job_.request, 1), Reason::kExceedsMemoryBudget));
  job_.request.working_memory_bytes = 1;
  EXPECT_TRUE(Fails(job_.Build(), Reason::kExceedsMemoryBudget));
  job_.request.working_memory_bytes = *needed;
  EXPECT_TRUE(job_.Build().ok());
}

TEST_F(BadRequest, ThatIsCancelled) {
  const int32_t cancel = 1;
  job_.request.cancel = &cancel;
  ExpectRefused(Reason::kClientCancelled);
  job_.request.threads = 2;
  EXPECT_TRUE(Fails(job_.Build(), Reason::kClientCancelled));
}

}  // namespace
}  // namespace tenon::cpu
