// Steadiness and cohesiveness: the recorded trace step by step, means over seeds against the
// recorded program, local scores against loops, threads, and what is refused.

#include "backends/measurement/cluster_walk.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "backends/measurement/cluster_distortion.h"
#include "tests/backends/measurement/measurement_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon::testing {
namespace {

using measurement::ClusterWalk;
using measurement::Comparison;
using measurement::Direction;
using measurement::MeasureScores;
using measurement::ParameterValue;
using measurement::RawSpec;
using measurement::SessionOptions;
using measurement::SharedNeighbors;
using measurement::WalkDistortion;
using nlohmann::json;

using Parameters = std::map<std::string, ParameterValue>;

const Parallel kSerial(1, nullptr);

absl::StatusOr<MeasureScores> ScoreOf(const Tensor& original, const Tensor& projection,
                                      const Parameters& parameters, SessionOptions options = {}) {
  ResourceProvider provider;
  TENON_ASSIGN_OR_RETURN(Scored scored,
                         Score(provider, {{"snc", parameters}}, original, projection, options));
  return std::move(scored.scores.specs.at(0));
}

Tensor Input(const std::string& name, const std::string& space) {
  return GoldenMatrix("golden/inputs/" + name + "." + space + ".npy");
}

absl::StatusOr<MeasureScores> ScoreInput(const std::string& name, const Parameters& parameters,
                                         SessionOptions options = {}) {
  return ScoreOf(Input(name, "hd"), Input(name, "ld"), parameters, options);
}

// ---- The recorded trace ----------------------------------------------------------------------

class Trace : public ::testing::Test {
 protected:
  Trace() : trace_(ReadJsonOrDie(TestPath("golden/cases/snc_trace_emb3d60.json"))) {
    k_ = trace_.at("k");
    tables_[0] = TableOf(trace_.at("knn_hd"));
    tables_[1] = TableOf(trace_.at("knn_ld"));
    for (const size_t space : {0, 1}) {
      const int64_t n = static_cast<int64_t>(tables_[space].size()) / k_;
      spaces_[space] = *measurement::ShareNeighbors({{tables_[space].data(), k_}, n, k_}, kSerial);
    }
  }

  static std::vector<int32_t> TableOf(const json& rows) {
    std::vector<int32_t> table;
    for (const json& row : rows) {
      for (const json& neighbor : row) table.push_back(neighbor.get<int32_t>());
    }
    return table;
  }

  json trace_;
  int64_t k_ = 0;
  std::array<std::vector<int32_t>, 2> tables_;
  std::array<SharedNeighbors, 2> spaces_;
};

TEST_F(Trace, HasTheRecordedSimilaritiesAndScales) {
  const char* names[] = {"snn_hd", "snn_ld"};
  for (const size_t space : {0, 1}) {
    const json& want = trace_.at(names[space]);
    measurement::SparseSums sums;
    sums.Resize(static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      AddRow(spaces_[space].lists, static_cast<int64_t>(i), spaces_[space].rows, sums);
      for (size_t j = 0; j < want.size(); ++j) {
        const double similarity = sums.At(static_cast<int32_t>(j)) / spaces_[space].largest;
        EXPECT_EQ(i == j ? 0 : similarity, want[i][j].get<double>()) << i << " " << j;
      }
      sums.Clear();
    }
  }
  const auto range =
      measurement::RangeOfDifferences(spaces_[0], spaces_[1], trace_.at("alpha"), kSerial);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_DOUBLE_EQ(range->largest, trace_.at("max_compress").get<double>());
  EXPECT_DOUBLE_EQ(-range->least, trace_.at("max_stretch").get<double>());
}

TEST_F(Trace, HasTheRecordedWalksLabelsAndSums) {
  const double alpha = trace_.at("alpha");
  measurement::NumpyRandomState random(trace_.at("random_state").get<uint32_t>());
  measurement::WalkComparer comparer;
  measurement::ReachabilityOrder reachability;
  std::map<std::string, std::pair<double, double>> sums;
  for (const json& step : trace_.at("steps")) {
    SCOPED_TRACE(step.at("mode").get<std::string>() + step.at("iteration").dump());
    const bool steadiness = step.at("mode") == "steadiness";
    const Comparison comparison = {
        steadiness ? Direction::kSteadiness : Direction::kCohesiveness, alpha,
        trace_.at(steadiness ? "max_compress" : "max_stretch").get<double>()};
    ClusterWalk walk;
    walk.members = *measurement::WalkCluster(spaces_[comparison.walked()], trace_.at("walk_num"),
                                             kSerial, random);
    ASSERT_EQ(walk.members, step.at("members").get<std::vector<int32_t>>());
    const SharedNeighbors& clustered = spaces_[comparison.clustered()];
    const auto labels =
        measurement::HdbscanLabels(*reachability.Find(clustered, alpha, walk.members, kSerial),
                                   measurement::LinkageEdges::kPath);
    EXPECT_EQ(labels, step.at("cluster_labels").get<std::vector<int32_t>>());
    const auto got =
        comparer.Compare(spaces_, comparison, {.edges = measurement::LinkageEdges::kPath},
                         measurement::PointsView({}), walk, true, kSerial);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_NEAR(got->distortion, step.at("distortion_sum").get<double>(), 1e-12 * got->distortion);
    EXPECT_EQ(got->weight, step.at("weight_sum").get<double>());
    auto& [distortion, weight] = sums[step.at("mode").get<std::string>()];
    distortion += got->distortion;
    weight += got->weight;
  }
  for (const auto& [mode, sum] : sums) {
    EXPECT_NEAR(1 - sum.first / sum.second, trace_.at("scores").at(mode).get<double>(), 1e-12);
  }
}

// ---- Means over seeds ------------------------------------------------------------------------

struct Distribution {
  const char* name;
  const char* input;
  const char* strategy;
  int64_t cluster_count;                                // 0: not given
  double steadiness, cohesiveness;                      // means of 24 seeds
  double steadiness_deviation, cohesiveness_deviation;  // of one seed
};

class OverSeeds : public ::testing::TestWithParam<Distribution> {};

// Means over seeds 0 to 23 of zadu 0.5.4 (hdbscan 0.8.44, scikit-learn 1.9.1, NumPy 2.4.6 without
// vector sorting) with 40 iterations, and the deviations of single values.
INSTANTIATE_TEST_SUITE_P(All, OverSeeds,
                         ::testing::Values(Distribution{"gauss200", "gauss200", "dbscan", 0,
                                                        0.60676, 0.44471, 0.00973, 0.01268},
                                           Distribution{"blobs150", "blobs150", "dbscan", 0,
                                                        0.85667, 0.64921, 0.00920, 0.01947},
                                           Distribution{"gauss300", "gauss300", "dbscan", 0,
                                                        0.61661, 0.43559, 0.00412, 0.00919},
                                           Distribution{"gauss200_kmeans", "gauss200", "kmeans", 0,
                                                        0.71056, 0.42424, 0.01249, 0.00748},
                                           Distribution{"blobs150_kmeans", "blobs150", "kmeans", 0,
                                                        0.91350, 0.73351, 0.00634, 0.01397},
                                           Distribution{"gauss300_kmeans", "gauss300", "kmeans", 0,
                                                        0.75836, 0.37757, 0.00708, 0.00806},
                                           Distribution{"gauss200_3means", "gauss200", "kmeans", 3,
                                                        0.70776, 0.40060, 0.01527, 0.00898},
                                           Distribution{"blobs150_3means", "blobs150", "kmeans", 3,
                                                        0.91839, 0.76068, 0.00620, 0.01480},
                                           Distribution{"gauss300_3means", "gauss300", "kmeans", 3,
                                                        0.75671, 0.35467, 0.00642, 0.00829}),
                         [](const auto& info) { return info.param.name; });

// Ours are means of as many seeds, so the difference of both has twice the variance of a mean.
TEST_P(OverSeeds, HasTheMeanOfTheRecordedProgram) {
  const Distribution& want = GetParam();
  constexpr int64_t kSeeds = 24;
  for (const char* generator : {"counter", "numpy"}) {
    SCOPED_TRACE(generator);
    double steadiness = 0, cohesiveness = 0;
    for (int64_t seed = 0; seed < kSeeds; ++seed) {
      Parameters parameters = {{"random.generator", generator},
                               {"random.seed", 1000 + seed},
                               {"iteration", int64_t{40}},
                               {"clustering_strategy", want.strategy}};
      if (want.cluster_count > 0) parameters["cluster_count"] = want.cluster_count;
      const auto got = ScoreInput(want.input, parameters);
      ASSERT_TRUE(got.ok()) << got.status();
      steadiness += got->scores.at("steadiness") / kSeeds;
      cohesiveness += got->scores.at("cohesiveness") / kSeeds;
    }
    const double errors = 4 * std::sqrt(2.0 / kSeeds);
    EXPECT_NEAR(steadiness, want.steadiness, errors * want.steadiness_deviation);
    EXPECT_NEAR(cohesiveness, want.cohesiveness, errors * want.cohesiveness_deviation);
  }
}

// The recorded values of k-means are single draws of another generator: within five deviations of
// a score of 10 iterations.
TEST(Kmeans, IsCloseToTheRecordedValues) {
  for (const std::string name : {"gauss200", "blobs150"}) {
    const json test = ReadJsonOrDie(TestPath("golden/cases/snc_kmeans_" + name + ".json"));
    for (size_t s = 0; s < test.at("specs").size(); ++s) {
      const auto got = ScoreInput(name, SpecOf(test.at("specs")[s]).parameters);
      ASSERT_TRUE(got.ok()) << got.status();
      for (const auto& [key, value] : test.at("expected_global")[s].items()) {
        EXPECT_NEAR(got->scores.at(key), value.get<double>(), 5 * 0.02) << name << " " << key;
      }
    }
  }
}

// ---- Threads and seeds -----------------------------------------------------------------------

void ExpectSameBits(const MeasureScores& a, const MeasureScores& b) {
  for (const auto& [key, value] : a.scores) {
    EXPECT_EQ(std::bit_cast<uint64_t>(value), std::bit_cast<uint64_t>(b.scores.at(key))) << key;
  }
  EXPECT_EQ(a.local_scores, b.local_scores);
}

TEST(Walks, HaveTheSameBitsForAnyNumberOfThreadsAndWorkers) {
  const tbb::global_control allow(tbb::global_control::max_allowed_parallelism, 8);
  for (const char* generator : {"counter", "numpy"}) {
    for (const char* strategy : {"dbscan", "kmeans"}) {
      SCOPED_TRACE(std::string(generator) + " " + strategy);
      Parameters parameters = {{"random.generator", generator},
                               {"random.seed", int64_t{9}},
                               {"iteration", int64_t{300}},  // more than are held at once
                               {"clustering_strategy", strategy}};
      SessionOptions options;
      options.return_local = true;
      options.threads = 1;
      const auto one = ScoreInput("blobs150", parameters, options);
      ASSERT_TRUE(one.ok()) << one.status();
      for (const int threads : {2, 3, 8}) {
        options.threads = threads;
        ExpectSameBits(*one, *ScoreInput("blobs150", parameters, options));
      }
      for (const int64_t workers : {1, 3, 100}) {
        parameters["workers"] = workers;
        ExpectSameBits(*one, *ScoreInput("blobs150", parameters, options));
      }
    }
  }
}

TEST(Walks, DependOnTheSeedOnly) {
  const Parameters parameters = {{"random.seed", int64_t{1}}};
  const auto first = ScoreInput("gauss200", parameters);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->seed, 1u);
  ExpectSameBits(*first, *ScoreInput("gauss200", parameters));
  for (const int64_t seed : {int64_t{2}, int64_t{1} << 40, int64_t{-1}}) {
    const auto other = ScoreInput("gauss200", {{"random.seed", seed}});
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->seed, static_cast<uint64_t>(seed));
    EXPECT_NE(other->scores.at("steadiness"), first->scores.at("steadiness"));
  }
  EXPECT_TRUE(Fails(
      ScoreInput("gauss200", {{"random.generator", "numpy"}, {"random.seed", int64_t{1} << 32}}),
      Reason::kBadParameter, "specs[0].random.seed"));
}

TEST(Walks, TakeTheDrawnSeedAgain) {
  const auto drawn = ScoreInput("gauss200", {{"iteration", int64_t{20}}});
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  ExpectSameBits(*drawn,
                 *ScoreInput("gauss200", {{"iteration", int64_t{20}},
                                          {"random.seed", static_cast<int64_t>(*drawn->seed)}}));
}

TEST(Walks, HaveOtherNumbersInEveryIteration) {
  const auto one = ScoreInput("gauss200", {{"iteration", int64_t{1}}, {"random.seed", int64_t{4}}});
  const auto two = ScoreInput("gauss200", {{"iteration", int64_t{2}}, {"random.seed", int64_t{4}}});
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->scores.at("steadiness"), two->scores.at("steadiness"));
}

TEST(Walks, TakeSinglePrecisionInputAsItsWidenedCopy) {
  const Tensor hd = Input("f32_100", "hd"), ld = Input("f32_100", "ld");
  ASSERT_EQ(hd.spec.dtype, DType::kFloat32);
  for (const char* strategy : {"dbscan", "kmeans"}) {
    const Parameters parameters = {
        {"random.seed", int64_t{2}}, {"iteration", int64_t{30}}, {"clustering_strategy", strategy}};
    const auto narrow = ScoreOf(hd, ld, parameters);
    ASSERT_TRUE(narrow.ok()) << narrow.status();
    ExpectSameBits(*narrow, *ScoreOf(*ConvertTensor(hd, DType::kFloat64),
                                     *ConvertTensor(ld, DType::kFloat64), parameters));
  }
}

// ---- Local scores ----------------------------------------------------------------------------

// By definition: every pair of rows of every pair of clusters that counts, both ways, into a table.
std::vector<double> NaiveLocal(const std::array<SharedNeighbors, 2>& spaces,
                               const Comparison& comparison,
                               const std::vector<WalkDistortion>& walks, int64_t n) {
  const auto product = [&](int space, int64_t i, int64_t j) {
    double sum = 0;
    const measurement::NeighborLists& lists = spaces[space].lists;
    for (int64_t a = 0; a < lists.k; ++a) {
      for (int64_t b = 0; b < lists.k; ++b) {
        if (lists.table.Row(i)[a] == lists.table.Row(j)[b])
          sum += lists.Weight(a) * lists.Weight(b);
      }
    }
    return sum;
  };
  std::map<std::pair<int32_t, int32_t>, std::pair<double, int64_t>> log;
  for (const WalkDistortion& walk : walks) {
    for (int64_t p = 0; p < walk.clusters.count(); ++p) {
      for (int64_t q = 0; q < p; ++q) {
        std::array<double, 2> sums = {};
        for (const int32_t i : walk.clusters.Rows(p)) {
          for (const int32_t j : walk.clusters.Rows(q)) {
            for (const int space : {0, 1}) sums[space] += product(space, i, j);
          }
        }
        const auto weight = static_cast<double>(walk.clusters.Size(p) * walk.clusters.Size(q));
        const double difference = comparison.Difference(spaces, sums, weight);
        if (difference <= 0) continue;
        for (const int32_t i : walk.clusters.Rows(p)) {
          for (const int32_t j : walk.clusters.Rows(q)) {
            for (const auto& pair : {std::pair{i, j}, std::pair{j, i}}) {
              log[pair].first += difference / comparison.scale * weight;
              ++log[pair].second;
            }
          }
        }
      }
    }
  }
  std::vector<double> local(n);
  for (const auto& [pair, sum] : log) {
    local[pair.first] += sum.first / static_cast<double>(sum.second);
  }
  const double largest = *std::max_element(local.begin(), local.end());
  for (double& value : local) value = largest > 0 ? value / largest : value;
  return local;
}

// 70 walks, so that their bits need two words; labels by hand, with clusters of all sizes.
TEST_F(Trace, HasLocalDistortionsByDefinition) {
  const Comparison comparison = {Direction::kCohesiveness, 0.1, 8.0};
  measurement::RowSet rows(60);
  measurement::WalkComparer comparer;
  std::vector<WalkDistortion> walks;
  for (uint64_t w = 0; w < 70; ++w) {
    measurement::CounterRandom random(6, w);
    ClusterWalk walk;
    walk.members = *measurement::WalkCluster(spaces_[0], 12, kSerial, random, rows);
    auto compared =
        comparer.Compare(spaces_, comparison, {}, measurement::PointsView({}), walk, true, kSerial);
    ASSERT_TRUE(compared.ok()) << compared.status();
    walks.push_back(*std::move(compared));
  }
  const std::vector<double> want = NaiveLocal(spaces_, comparison, walks, 60);
  for (const int threads : {1, 4}) {
    const auto got =
        measurement::LocalDistortions(spaces_, comparison, walks, Parallel(threads, nullptr));
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR((*got)[i], want[i], 1e-13) << i;
  }
}

TEST(LocalScores, AreWeightedByTheOtherOrTheOwnScore) {
  SessionOptions options;
  options.return_local = true;
  Parameters parameters = {{"random.seed", int64_t{3}}, {"iteration", int64_t{30}}};
  const auto crossed = ScoreInput("gauss200", parameters, options);
  parameters["local_weight"] = "own";
  const auto own = ScoreInput("gauss200", parameters, options);
  ASSERT_TRUE(crossed.ok() && own.ok());
  EXPECT_EQ(crossed->scores, own->scores);
  const double steadiness = crossed->scores.at("steadiness");
  const double cohesiveness = crossed->scores.at("cohesiveness");
  ASSERT_LT(cohesiveness, 0.5);  // so that a weight is above 1
  const double crossed_weight = std::max(2 * (1 - cohesiveness), 1.0);
  const double own_weight = std::max(2 * (1 - steadiness), 1.0);
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_NEAR((1 - crossed->local_scores.at("local_steadiness")[i]) / crossed_weight,
                (1 - own->local_scores.at("local_steadiness")[i]) / own_weight, 1e-14);
    EXPECT_NEAR((1 - crossed->local_scores.at("local_cohesiveness")[i]) / own_weight,
                (1 - own->local_scores.at("local_cohesiveness")[i]) / crossed_weight, 1e-14);
  }
}

// ---- Edges and refusals ----------------------------------------------------------------------

TEST(Walks, ScoreOneForTheDataItself) {
  const Tensor hd = Input("gauss200", "hd");
  SessionOptions options;
  options.return_local = true;
  for (const char* strategy : {"dbscan", "kmeans"}) {
    const auto got = ScoreOf(hd, hd, {{"clustering_strategy", strategy}}, options);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->scores.at("steadiness"), 1);
    EXPECT_EQ(got->scores.at("cohesiveness"), 1);
    EXPECT_EQ(got->local_scores.at("local_steadiness"), std::vector<double>(200, 1));
  }
}

TEST(Walks, ScoreSmallAndDegenerateData) {
  for (const auto& [name, k] : std::vector<std::pair<std::string, int64_t>>{{"three3", 2},
                                                                            {"tiny12", 11},
                                                                            {"dup60", 5},
                                                                            {"zero30", 4},
                                                                            {"constcol40", 6},
                                                                            {"grid64", 5},
                                                                            {"same80", 8}}) {
    for (const char* strategy : {"dbscan", "kmeans"}) {
      SCOPED_TRACE(name + " " + strategy);
      SessionOptions options;
      options.return_local = true;
      const auto got = ScoreInput(
          name, {{"k", k}, {"clustering_strategy", strategy}, {"walk_num_ratio", 1.5}}, options);
      ASSERT_TRUE(got.ok()) << got.status();
      for (const auto& [key, value] : got->scores) {
        EXPECT_LE(value, 1) << key;
        EXPECT_TRUE(std::isfinite(value)) << key;
      }
      for (const auto& [key, values] : got->local_scores) {
        for (const double value : values) EXPECT_TRUE(std::isfinite(value)) << key;
      }
    }
  }
}

TEST(Walks, TakeAnyClusterCount) {
  for (const int64_t count : {1, 2, 50, 1000000}) {
    const auto got =
        ScoreInput("blobs150", {{"clustering_strategy", "kmeans"}, {"cluster_count", count}});
    ASSERT_TRUE(got.ok()) << got.status();
    // One cluster has no pair; as many as members are all single.
    EXPECT_EQ(got->scores.at("steadiness") == 1, count == 1);
  }
}

TEST(Walks, TakeRatiosAndOffsetsOfAllSizes) {
  for (const char* generator : {"counter", "numpy"}) {
    for (const double ratio : {1e-300, 0.01, 20.0}) {
      for (const double alpha : {1e-300, 1e-6, 1e10, 1e300}) {
        SCOPED_TRACE(::testing::Message() << generator << " " << ratio << " " << alpha);
        const auto got = ScoreInput("blobs150", {{"walk_num_ratio", ratio},
                                                 {"alpha", alpha},
                                                 {"iteration", int64_t{3}},
                                                 {"random.generator", generator}});
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_TRUE(std::isfinite(got->scores.at("steadiness")));
        EXPECT_TRUE(std::isfinite(got->scores.at("cohesiveness")));
      }
    }
  }
}

// The recorded program raises RuntimeError, or NotImplementedError for two rows.
TEST(Walks, AreUndefinedWithoutSimilarNeighbors) {
  EXPECT_TRUE(Fails(ScoreInput("two2", {}), Reason::kUndefinedScore, "dataset"));
  EXPECT_TRUE(Fails(ScoreInput("three3", {}), Reason::kUndefinedScore, "dataset"));
  const auto refused = ScoreInput("gauss200", {{"k", int64_t{1}}});
  EXPECT_TRUE(Fails(refused, Reason::kUndefinedScore, "dataset"));
  EXPECT_NE(refused.status().message().find("k = 1, n = 200"), std::string::npos);
  // The corners of a square are neighbours along its sides and share none.
  const Tensor square = MatrixOf({{0, 0}, {0, 1}, {1, 1}, {1, 0}});
  const Tensor line = MatrixOf({{0}, {1}, {3}, {7}});
  EXPECT_TRUE(Fails(ScoreOf(square, line, {}), Reason::kUndefinedScore, "dataset"));
  EXPECT_TRUE(Fails(ScoreOf(line, square, {}), Reason::kUndefinedScore, "projection"));
}

TEST(Walks, AreUndefinedIfTheOffsetVanishes) {
  EXPECT_TRUE(
      Fails(ScoreInput("blobs150", {{"alpha", 1e-310}}), Reason::kUndefinedScore, "projection"));
}

TEST(Walks, RefuseParametersThatDoNotApply) {
  const std::vector<std::pair<Parameters, std::string>> cases = {
      {{{"cluster_count", int64_t{3}}}, "cluster_count"},
      {{{"clustering_strategy", "kmeans"}, {"cluster_count", int64_t{0}}}, "cluster_count"},
      {{{"clustering_strategy", "KMEANS"}}, "clustering_strategy"},
      {{{"clustering_strategy", "3-means"}}, "clustering_strategy"},
      {{{"iteration", int64_t{0}}}, "iteration"},
      {{{"iteration", 2.5}}, "iteration"},
      {{{"walk_num_ratio", 0.0}}, "walk_num_ratio"},
      {{{"alpha", -0.1}}, "alpha"},
      {{{"workers", int64_t{0}}}, "workers"},
      {{{"local_weight", "both"}}, "local_weight"},
  };
  for (const auto& [parameters, field] : cases) {
    EXPECT_TRUE(
        Fails(ScoreInput("blobs150", parameters), Reason::kBadParameter, "specs[0]." + field));
  }
  EXPECT_TRUE(
      Fails(ScoreInput("blobs150", {{"k", int64_t{150}}}), Reason::kKOutOfRange, "specs[0].k"));
}

TEST(Walks, NeedTheirMemory) {
  SessionOptions options;
  options.memory_budget_bytes = 100000;
  EXPECT_TRUE(Fails(ScoreInput("gauss200", {}, options), Reason::kExceedsMemoryBudget,
                    "memory_budget_bytes"));
  // As large as it can be told, without an overflow.
  EXPECT_TRUE(Fails(
      ScoreInput("gauss200",
                 {{"iteration", std::numeric_limits<int64_t>::max()}, {"walk_num_ratio", 1e300}},
                 options),
      Reason::kExceedsMemoryBudget, "memory_budget_bytes"));
}

// A walk that goes on as long as memory lasts and as many more: the flag is looked at inside.
TEST(Walks, StopWhenCancelled) {
  const Tensor hd = Input("blobs150", "hd"), ld = Input("blobs150", "ld");
  for (const char* generator : {"counter", "numpy"}) {
    ResourceProvider provider;
    SessionOptions options;
    options.rows = hd.spec.shape[0];
    options.original_columns = hd.spec.shape[1];
    const RawSpec spec = {
        "snc",
        {{"iteration", std::numeric_limits<int64_t>::max()}, {"random.generator", generator}}};
    auto session = measurement::Session::Prepare({spec}, options, {}, provider.get());
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->BindOriginal(hd, nullptr).ok());
    CancelToken cancel;
    std::thread canceller([&] { cancel.Cancel(); });
    EXPECT_TRUE(Fails((*session)->Measure(ld, &cancel), Reason::kClientCancelled));
    canceller.join();
  }
}

}  // namespace
}  // namespace tenon::testing
