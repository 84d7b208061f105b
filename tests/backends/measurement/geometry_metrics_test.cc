// gap_index, procrustes, topographic_product and neighbor_dissimilarity as sessions compute them.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "backends/measurement/neighbor_dissimilarity.h"
#include "backends/measurement/pair_distance.h"
#include "tests/backends/measurement/measurement_fixture.h"
#include "tests/support/status_matchers.h"

namespace tenon::testing {
namespace {

using measurement::ParameterValue;
using measurement::RawSpec;
using measurement::Session;
using measurement::SessionOptions;

Tensor RandomMatrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {rows, columns}});
  for (int64_t p = 0; p < rows * columns; ++p) tensor.buffer.as<double>()[p] = normal(generator);
  return tensor;
}

Tensor Hd(const std::string& input) { return GoldenMatrix("golden/inputs/" + input + ".hd.npy"); }
Tensor Ld(const std::string& input) { return GoldenMatrix("golden/inputs/" + input + ".ld.npy"); }

absl::StatusOr<double> ScoreOf(const RawSpec& spec, const Tensor& original,
                               const Tensor& projection, SessionOptions options = {}) {
  ResourceProvider provider;
  TENON_ASSIGN_OR_RETURN(const Scored scored,
                         Score(provider, {spec}, original, projection, std::move(options)));
  return scored.scores.specs.at(0).scores.begin()->second;
}

void ExpectScore(const absl::StatusOr<double>& got, double want, double rtol = 1e-12) {
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_NEAR(*got, want, rtol * std::abs(want) + 1e-13);
}

// ---- Gap index -------------------------------------------------------------------------------

RawSpec Gap(const std::string& metric) { return {"gi", {{"metric", metric}}}; }

// SciPy's distances of all pairs of rows, in the test's own words.
Tensor CityBlockMatrix(const Tensor& points) {
  const int64_t n = points.spec.shape[0], d = points.spec.shape[1];
  const double* x = points.buffer.as<double>();
  Tensor matrix = *Tensor::Allocate({DType::kFloat64, {n, n}});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t c = 0; c < d; ++c) sum += std::abs(x[i * d + c] - x[j * d + c]);
      matrix.buffer.as<double>()[i * n + j] = sum;
    }
  }
  return matrix;
}

struct GapValue {
  const char* input;
  const char* metric;
  double score;
};

// zadu 0.5.4 with SciPy 1.17.1.
const GapValue kGapValues[] = {
    {"gauss200", "euclidean", 0.656558629783251},  {"gauss200", "minkowski", 0.6565586297832511},
    {"gauss200", "cityblock", 0.6582209517068653}, {"gauss200", "chebyshev", 0.669808026054878},
    {"gauss200", "canberra", 0.6694000731930217},  {"gauss200", "hamming", 0.6386462248856494},
    {"blobs150", "euclidean", 0.6476627252512106}, {"blobs150", "chebyshev", 0.6921951067022016},
    {"blobs150", "canberra", 0.7209153708246778},
};

TEST(GapIndex, HasTheReferencesValuesForManyMetrics) {
  for (const GapValue& value : kGapValues) {
    SCOPED_TRACE(std::string(value.input) + " " + value.metric);
    ExpectScore(ScoreOf(Gap(value.metric), Hd(value.input), Ld(value.input)), value.score);
  }
  ExpectScore(ScoreOf({"gi", {{"metric", std::string("minkowski")}, {"minkowski_p", 3.0}}},
                      Hd("gauss200"), Ld("gauss200")),
              0.6577210208700527);
}

// zadu 0.5.4 with SciPy 1.17.1, of the columns' signs in gauss200.
TEST(GapIndex, HasTheReferencesValuesForMetricsOfSets) {
  Tensor sets = Hd("gauss200");
  for (int64_t p = 0; p < 200 * 10; ++p) {
    double& value = sets.buffer.as<double>()[p];
    value = value > 0 ? 1 : 0;
  }
  const Tensor projection = Ld("gauss200");
  const GapValue values[] = {
      {"", "jensenshannon", 0.6831643898539536}, {"", "jaccard", 0.7058039529193615},
      {"", "rogerstanimoto", 0.700346221677358}, {"", "sokalmichener", 0.700346221677358},
      {"", "russellrao", 0.665614258156751},     {"", "sokalsneath", 0.6798800343621368},
      {"", "sqeuclidean", 0.763492859597339},
  };
  for (const GapValue& value : values) {
    SCOPED_TRACE(value.metric);
    ExpectScore(ScoreOf(Gap(value.metric), sets, projection), value.score);
  }
}

TEST(GapIndex, RefusesDistancesThatMakeNoTriangles) {
  for (const char* metric :
       {"sqeuclidean", "cosine", "correlation", "braycurtis", "jensenshannon", "dice",
        "kulczynski1", "rogerstanimoto", "russellrao", "sokalsneath", "yule"}) {
    SCOPED_TRACE(metric);
    EXPECT_TRUE(Fails(ScoreOf(Gap(metric), Hd("gauss200"), Ld("gauss200")), Reason::kUndefinedScore,
                      "dataset"));
  }
}

TEST(GapIndex, IsZeroForSimilarTrianglesOnly) {
  const Tensor points = RandomMatrix(300, 2, 4);
  Tensor similar = RandomMatrix(300, 2, 4), stretched = RandomMatrix(300, 2, 4);
  for (int64_t i = 0; i < 300; ++i) {
    const double x = points.buffer.as<double>()[2 * i], y = points.buffer.as<double>()[2 * i + 1];
    similar.buffer.as<double>()[2 * i] = 3 * (0.6 * x - 0.8 * y) + 7;
    similar.buffer.as<double>()[2 * i + 1] = 3 * (0.8 * x + 0.6 * y);
    stretched.buffer.as<double>()[2 * i] = x * std::exp(x);
  }
  ExpectScore(ScoreOf({"gi", {}}, points, points), 0);
  EXPECT_LT(*ScoreOf({"gi", {}}, similar, points), 1e-9);
  EXPECT_GT(*ScoreOf({"gi", {}}, stretched, points), 0.1);
}

TEST(GapIndex, TakesGivenDistances) {
  const Tensor hd = Hd("gauss200"), ld = Ld("gauss200"), distances = CityBlockMatrix(hd);
  ExpectScore(ScoreOf(Gap("precomputed"), distances, ld), 0.6582209517068655);
  SessionOptions options;
  options.precomputed["datasets/d"] = std::make_shared<const Tensor>(*distances.Clone());
  const RawSpec spec = {
      "gi",
      {{"metric", std::string("precomputed")}, {"precomputed_handle", std::string("datasets/d")}}};
  ExpectScore(ScoreOf(spec, hd, ld, options), 0.6582209517068655);
}

TEST(GapIndex, RefusesGivenValuesThatAreNoDistances) {
  const Tensor hd = Hd("gauss200"), ld = Ld("gauss200");
  struct Change {
    int64_t row, column;
    double value;
    const char* says;
  };
  for (const Change& change : {Change{3, 150, 0.5, "symmetric"}, Change{150, 3, -1, "negative"},
                               Change{7, 7, 1e-6, "diagonal"}, Change{7, 7, -1e-12, "negative"}}) {
    Tensor distances = CityBlockMatrix(hd);
    distances.buffer.as<double>()[change.row * 200 + change.column] = change.value;
    const auto got = ScoreOf(Gap("precomputed"), distances, ld);
    EXPECT_TRUE(Fails(got, Reason::kUndefinedScore, "dataset")) << change.says;
    EXPECT_NE(got.status().message().find(change.says), absl::string_view::npos) << got.status();
    SessionOptions options;
    options.precomputed["d"] = std::make_shared<const Tensor>(std::move(distances));
    const RawSpec spec = {
        "gi", {{"metric", std::string("precomputed")}, {"precomputed_handle", std::string("d")}}};
    EXPECT_TRUE(
        Fails(ScoreOf(spec, hd, ld, options), Reason::kUndefinedScore, "precomputed_handle"));
  }
  EXPECT_TRUE(Fails(ScoreOf(Gap("precomputed"), hd, ld), Reason::kShapeMismatch, "dataset"));
  // Within the tolerance of a comparison.
  Tensor distances = CityBlockMatrix(hd);
  distances.buffer.as<double>()[7 * 200 + 7] = 1e-9;
  distances.buffer.as<double>()[3 * 200 + 150] *= 1 + 1e-6;
  EXPECT_TRUE(ScoreOf(Gap("precomputed"), distances, ld).ok());
}

TEST(GapIndex, NeedsAPlaneAndThreeRows) {
  const RawSpec gap = {"gi", {}};
  for (const int64_t columns : {1, 3}) {
    EXPECT_TRUE(Fails(ScoreOf(gap, RandomMatrix(9, 2, 1), RandomMatrix(9, columns, 2)),
                      Reason::kShapeMismatch, "projection"));
  }
  EXPECT_TRUE(Fails(ScoreOf(gap, RandomMatrix(2, 2, 1), RandomMatrix(2, 2, 2)), Reason::kTooFewRows,
                    "dataset"));
  const Tensor line = MatrixOf({{0, 0}, {1, 1}, {2, 2}, {5, 5}});
  EXPECT_TRUE(
      Fails(ScoreOf(gap, RandomMatrix(4, 2, 1), line), Reason::kUndefinedScore, "projection"));
  EXPECT_TRUE(Fails(ScoreOf(gap, MatrixOf({{1, 1}, {1, 1}, {1, 1}, {1, 1}}), RandomMatrix(4, 2, 1)),
                    Reason::kUndefinedScore, "dataset"));
}

TEST(GapIndex, RefusesWhatOverflows) {
  const double huge = 1e300;
  const Tensor far = MatrixOf({{-huge, 0}, {huge, 0}, {0, huge}, {1, 1}});
  const Tensor near = RandomMatrix(4, 2, 1);
  EXPECT_TRUE(Fails(ScoreOf({"gi", {}}, far, near), Reason::kUndefinedScore, "dataset"));
  EXPECT_TRUE(Fails(ScoreOf({"gi", {}}, near, far), Reason::kUndefinedScore, "projection"));
}

TEST(GapIndex, IgnoresRowsThatCoincideInTheProjection) {
  Tensor projection = RandomMatrix(30, 2, 1), original = RandomMatrix(30, 4, 2);
  const auto once = ScoreOf({"gi", {}}, original, projection);
  Tensor more_projection = *Tensor::Allocate({DType::kFloat64, {40, 2}});
  Tensor more_original = *Tensor::Allocate({DType::kFloat64, {40, 4}});
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t c = 0; c < 2; ++c) {
      more_projection.buffer.as<double>()[i * 2 + c] =
          projection.buffer.as<double>()[i % 30 * 2 + c];
    }
    for (int64_t c = 0; c < 4; ++c) {
      more_original.buffer.as<double>()[i * 4 + c] = original.buffer.as<double>()[i % 30 * 4 + c];
    }
  }
  ExpectScore(ScoreOf({"gi", {}}, more_original, more_projection), *once, 1e-10);
}

// ---- Local Procrustes ------------------------------------------------------------------------

RawSpec Proc(int64_t k, const std::string& pairing = "rank") {
  return {"proc", {{"k", k}, {"pairing", pairing}}};
}

struct ProcrustesValue {
  const char* input;
  double rank, identity, swapped_rank, swapped_identity;
};

// zadu 0.5.4, k = 7; identity: its measure with the neighbours of hd for both spaces; swapped: the
// data set is scored as a projection, with more columns than the projection has.
const ProcrustesValue kProcrustesValues[] = {
    {"gauss200", 0.8138253836629217, 0.6770107695580336, 8.953755451673917, 20.6198709986867},
    {"emb1d60", 0.9166717904424926, 0.7063389201292561, 56.3428899406803, 156.72915397054038},
    {"emb3d60", 0.6469313386457104, 0.24904512651519786, 1.3646904326179512, 2.4185422317638183},
    {"tiny12", 0.6768641945381001, 0.5228578330696971, 0.9774267099291802, 1.201754270385701},
};

TEST(Procrustes, HasTheReferencesValuesForBothPairingsAndAnyWidths) {
  for (const ProcrustesValue& value : kProcrustesValues) {
    SCOPED_TRACE(value.input);
    const Tensor hd = Hd(value.input), ld = Ld(value.input);
    ExpectScore(ScoreOf(Proc(7), hd, ld), value.rank);
    ExpectScore(ScoreOf(Proc(7, "identity"), hd, ld), value.identity);
    ExpectScore(ScoreOf(Proc(7), ld, hd), value.swapped_rank);
    ExpectScore(ScoreOf(Proc(7, "identity"), ld, hd), value.swapped_identity);
  }
}

TEST(Procrustes, IsZeroForTheDataSetItselfAndAQuarterForItsHalf) {
  const Tensor hd = Hd("gauss200");
  Tensor half = Hd("gauss200");
  for (int64_t p = 0; p < 200 * 10; ++p) half.buffer.as<double>()[p] *= 0.5;
  for (const char* pairing : {"rank", "identity"}) {
    EXPECT_LT(*ScoreOf(Proc(9, pairing), hd, hd), 1e-27);
    ExpectScore(ScoreOf(Proc(9, pairing), hd, half), 0.25);
  }
}

TEST(Procrustes, NeedsTheNeighborsOfTheProjectionOnlyForPairingByRank) {
  ResourceProvider provider;
  const Tensor hd = RandomMatrix(40, 3, 1), ld = RandomMatrix(40, 2, 2);
  for (const auto& [pairing, resources] : {std::pair{"rank", 2u}, {"identity", 1u}}) {
    const auto scored = Score(provider, {Proc(5, pairing)}, hd, ld);
    ASSERT_TRUE(scored.ok()) << scored.status();
    EXPECT_EQ(scored->scores.info.resources.size(), resources) << pairing;
  }
}

TEST(Procrustes, IsUndefinedWhereNeighborsAreOnePoint) {
  const Tensor ld = RandomMatrix(8, 2, 1);
  EXPECT_TRUE(
      Fails(ScoreOf(Proc(1), RandomMatrix(8, 3, 2), ld), Reason::kUndefinedScore, "dataset"));
  // Sums of 0.1 are not exact, their mean is not 0.1.
  const Tensor repeated = MatrixOf({{0.1}, {0.1}, {0.1}, {0.1}, {5}, {6}, {7}, {8}});
  EXPECT_TRUE(Fails(ScoreOf(Proc(3), repeated, ld), Reason::kUndefinedScore, "dataset"));
  EXPECT_TRUE(ScoreOf(Proc(4), repeated, ld).ok());
}

// ---- Topographic product ---------------------------------------------------------------------

RawSpec Topo(int64_t k) { return {"topo", {{"k", k}}}; }

// Distances, sorted neighbours and the double sum, straight from the definition.
double NaiveTopographicProduct(const Tensor& hd, const Tensor& ld, int64_t k) {
  const int64_t n = hd.spec.shape[0];
  const auto distance = [](const Tensor& points, int64_t i, int64_t j) {
    const int64_t d = points.spec.shape[1];
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) {
      const double difference =
          points.buffer.as<double>()[i * d + c] - points.buffer.as<double>()[j * d + c];
      sum += difference * difference;
    }
    return std::sqrt(sum);
  };
  const auto neighbors = [&](const Tensor& points, int64_t i) {
    std::vector<int64_t> order;
    for (int64_t j = 0; j < n; ++j) {
      if (j != i) order.push_back(j);
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return distance(points, i, a) < distance(points, i, b);
    });
    return order;
  };
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto h = neighbors(hd, i), l = neighbors(ld, i);
    for (int64_t r = 1; r <= k; ++r) {
      double logarithms = 0;
      for (int64_t s = 0; s < r; ++s) {
        logarithms += std::log(distance(hd, i, l[s]) / distance(hd, i, h[s]) *
                               (distance(ld, i, l[s]) / distance(ld, i, h[s])));
      }
      total += logarithms / (2.0 * static_cast<double>(r));
    }
  }
  return total / static_cast<double>(n * k);
}

TEST(TopographicProduct, FollowsItsDefinition) {
  for (const int64_t width : {1, 2, 5}) {
    const Tensor hd = RandomMatrix(70, 6, 1), ld = RandomMatrix(70, width, 2);
    for (const int64_t k : {1, 4, 69}) {
      ExpectScore(ScoreOf(Topo(k), hd, ld), NaiveTopographicProduct(hd, ld, k));
    }
    ExpectScore(ScoreOf(Topo(9), hd, hd), 0);
  }
}

TEST(TopographicProduct, IsUndefinedForNeighborsThatCoincide) {
  const Tensor apart = MatrixOf({{0}, {2.1}, {1}, {4.5}, {8}});
  const Tensor same = MatrixOf({{0}, {0}, {1}, {2.5}, {7}});
  // Rows 0 and 1 are neighbours in the data set for k = 2 only.
  EXPECT_TRUE(Fails(ScoreOf(Topo(2), apart, same), Reason::kUndefinedScore, "projection"));
  EXPECT_TRUE(Fails(ScoreOf(Topo(1), apart, same), Reason::kUndefinedScore, "projection"));
  // Known before any projection.
  ResourceProvider provider;
  SessionOptions options;
  options.rows = 5;
  options.original_columns = 1;
  auto session = Session::Prepare({Topo(1)}, options, {}, provider.get());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(Fails((*session)->BindOriginal(same, nullptr), Reason::kUndefinedScore, "dataset"));
}

TEST(TopographicProduct, RefusesWhatOverflows) {
  const double huge = 1e300;
  const Tensor far = MatrixOf({{-huge, 0}, {huge, 0}, {0, huge}, {1, 1}});
  const Tensor near = RandomMatrix(4, 2, 1);
  EXPECT_TRUE(Fails(ScoreOf(Topo(2), far, near), Reason::kUndefinedScore, "projection"));
  EXPECT_TRUE(Fails(ScoreOf(Topo(2), near, far), Reason::kUndefinedScore, "projection"));
}

// ---- Neighbour dissimilarity -----------------------------------------------------------------

using measurement::IndexTable;
using measurement::NeighborDissimilarity;

std::vector<int32_t> RandomNeighbors(int64_t n, int64_t k, uint32_t seed, bool hub) {
  std::mt19937 generator(seed);
  std::vector<int32_t> table;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<int32_t> others;
    for (int32_t j = 0; j < n; ++j) {
      if (j != i) others.push_back(j);
    }
    std::shuffle(others.begin(), others.end(), generator);
    if (hub && i != 3) std::iter_swap(others.begin(), std::find(others.begin(), others.end(), 3));
    table.insert(table.end(), others.begin(), others.begin() + k);
  }
  return table;
}

// Whole matrices of integers.
double NaiveDissimilarity(int64_t n, int64_t k, const std::vector<int32_t>& original,
                          const std::vector<int32_t>& embedded) {
  const auto shared = [&](const std::vector<int32_t>& table) {
    std::vector<std::vector<int>> a(n, std::vector<int>(n)), s(n, std::vector<int>(n));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t r = 0; r < k; ++r) a[i][table[i * k + r]] = a[table[i * k + r]][i] = 1;
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t m = 0; m < n && i != j; ++m) s[i][j] += a[i][m] * a[m][j];
      }
    }
    return s;
  };
  const auto so = shared(original), se = shared(embedded);
  double positive = 0, negative = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double difference = so[i][j] - se[i][j];
      (difference > 0 ? positive : negative) += difference * difference;
    }
  }
  return std::sqrt(std::max(positive, negative)) / static_cast<double>(k);
}

TEST(NeighborDissimilarity, FollowsItsDefinition) {
  for (const int64_t n : {2, 5, 60, 150}) {
    for (const int64_t k : {int64_t{1}, int64_t{4}, n - 1}) {
      if (k > n - 1) continue;
      for (const bool hub : {false, true}) {
        if (hub && n < 5) continue;
        SCOPED_TRACE(::testing::Message() << n << " rows, k " << k << (hub ? ", hub" : ""));
        const auto original = RandomNeighbors(n, k, 1, hub),
                   embedded = RandomNeighbors(n, k, 2, false);
        for (const int threads : {1, 3}) {
          const auto got = NeighborDissimilarity(n, k, {original.data(), k}, {embedded.data(), k},
                                                 Parallel(threads, nullptr));
          ASSERT_TRUE(got.ok()) << got.status();
          EXPECT_EQ(*got, NaiveDissimilarity(n, k, original, embedded));
        }
      }
    }
  }
}

TEST(NeighborDissimilarity, TakesPrefixesOfLongerLists) {
  const auto original = RandomNeighbors(40, 9, 1, false),
             embedded = RandomNeighbors(40, 6, 2, false);
  std::vector<int32_t> short_original, short_embedded;
  for (int64_t i = 0; i < 40; ++i) {
    short_original.insert(short_original.end(), &original[i * 9], &original[i * 9 + 4]);
    short_embedded.insert(short_embedded.end(), &embedded[i * 6], &embedded[i * 6 + 4]);
  }
  const auto got = NeighborDissimilarity(40, 4, {original.data(), 9}, {embedded.data(), 6},
                                         Parallel(1, nullptr));
  EXPECT_EQ(*got, NaiveDissimilarity(40, 4, short_original, short_embedded));
}

TEST(NeighborDissimilarity, CountsAHubOfSparseRowsWithoutMatrices) {
  // Row 0 is a neighbour of all: every pair of other rows shares it. In the other space rows form
  // disjoint pairs that share nothing.
  constexpr int64_t kRows = 3000;
  std::vector<int32_t> star(kRows, 0), pairs(kRows);
  star[0] = 1;
  for (int32_t i = 0; i < kRows; ++i) pairs[i] = i ^ 1;
  const auto got =
      NeighborDissimilarity(kRows, 1, {star.data(), 1}, {pairs.data(), 1}, Parallel(2, nullptr));
  EXPECT_EQ(*got, std::sqrt(static_cast<double>((kRows - 1) * (kRows - 2))));
  const auto reverse =
      NeighborDissimilarity(kRows, 1, {pairs.data(), 1}, {star.data(), 1}, Parallel(2, nullptr));
  EXPECT_EQ(*got, *reverse);
}

// ---- All of them -----------------------------------------------------------------------------

const std::vector<RawSpec> kSpecs = {
    {"nd", {{"k", int64_t{6}}}},
    {"proc", {{"k", int64_t{8}}}},
    {"proc", {{"k", int64_t{5}}, {"pairing", std::string("identity")}}},
    {"topo", {{"k", int64_t{7}}}},
    {"gi", {}},
    {"gi", {{"metric", std::string("chebyshev")}}},
};

std::vector<double> Scores(const Tensor& original, const Tensor& projection,
                           SessionOptions options = {}) {
  ResourceProvider provider;
  const auto scored = Score(provider, kSpecs, original, projection, std::move(options));
  EXPECT_TRUE(scored.ok()) << scored.status();
  std::vector<double> values;
  if (!scored.ok()) return values;
  for (const auto& spec : scored->scores.specs) values.push_back(spec.scores.begin()->second);
  return values;
}

TEST(GeometryMetrics, HaveTheSameBitsForAnyNumberOfThreads) {
  const Tensor original = RandomMatrix(3000, 9, 1), projection = RandomMatrix(3000, 2, 2);
  SessionOptions options;
  options.threads = 1;
  const std::vector<double> one = Scores(original, projection, options);
  for (const int threads : {2, 5}) {
    options.threads = threads;
    const std::vector<double> more = Scores(original, projection, options);
    ASSERT_EQ(more.size(), one.size());
    for (size_t s = 0; s < one.size(); ++s) {
      EXPECT_EQ(std::bit_cast<uint64_t>(one[s]), std::bit_cast<uint64_t>(more[s])) << s;
    }
  }
}

TEST(GeometryMetrics, WidenSinglesAndComputeInThemWhereAsked) {
  const Tensor original = RandomMatrix(120, 4, 1), projection = RandomMatrix(120, 2, 2);
  const Tensor singles = *ConvertTensor(original, DType::kFloat32);
  const Tensor single_projection = *ConvertTensor(projection, DType::kFloat32);
  const Tensor widened = *ConvertTensor(singles, DType::kFloat64);
  const Tensor widened_projection = *ConvertTensor(single_projection, DType::kFloat64);
  const std::vector<double> wide = Scores(widened, widened_projection);
  EXPECT_EQ(Scores(singles, single_projection), wide);
  SessionOptions options;
  options.compute_dtype = DType::kFloat32;
  const std::vector<double> narrow = Scores(singles, single_projection, options);
  ASSERT_EQ(narrow.size(), wide.size());
  for (size_t s = 0; s < wide.size(); ++s) EXPECT_NEAR(narrow[s], wide[s], 1e-5) << s;
}

TEST(GeometryMetrics, StopWhenCancelled) {
  const Tensor original = RandomMatrix(100, 4, 1), projection = RandomMatrix(100, 2, 2);
  for (const RawSpec& spec : kSpecs) {
    ResourceProvider provider;
    SessionOptions options;
    options.rows = 100;
    options.original_columns = 4;
    auto session = Session::Prepare({spec}, options, {}, provider.get());
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE((*session)->BindOriginal(original, nullptr).ok());
    CancelToken cancel;
    cancel.Cancel();
    EXPECT_TRUE(Fails((*session)->Measure(projection, &cancel), Reason::kClientCancelled));
  }
}

TEST(PairDistances, AreThoseOfSinglePairs) {
  const Tensor points = RandomMatrix(20, 5, 3);
  tenon_matrix matrix = {points.buffer.data(), TENON_DTYPE_FLOAT64, 0, 20, 5};
  const std::vector<int32_t> others = {4, 19, 0, 7, 3, 3, 12};
  for (const int32_t geodesic : {0, 1}) {
    matrix.geodesic = geodesic;
    std::vector<double> distances(others.size());
    measurement::PairDistances(matrix, 7, others.data(), 7, distances.data());
    for (size_t p = 0; p < others.size(); ++p) {
      EXPECT_EQ(distances[p], measurement::PairDistance(matrix, 7, others[p]));
    }
    EXPECT_LT(distances[3], 3e-8);
  }
}

}  // namespace
}  // namespace tenon::testing
