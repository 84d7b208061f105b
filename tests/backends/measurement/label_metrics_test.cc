// dsc, l_tnc, cadi and ca_tnc against scores recorded from zadu and against their definitions.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/core/error.h"
#include "tests/backends/measurement/labelled_points.h"
#include "tests/backends/measurement/measurement_fixture.h"
#include "tests/support/status_matchers.h"

namespace tenon::testing {
namespace {

using measurement::Labels;
using measurement::ParameterValue;
using measurement::RawSpec;
using measurement::SessionOptions;

Parameters Numpy(int64_t seed) {
  return {{"random.generator", std::string("numpy")}, {"random.seed", seed}};
}

Parameters With(Parameters parameters, const std::string& name, ParameterValue value) {
  parameters[name] = std::move(value);
  return parameters;
}

const Parameters kChance = {{"cvm", std::string("ch_btw")}};

Parameters NumpyChance(int64_t seed) { return With(Numpy(seed), "cvm", std::string("ch_btw")); }

// ---- Distance consistency --------------------------------------------------------------------

// zadu 0.5.4.
TEST(DistanceConsistency, HasTheScoresOfAPeer) {
  const std::string key = "distance_consistency";
  ExpectScore(ScoresOf(MakeCase(500, 6, 2, 4), "dsc"), key, 0.438, 0);
  ExpectScore(ScoresOf(MakeCase(700, 9, 3, 300), "dsc"), key, 0.04857142857142857, 0);
  ExpectScore(ScoresOf(MakeCase(300, 5, 1, 3), "dsc"), key, 0.44, 0);
  ExpectScore(ScoresOf(MakeCase(300, 140, 9, 3, DType::kFloat32), "dsc"), key, 0.45, 0);
}

TEST(DistanceConsistency, GivesTiesToTheFirstClass) {
  // Centroids 0 and 4; the points at 2 are equally far from both.
  const Points line = Rows({{-2}, {2}, {2}, {6}});
  ExpectScore(ScoresOf({line, line, {7, 7, 9, 9}}, "dsc"), "distance_consistency", 0.75, 0);
  ExpectScore(ScoresOf({line, line, {9, 9, 7, 7}}, "dsc"), "distance_consistency", 0.75, 0);
  // All centroids in one place: everything goes to the first class.
  const Points same = Rows({{1, 1}, {1, 1}, {1, 1}, {1, 1}});
  ExpectScore(ScoresOf({same, same, {1, 2, 2, 2}}, "dsc"), "distance_consistency", 0.25, 0);
}

TEST(DistanceConsistency, ComputesSinglesInSinglePrecisionUnlessAskedNotTo) {
  // The mean of the first class is 8388608.5, in float32 8388608; 4194304, of the second class, is
  // as far from that as from the mean of its own class, zero.
  const Points wide = Rows({{16777216}, {1}, {4194304}, {-4194304}});
  const Points narrow = Share(*ConvertTensor(*wide, DType::kFloat32));
  const std::vector<int64_t> labels = {1, 1, 2, 2};
  const std::string key = "distance_consistency";
  ExpectScore(ScoresOf({wide, wide, labels}, "dsc"), key, 0.75, 0);
  ExpectScore(ScoresOf({narrow, narrow, labels}, "dsc"), key, 0.5, 0);
  ExpectScore(ScoresOf({narrow, narrow, labels}, "dsc", {{"arithmetic", std::string("float64")}}),
              key, 0.75, 0);
  SessionOptions options;
  options.compute_dtype = DType::kFloat32;
  ExpectScore(ScoresOf({wide, narrow, labels}, "dsc", {}, options), key, 0.5, 0);
  ExpectScore(ScoresOf({wide, wide, labels}, "dsc", {}, options), key, 0.75, 0);
}

TEST(DistanceConsistency, IsUndefinedWhereDistancesOverflow) {
  const Points far = Rows({{1e300}, {-1e300}, {0}, {1}});
  EXPECT_TRUE(
      Fails(ScoresOf({far, far, {1, 1, 2, 2}}, "dsc"), Reason::kUndefinedScore, "projection"));
  // The sum of a class overflows although its mean would not.
  const Points edge = Rows({{1.5e308}, {1.5e308}, {0}, {1}});
  EXPECT_TRUE(
      Fails(ScoresOf({edge, edge, {1, 1, 2, 2}}, "dsc"), Reason::kUndefinedScore, "projection"));
  const Points narrow =
      Share(*ConvertTensor(MatrixOf({{1e30}, {-1e30}, {0}, {1}}), DType::kFloat32));
  EXPECT_TRUE(Fails(ScoresOf({narrow, narrow, {1, 1, 2, 2}}, "dsc"), Reason::kUndefinedScore,
                    "projection"));
  EXPECT_TRUE(
      ScoresOf({narrow, narrow, {1, 1, 2, 2}}, "dsc", {{"arithmetic", std::string("float64")}})
          .ok());
}

TEST(LabelMeasures, RefuseASingleClass) {
  const Points points = Rows({{1}, {2}, {4}, {5}, {7}});
  for (const char* id : {"dsc", "l_tnc", "cadi"}) {
    SCOPED_TRACE(id);
    EXPECT_TRUE(
        Fails(ScoresOf({points, points, {3, 3, 3, 3, 3}}, id), Reason::kBadLabels, "labels"));
  }
  EXPECT_TRUE(Fails(ScoresOf({points, points, {3, 3, 3, 3, 3}}, "ca_tnc", {{"k", int64_t{1}}}),
                    Reason::kBadLabels, "labels"));
}

TEST(LabelMeasures, HaveTheSameBitsForAnyNumberOfThreads) {
  const LabelledCase c = MakeCase(1500, 7, 2, 5);
  ExpectThreadsDoNotMatter(c, "dsc", {});
  ExpectThreadsDoNotMatter(c, "l_tnc", {});
  ExpectThreadsDoNotMatter(c, "l_tnc", With(kChance, "random.seed", int64_t{4}));
  ExpectThreadsDoNotMatter(c, "l_tnc", NumpyChance(4));
  ExpectThreadsDoNotMatter(c, "cadi", {{"random.seed", int64_t{4}}});
  ExpectThreadsDoNotMatter(c, "cadi", Numpy(4));
}

TEST(LabelMeasures, StopWhenCancelled) {
  const LabelledCase c = MakeCase(300, 7, 2, 5);
  ResourceProvider provider;
  for (const RawSpec& spec :
       {RawSpec{"dsc", {}}, RawSpec{"l_tnc", {}}, RawSpec{"l_tnc", kChance}, RawSpec{"cadi", {}}}) {
    SessionOptions options;
    options.rows = 300;
    options.original_columns = 7;
    auto session = measurement::Session::Prepare({spec}, options, Labels(c.labels), provider.get());
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->BindOriginal(*c.original, nullptr).ok());
    CancelToken cancel;
    cancel.Cancel();
    EXPECT_TRUE(Fails((*session)->Measure(*c.projection, &cancel), Reason::kClientCancelled));
  }
}

// ---- Label trustworthiness and continuity ----------------------------------------------------

// zadu 0.5.4.
TEST(LabelTrustworthiness, HasTheScoresOfAPeer) {
  struct Recorded {
    LabelledCase input;
    double trustworthiness, continuity;
  };
  const std::vector<Recorded> cases = {
      {MakeCase(500, 6, 2, 4), 0.9213888888888889, 1.0},
      {MakeCase(500, 6, 2, 4, DType::kFloat32), 0.9213888888888889, 1.0},
      {MakeCase(700, 9, 3, 300), 0.9499409141583055, 0.9929342251950948},
      {MakeCase(300, 5, 1, 3), 0.9384259259259259, 1.0},
      {MakeCase(300, 140, 9, 3, DType::kFloat32), 0.7703703703703703, 1.0}};
  for (const Recorded& recorded : cases) {
    const auto scores = ScoresOf(recorded.input, "l_tnc");
    ExpectScore(scores, "label_trustworthiness", recorded.trustworthiness);
    ExpectScore(scores, "label_continuity", recorded.continuity);
  }
}

// Two-class distance consistency by its definition.
double NaivePairConsistency(const Tensor& points, const std::vector<int64_t>& labels, int64_t a,
                            int64_t b) {
  const int64_t columns = points.spec.shape[1];
  const double* data = points.buffer.as<double>();
  std::vector<double> means[2];
  for (const int side : {0, 1}) {
    means[side].resize(columns);
    double count = 0;
    for (size_t i = 0; i < labels.size(); ++i) count += labels[i] == (side == 0 ? a : b);
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != (side == 0 ? a : b)) continue;
      for (int64_t c = 0; c < columns; ++c) means[side][c] += data[i * columns + c] / count;
    }
  }
  double total = 0, right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != a && labels[i] != b) continue;
    double distances[2] = {};
    for (const int side : {0, 1}) {
      for (int64_t c = 0; c < columns; ++c) {
        distances[side] += std::pow(data[i * columns + c] - means[side][c], 2);
      }
    }
    total += 1;
    right += (distances[0] <= distances[1]) == (labels[i] == a);
  }
  return right / total;
}

TEST(LabelTrustworthiness, IsTheMeanLossOfSeparationOverPairsOfClasses) {
  const int64_t classes = 259;  // more than two tiles of pairs
  const LabelledCase c = MakeCase(600, 4, 2, classes);
  double lost = 0, won = 0, pairs = 0;
  for (int64_t a = 0; a < classes; ++a) {
    for (int64_t b = a + 1; b < classes; ++b) {
      const double change = NaivePairConsistency(*c.original, c.labels, a, b) -
                            NaivePairConsistency(*c.projection, c.labels, a, b);
      lost += std::max(0.0, change);
      won += std::max(0.0, -change);
      pairs += 1;
    }
  }
  const auto scores = ScoresOf(c, "l_tnc");
  ExpectScore(scores, "label_trustworthiness", 1 - lost / pairs);
  ExpectScore(scores, "label_continuity", 1 - won / pairs);
}

TEST(LabelTrustworthiness, CountsChangesTwiceInThePublishedVariant) {
  const LabelledCase c = MakeCase(500, 6, 2, 4);
  const auto scores = ScoresOf(c, "l_tnc", {{"rescale_dsc", true}});
  ExpectScore(scores, "label_trustworthiness", 1 - 2 * (1 - 0.9213888888888889));
  ExpectScore(scores, "label_continuity", 1.0);
}

TEST(LabelTrustworthiness, IsOneForTheDataSetItself) {
  LabelledCase c = MakeCase(200, 5, 5, 4);
  c.projection = c.original;
  const auto scores = ScoresOf(c, "l_tnc");
  ExpectScore(scores, "label_trustworthiness", 1.0, 0);
  ExpectScore(scores, "label_continuity", 1.0, 0);
}

// zadu 0.5.4 after numpy.random.seed(77).
TEST(LabelTrustworthiness, ShufflesLabelsAsAPeerDoes) {
  const auto wide = ScoresOf(MakeCase(500, 6, 2, 4), "l_tnc", NumpyChance(77));
  ExpectScore(wide, "label_trustworthiness", 0.9668326647494072);
  ExpectScore(wide, "label_continuity", 0.9904276608125351);
  const auto line = ScoresOf(MakeCase(300, 5, 1, 3), "l_tnc", NumpyChance(77));
  ExpectScore(line, "label_trustworthiness", 0.969367228839244);
  ExpectScore(line, "label_continuity", 0.9745091462641124);
  const auto single = ScoresOf(MakeCase(500, 6, 2, 4, DType::kFloat32), "l_tnc", NumpyChance(77));
  ExpectScore(single, "label_trustworthiness", 0.9668326685933758, 1e-12);
  ExpectScore(single, "label_continuity", 0.9904276597973967, 1e-12);
  const auto wide_single =
      ScoresOf(MakeCase(300, 140, 9, 3, DType::kFloat32), "l_tnc", NumpyChance(77));
  ExpectScore(wide_single, "label_trustworthiness", 1.0, 1e-12);
  ExpectScore(wide_single, "label_continuity", 0.841311056758398, 1e-12);
}

// zadu 0.5.4 over the seeds 0 .. 39: means 0.96679 and 0.99075, deviations 0.00149 and 0.00357. The
// bounds are four standard errors of the difference of two such means.
TEST(LabelTrustworthiness, AgreesWithAPeerOverSeedsOfTheCounterGenerator) {
  const LabelledCase c = MakeCase(500, 6, 2, 4);
  double trustworthiness = 0, continuity = 0;
  for (int64_t seed = 0; seed < 40; ++seed) {
    const auto scores = ScoresOf(c, "l_tnc", With(kChance, "random.seed", seed));
    ASSERT_TRUE(scores.ok()) << scores.status();
    EXPECT_EQ(scores->seed, static_cast<uint64_t>(seed));
    trustworthiness += scores->scores.at("label_trustworthiness") / 40;
    continuity += scores->scores.at("label_continuity") / 40;
  }
  EXPECT_NEAR(trustworthiness, 0.96678999, 4 * 0.00149157 * std::sqrt(2.0 / 40));
  EXPECT_NEAR(continuity, 0.99075306, 4 * 0.00357454 * std::sqrt(2.0 / 40));
}

// zadu 0.5.4 after numpy.random.seed(1). 40 classes have 780 pairs, some batches of them.
TEST(LabelTrustworthiness, KeepsTheOrderOfDrawsOverBatchesOfPairs) {
  const LabelledCase c = MakeCase(400, 3, 2, 40);
  const auto scores = ScoresOf(c, "l_tnc", NumpyChance(1));
  ExpectScore(scores, "label_trustworthiness", 0.8692672097297731);
  ExpectScore(scores, "label_continuity", 0.8739028181507464);
  ExpectThreadsDoNotMatter(c, "l_tnc", NumpyChance(1));
  ExpectThreadsDoNotMatter(c, "l_tnc", With(kChance, "random.seed", int64_t{1}));
}

TEST(LabelTrustworthiness, IsUndefinedWhereSeparationIs) {
  const Points line = Rows({{0}, {1}, {5}, {7}}), far = Rows({{1e300}, {-1e300}, {0}, {1}});
  const std::vector<int64_t> two = {1, 1, 2, 2};
  EXPECT_TRUE(Fails(ScoresOf({far, line, two}, "l_tnc"), Reason::kUndefinedScore, "dataset"));
  EXPECT_TRUE(Fails(ScoresOf({line, far, two}, "l_tnc"), Reason::kUndefinedScore, "projection"));
  EXPECT_TRUE(
      Fails(ScoresOf({far, line, two}, "l_tnc", kChance), Reason::kUndefinedScore, "dataset"));
  EXPECT_TRUE(
      Fails(ScoresOf({line, far, two}, "l_tnc", kChance), Reason::kUndefinedScore, "projection"));
  // Two points in all, and points that are all equally far from their mean.
  EXPECT_TRUE(Fails(ScoresOf({line, line, {1, 2, 3, 3}}, "l_tnc", kChance), Reason::kUndefinedScore,
                    "dataset"));
  const Points square = Rows({{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  EXPECT_TRUE(Fails(ScoresOf({line, square, two}, "l_tnc", kChance), Reason::kUndefinedScore,
                    "projection"));
}

// ---- Class angles ----------------------------------------------------------------------------

// zadu 0.5.4 with a seed of 0, 5, 2^40 + 17.
TEST(ClassAngles, HaveTheScoresOfAPeerToTheLastBit) {
  const std::string key = "class_angular_distortion_index";
  const int64_t long_seed = (int64_t{1} << 40) + 17;
  const auto many = [](int64_t seed) { return With(Numpy(seed), "n_triplets", int64_t{70000}); };
  const LabelledCase wide = MakeCase(500, 6, 2, 4), rare = MakeCase(700, 9, 3, 300);
  ExpectScore(ScoresOf(wide, "cadi", Numpy(0)), key, 0.10516400315192127, 0);
  ExpectScore(ScoresOf(wide, "cadi", many(0)), key, 0.10452922241259027, 0);
  ExpectScore(ScoresOf(wide, "cadi", Numpy(5)), key, 0.1078605483228117, 0);
  ExpectScore(ScoresOf(wide, "cadi", many(5)), key, 0.1059914616477117, 0);
  ExpectScore(ScoresOf(wide, "cadi", Numpy(long_seed)), key, 0.10628533293982576, 0);
  ExpectScore(ScoresOf(wide, "cadi", many(long_seed)), key, 0.10473897696154717, 0);
  ExpectScore(ScoresOf(rare, "cadi", Numpy(0)), key, 0.0346117077520959, 0);
  ExpectScore(ScoresOf(rare, "cadi", many(5)), key, 0.03449730190973272, 0);
  const LabelledCase single = MakeCase(300, 140, 9, 3, DType::kFloat32);
  ExpectScore(ScoresOf(single, "cadi", Numpy(5)), key, 0.015252023782331833, 0);
}

// zadu 0.5.4 over the seeds 0 .. 199: mean 0.1054142, deviation 0.0023970. The bound is four
// standard errors of the difference of two such means.
TEST(ClassAngles, AgreeWithAPeerOverSeedsOfTheCounterGenerator) {
  const LabelledCase c = MakeCase(500, 6, 2, 4);
  double sum = 0;
  for (int64_t seed = 0; seed < 200; ++seed) {
    const auto scores = ScoresOf(c, "cadi", {{"random.seed", seed}});
    ASSERT_TRUE(scores.ok()) << scores.status();
    sum += scores->scores.at("class_angular_distortion_index");
  }
  EXPECT_NEAR(sum / 200, 0.10541421617942963, 4 * 0.002397013521463114 * std::sqrt(2.0 / 200));
}

TEST(ClassAngles, DrawTheSameTripletsHoweverManyFollow) {
  // Sums over the first triplets are prefixes: 65536 are one pass.
  const LabelledCase c = MakeCase(60, 3, 2, 3);
  const auto sum_of = [&](int64_t count) {
    const auto scores = ScoresOf(c, "cadi", {{"random.seed", int64_t{9}}, {"n_triplets", count}});
    EXPECT_TRUE(scores.ok()) << scores.status();
    return scores->scores.at("class_angular_distortion_index") * 4 * static_cast<double>(count);
  };
  const double one_pass = sum_of(65536), two_passes = sum_of(65537);
  EXPECT_GE(two_passes, one_pass - 1e-9);
  EXPECT_LE(two_passes, one_pass + 4 + 1e-9);
}

// The mean over all triplets, each with the probability of being drawn.
double MeanDistortion(const Tensor& original, const Tensor& projection,
                      const std::vector<int64_t>& labels, int64_t classes) {
  const auto cosine = [](const Tensor& points, size_t x, size_t y, size_t z) {
    const int64_t columns = points.spec.shape[1];
    const double* data = points.buffer.as<double>();
    double dot = 0, a = 0, b = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double to_y = data[y * columns + c] - data[x * columns + c];
      const double to_z = data[z * columns + c] - data[x * columns + c];
      dot += to_y * to_z;
      a += to_y * to_y;
      b += to_z * to_z;
    }
    return a == 0 || b == 0 ? 0.0 : dot / std::sqrt(a * b);
  };
  std::vector<double> sizes(classes);
  for (const int64_t label : labels) sizes[label] += 1;
  const double eligible = static_cast<double>(
      std::count_if(sizes.begin(), sizes.end(), [](double size) { return size >= 2; }));
  double sum = 0;
  for (size_t x = 0; x < labels.size(); ++x) {
    for (size_t y = 0; y < labels.size(); ++y) {
      for (size_t z = 0; z < labels.size(); ++z) {
        if (y == z || labels[y] != labels[z] || labels[x] == labels[y]) continue;
        const double size = sizes[labels[y]];
        const double probability =
            1 / eligible / static_cast<double>(classes - 1) / sizes[labels[x]] / size / (size - 1);
        const double change = cosine(original, x, y, z) - cosine(projection, x, y, z);
        sum += probability * change * change / 4;
      }
    }
  }
  return sum;
}

TEST(ClassAngles, ConvergeToTheMeanOverAllTriplets) {
  LabelledCase c = MakeCase(24, 3, 2, 4);
  c.labels.assign(24, 1);
  for (int i = 0; i < 24; ++i) c.labels[i] = i == 0 ? 0 : i < 8 ? 1 : i < 13 ? 2 : 3;  // one alone
  const double mean = MeanDistortion(*c.original, *c.projection, c.labels, 4);
  for (const Parameters& parameters : {Numpy(1), Parameters{{"random.seed", int64_t{1}}}}) {
    const auto scores = ScoresOf(c, "cadi", With(parameters, "n_triplets", int64_t{400000}));
    ExpectScore(scores, "class_angular_distortion_index", mean, 0.002);
  }
}

TEST(ClassAngles, AreZeroWithoutDirectionAndSurviveShiftsAndOverflow) {
  const std::vector<int64_t> labels = {1, 1, 2, 2, 2};
  const Points line = Rows({{0, 0}, {1, 0}, {5, 1}, {7, 2}, {6, 0}});
  const Points same = Rows({{3, 3}, {3, 3}, {3, 3}, {3, 3}, {3, 3}});
  ExpectScore(ScoresOf({same, same, labels}, "cadi", Numpy(1)), "class_angular_distortion_index", 0,
              0);
  Tensor far = MatrixOf({{0, 0}, {1, 0}, {5, 1}, {7, 2}, {6, 0}});
  for (int p = 0; p < 10; ++p) far.buffer.as<double>()[p] += 1e12;
  ExpectScore(ScoresOf({line, Share(std::move(far)), labels}, "cadi", Numpy(1)),
              "class_angular_distortion_index", 0, 1e-15);
  Tensor huge = MatrixOf({{0, 0}, {1, 0}, {5, 1}, {7, 2}, {6, 0}});
  for (int p = 0; p < 10; ++p) {
    huge.buffer.as<double>()[p] = (huge.buffer.as<double>()[p] - 3) * 0x1p1021;
  }
  ExpectScore(ScoresOf({line, Share(std::move(huge)), labels}, "cadi", Numpy(1)),
              "class_angular_distortion_index", 0, 1e-15);
}

TEST(ClassAngles, NeedAClassOfTwo) {
  const Points points = Rows({{0, 1}, {1, 0}, {2, 2}});
  EXPECT_TRUE(Fails(ScoresOf({points, points, {1, 2, 3}}, "cadi"), Reason::kBadLabels, "labels"));
  EXPECT_TRUE(ScoresOf({points, points, {1, 2, 2}}, "cadi").ok());
  const Points two = Rows({{0, 1}, {1, 0}});
  EXPECT_TRUE(Fails(ScoresOf({two, two, {1, 2}}, "cadi"), Reason::kBadLabels, "labels"));
  EXPECT_TRUE(Fails(ScoresOf({points, points, {1, 2, 2}}, "cadi", {{"n_triplets", int64_t{-1}}}),
                    Reason::kBadParameter, "specs[0].n_triplets"));
}

// ---- Class-aware trustworthiness and continuity ----------------------------------------------

// zadu 0.5.4, k = 7.
TEST(ClassAwareTrustworthiness, HasTheScoresOfAPeer) {
  const Parameters seven = {{"k", int64_t{7}}};
  const auto four = ScoresOf(MakeCase(500, 6, 2, 4), "ca_tnc", seven);
  ExpectScore(four, "ca_trustworthiness", 0.7009681565877885);
  ExpectScore(four, "ca_continuity", 0.9207519719544259);
  const auto many = ScoresOf(MakeCase(700, 9, 3, 300), "ca_tnc", seven);
  ExpectScore(many, "ca_trustworthiness", 0.777930156097272);
  ExpectScore(many, "ca_continuity", 0.9996208643108911);
  const auto three = ScoresOf(MakeCase(300, 5, 1, 3), "ca_tnc", seven);
  ExpectScore(three, "ca_trustworthiness", 0.7193656286043829);
  ExpectScore(three, "ca_continuity", 0.8953995715933432);
}

TEST(ClassAwareTrustworthiness, SplitsTheLossOfTrustworthinessByClass) {
  // What other classes take from trustworthiness and what the own class takes from continuity: with
  // a label for each row, all of the first and nothing of the second.
  LabelledCase c = MakeCase(90, 4, 2, 4);
  for (int64_t i = 0; i < 90; ++i) c.labels[i] = i;
  SessionOptions options;
  options.return_local = true;
  const Parameters k = {{"k", int64_t{9}}};
  const auto plain = ScoresOf(c, "tnc", k, options), aware = ScoresOf(c, "ca_tnc", k, options);
  ASSERT_TRUE(plain.ok() && aware.ok());
  EXPECT_EQ(aware->local_scores.at("local_ca_trustworthiness"),
            plain->local_scores.at("local_trustworthiness"));
  EXPECT_EQ(aware->local_scores.at("local_ca_continuity"), std::vector<double>(90, 1.0));
}

}  // namespace
}  // namespace tenon::testing
