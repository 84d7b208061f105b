// Similarities of shared neighbours, walks over them and clusters of walks against loops over dense
// matrices.

#include "backends/measurement/shared_neighbors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "backends/core/error.h"
#include "backends/measurement/cluster_pairs.h"
#include "backends/measurement/cluster_walk.h"
#include "backends/measurement/counter_random.h"
#include "backends/measurement/reachability.h"
#include "tests/backends/measurement/dense_prim.h"

namespace tenon::measurement {
namespace {

using testing::DensePrim;
using testing::Square;

const Parallel kSerial(1, nullptr);

// Neighbour lists of random points, every row's own k.
class RandomLists {
 public:
  RandomLists(int64_t n, int64_t k, uint64_t seed, int64_t columns = 2) {
    CounterRandom random(seed, 0);
    std::vector<double> points(n * columns);
    for (double& value : points) value = random.Uniform();
    for (int64_t i = 0; i < n; ++i) {
      std::vector<std::pair<double, int32_t>> others;
      for (int64_t j = 0; j < n; ++j) {
        double distance = 0;
        for (int64_t c = 0; c < columns; ++c) {
          distance += std::pow(points[i * columns + c] - points[j * columns + c], 2);
        }
        if (j != i) others.emplace_back(distance, static_cast<int32_t>(j));
      }
      std::sort(others.begin(), others.end());
      for (int64_t r = 0; r < k; ++r) table_.push_back(others[r].second);
    }
    lists_ = {{table_.data(), k}, n, k};
  }
  const NeighborLists& get() const { return lists_; }

 private:
  std::vector<int32_t> table_;
  NeighborLists lists_;
};

Square DenseProducts(const NeighborLists& lists) {
  Square weights(lists.n, std::vector<double>(lists.n)), products = weights;
  for (int64_t i = 0; i < lists.n; ++i) {
    for (int64_t r = 0; r < lists.k; ++r) {
      weights[i][lists.table.Row(i)[r]] = static_cast<double>(lists.k + 1 - r);
    }
  }
  for (int64_t i = 0; i < lists.n; ++i) {
    for (int64_t j = 0; j < lists.n; ++j) {
      for (int64_t m = 0; m < lists.n && i != j; ++m)
        products[i][j] += weights[i][m] * weights[j][m];
    }
  }
  return products;
}

double Largest(const Square& square) {
  double largest = 0;
  for (const auto& row : square)
    largest = std::max(largest, *std::max_element(row.begin(), row.end()));
  return largest;
}

SharedNeighbors Share(const NeighborLists& lists, const Parallel& parallel = kSerial) {
  auto shared = ShareNeighbors(lists, parallel);
  EXPECT_TRUE(shared.ok()) << shared.status();
  return *std::move(shared);
}

TEST(SharedNeighbors, HaveTheProductsOfTheDenseMatrix) {
  for (const auto& [n, k] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {9, 8}, {40, 6}, {130, 12}}) {
    SCOPED_TRACE(n);
    const RandomLists lists(n, k, 1);
    const Square products = DenseProducts(lists.get());
    const double largest = Largest(products);
    for (const int threads : {1, 3}) {
      const SharedNeighbors shared = Share(lists.get(), Parallel(threads, nullptr));
      EXPECT_EQ(shared.largest, largest > 0 ? largest : 1);
      SparseSums sums;
      sums.Resize(n);
      for (int64_t i = 0; i < n; ++i) {
        AddRow(lists.get(), i, shared.rows, sums);
        for (int64_t j = 0; j < n; ++j) {
          if (i != j) {
            EXPECT_EQ(sums.At(static_cast<int32_t>(j)), products[i][j]);
          }
        }
        sums.Clear();
        for (int64_t r = 0; r < k; ++r) {
          EXPECT_EQ(shared.neighbors[i * k + r],
                    products[i][lists.get().table.Row(i)[r]] / shared.largest);
        }
      }
    }
  }
}

TEST(SharedNeighbors, SkipGroupsBelowTheFirst) {
  const RandomLists lists(50, 7, 2);
  const SharedNeighbors shared = Share(lists.get());
  const Square products = DenseProducts(lists.get());
  SparseSums sums;
  sums.Resize(50);
  AddRow(lists.get(), 20, shared.rows, sums, 21);
  for (int32_t j = 0; j < 50; ++j) EXPECT_EQ(sums.At(j), j > 20 ? products[20][j] : 0) << j;
}

TEST(SharedNeighbors, FindTheRangeOfDifferences) {
  for (const double alpha : {0.1, 2.0}) {
    const RandomLists first(90, 8, 3), second(90, 8, 4);
    const SharedNeighbors a = Share(first.get()), b = Share(second.get());
    const Square pa = DenseProducts(first.get()), pb = DenseProducts(second.get());
    DifferenceRange want;
    for (int64_t i = 0; i < 90; ++i) {
      for (int64_t j = 0; j < 90; ++j) {
        const double difference =
            1 / (pa[i][j] / Largest(pa) + alpha) - 1 / (pb[i][j] / Largest(pb) + alpha);
        want.least = std::min(want.least, difference);
        want.largest = std::max(want.largest, difference);
      }
    }
    for (const int threads : {1, 4}) {
      const auto got = RangeOfDifferences(a, b, alpha, Parallel(threads, nullptr));
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->least, want.least);
      EXPECT_EQ(got->largest, want.largest);
    }
    const auto same = RangeOfDifferences(a, a, alpha, kSerial);
    EXPECT_EQ(same->least, 0);
    EXPECT_EQ(same->largest, 0);
  }
}

TEST(SharedNeighbors, KnowWhetherAnyNeighborIsSimilar) {
  EXPECT_TRUE(AnyNeighborIsSimilar(RandomLists(40, 6, 5).get()));
  EXPECT_FALSE(AnyNeighborIsSimilar(RandomLists(40, 1, 5).get()));  // its only one is the neighbour
  EXPECT_TRUE(AnyNeighborIsSimilar(RandomLists(3, 2, 5).get()));
  EXPECT_FALSE(AnyNeighborIsSimilar(RandomLists(2, 1, 5).get()));
  // Rings of four without chords: neighbours never share one.
  const std::vector<int32_t> table = {1, 3, 0, 2, 1, 3, 0, 2};
  EXPECT_FALSE(AnyNeighborIsSimilar({{table.data(), 2}, 4, 2}));
}

// ---- Prim's order ----------------------------------------------------------------------------

std::vector<int32_t> SomeRows(int64_t n, double share, uint64_t seed) {
  CounterRandom random(seed, 1);
  std::vector<int32_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0);
  random.Shuffle<int32_t>(rows);
  rows.resize(std::max<int64_t>(2, std::llround(share * static_cast<double>(n))));
  return rows;
}

// Dissimilarities of `members` with zeros on the diagonal.
Square DenseDissimilarities(const NeighborLists& lists, const std::vector<int32_t>& members,
                            double alpha) {
  const Square products = DenseProducts(lists);
  const double largest = Largest(products) > 0 ? Largest(products) : 1;
  Square dense(members.size(), std::vector<double>(members.size()));
  for (size_t a = 0; a < members.size(); ++a) {
    for (size_t b = 0; b < members.size(); ++b) {
      if (a != b) dense[a][b] = 1 / (products[members[a]][members[b]] / largest + alpha);
    }
  }
  return dense;
}

// Small k and shares make members without links, links of equal weight and separate parts; large
// ones more links than are kept; an alpha of 1e16 rounds all dissimilarities to the same.
TEST(ReachabilityOrder, IsThatOfTheDenseMatrixToTheLastBit) {
  ReachabilityOrder reachability;  // used for all, as threads do
  for (const int64_t k : {1, 3, 10, 60}) {
    const RandomLists lists(220, k, 6 + k);
    const SharedNeighbors shared = Share(lists.get());
    for (const double share : {0.0, 0.02, 0.1, 0.5, 1.0}) {
      const std::vector<int32_t> members = SomeRows(220, share, k);
      for (const double alpha : {0.1, 1e-3, 1e16}) {
        SCOPED_TRACE(::testing::Message() << k << " " << share << " " << alpha);
        const auto got = reachability.Find(shared, alpha, members, kSerial);
        ASSERT_TRUE(got.ok()) << got.status();
        const PrimOrder want = DensePrim(DenseDissimilarities(lists.get(), members, alpha));
        EXPECT_EQ(got->order, want.order);
        EXPECT_EQ(got->sources, want.sources);
        EXPECT_EQ(got->weights, want.weights);
      }
    }
  }
}

TEST(ReachabilityOrder, StopsWhenCancelled) {
  const RandomLists lists(30, 5, 7);
  const SharedNeighbors shared = Share(lists.get());
  const int32_t cancel = 1;
  const auto got = ReachabilityOrder().Find(shared, 0.1, SomeRows(30, 1, 1), Parallel(1, &cancel));
  EXPECT_EQ(GetErrorDetails(got.status()).reason, Reason::kClientCancelled);
}

// ---- Walks -----------------------------------------------------------------------------------

TEST(WalkCluster, ReachesRowsInAscendingOrder) {
  const RandomLists lists(100, 8, 8);
  const SharedNeighbors shared = Share(lists.get());
  RowSet rows(100);
  for (uint64_t stream = 0; stream < 50; ++stream) {
    CounterRandom random(3, stream);
    const auto members = WalkCluster(shared, 20, kSerial, random, rows);
    ASSERT_TRUE(members.ok()) << members.status();
    EXPECT_GE(members->size(), 2u);
    EXPECT_LE(members->size(), 1u + 19u + 8u);  // the last row may add all its neighbours
    EXPECT_TRUE(std::is_sorted(members->begin(), members->end()));
    EXPECT_EQ(std::set<int32_t>(members->begin(), members->end()).size(), members->size());
    EXPECT_EQ(rows.size(), 0);
  }
}

// One visit: the walk draws the neighbours of its start and no others, each with its similarity.
TEST(WalkCluster, DrawsNeighborsWithTheirSimilarities) {
  const RandomLists lists(12, 4, 9);
  const SharedNeighbors shared = Share(lists.get());
  std::map<std::vector<int32_t>, int64_t> seen;
  RowSet rows(12);
  constexpr int kWalks = 40000;
  for (int w = 0; w < kWalks; ++w) {
    CounterRandom random(4, w);
    ++seen[*WalkCluster(shared, 1, kSerial, random, rows)];
  }
  // The chance of every set of rows: over the starts, that of its neighbours drawn, among the
  // walks that draw any.
  std::map<std::vector<int32_t>, double> expected;
  for (int32_t start = 0; start < 12; ++start) {
    double none = 1;
    for (int r = 0; r < 4; ++r) none *= 1 - shared.neighbors[start * 4 + r];
    for (int drawn = 1; drawn < 16; ++drawn) {
      double chance = 1.0 / 12 / (1 - none);
      std::vector<int32_t> members = {start};
      for (int r = 0; r < 4; ++r) {
        const double similarity = shared.neighbors[start * 4 + r];
        if ((drawn >> r & 1) != 0) members.push_back(lists.get().table.Row(start)[r]);
        chance *= (drawn >> r & 1) != 0 ? similarity : 1 - similarity;
      }
      std::sort(members.begin(), members.end());
      expected[members] += chance;
    }
  }
  for (const auto& [members, count] : seen) EXPECT_GT(expected[members], 0);
  for (const auto& [members, chance] : expected) {
    const double deviation = std::sqrt(kWalks * chance * (1 - chance));
    EXPECT_NEAR(static_cast<double>(seen[members]), kWalks * chance, 5 * deviation + 1e-9);
  }
}

TEST(WalkCluster, FindsNothingWithoutSimilarNeighbors) {
  const RandomLists lists(40, 1, 10);
  const SharedNeighbors shared = Share(lists.get());
  RowSet rows(40);
  CounterRandom counter(1, 0);
  EXPECT_EQ(*WalkCluster(shared, 20, kSerial, counter, rows), std::vector<int32_t>{});
  NumpyRandomState numpy(1);
  EXPECT_EQ(*WalkCluster(shared, 20, kSerial, numpy), std::vector<int32_t>{});
  const int32_t cancel = 1;
  EXPECT_EQ(GetErrorDetails(WalkCluster(shared, 20, Parallel(1, &cancel), numpy).status()).reason,
            Reason::kClientCancelled);
}

// ---- Clusters --------------------------------------------------------------------------------

TEST(Clusters, AppendNoiseAndLeaveEmptyOnesOut) {
  const std::vector<int32_t> members = {7, 3, 9, 1, 4}, labels = {2, -1, 0, -1, 2};
  const Clusters clusters(members, labels);
  ASSERT_EQ(clusters.count(), 4);
  const std::vector<std::vector<int32_t>> want = {{9}, {7, 4}, {3}, {1}};
  for (int64_t c = 0; c < 4; ++c) {
    EXPECT_EQ(std::vector<int32_t>(clusters.Rows(c).begin(), clusters.Rows(c).end()), want[c]);
    EXPECT_EQ(clusters.Size(c), static_cast<int64_t>(want[c].size()));
  }
  EXPECT_EQ(clusters.AllRows().size(), 5u);
  EXPECT_EQ(Clusters().count(), 0);
}

TEST(ClusterPairs, SumProductsOfAllPairsOfRows) {
  const RandomLists first(80, 6, 11), second(80, 6, 12);
  const std::array<SharedNeighbors, 2> spaces = {Share(first.get()), Share(second.get())};
  const Square products[] = {DenseProducts(first.get()), DenseProducts(second.get())};
  ClusterPairs finder;
  for (const int32_t numbers : {1, 3, 12}) {
    const std::vector<int32_t> members = SomeRows(80, 0.7, numbers);
    std::vector<int32_t> labels;
    CounterRandom random(5, numbers);
    for (size_t i = 0; i < members.size(); ++i) {
      labels.push_back(static_cast<int32_t>(random.Below(numbers + 1)) - 1);
    }
    const Clusters clusters(members, labels);
    std::map<std::pair<int32_t, int32_t>, std::array<double, 2>> found;
    const auto keep = [&](int32_t a, int32_t b, const std::array<double, 2>& sums) {
      EXPECT_LT(b, a);
      EXPECT_TRUE(found.emplace(std::pair(a, b), sums).second) << a << " " << b;
    };
    ASSERT_TRUE(finder.ForEach(spaces, clusters, kSerial, keep).ok());
    size_t expected = 0;
    for (int32_t a = 0; a < clusters.count(); ++a) {
      for (int32_t b = 0; b < a; ++b) {
        std::array<double, 2> sums = {};
        for (const int32_t i : clusters.Rows(a)) {
          for (const int32_t j : clusters.Rows(b)) {
            for (const int space : {0, 1}) sums[space] += products[space][i][j];
          }
        }
        if (sums[0] == 0 && sums[1] == 0) continue;
        ++expected;
        ASSERT_TRUE(found.contains({a, b}));
        EXPECT_EQ(found.at({a, b}), sums);
      }
    }
    EXPECT_EQ(found.size(), expected);
  }
}

}  // namespace
}  // namespace tenon::measurement
