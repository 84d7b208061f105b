#include "backends/measurement/row_metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tenon::testing {
namespace {

using measurement::ParseRowMetric;
using measurement::RowDistance;
using measurement::RowMetric;
using measurement::RowMetricNames;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Pair = std::pair<std::vector<double>, std::vector<double>>;

// Reals of both signs, positive reals, sets, a zero row, and more columns than one block of a sum.
std::vector<Pair> Pairs() {
  std::vector<Pair> pairs = {{{1.5, -2.25, 0, 3.125, 0.5, -1, 2, 0.75, -0.125, 4},
                              {0.5, -2.25, 1, -3, 0, -1.5, 2.5, 0.25, 0.875, 3}},
                             {{0.25, 0.5, 1.75}, {1.25, 0, 0.5}},
                             {{1, 0, 1, 1, 0, 0, 1, 0, 1}, {1, 1, 0, 1, 0, 1, 1, 0, 0}},
                             {{0, 0, 0, 0}, {0, 2, 0, 1}},
                             {}};
  for (int i = 0; i < 300; ++i) {
    pairs.back().first.push_back(std::sin(i));
    pairs.back().second.push_back(std::cos(1.3 * i));
  }
  return pairs;
}

struct Expected {
  const char* name;
  std::vector<double> distances;  // of Pairs()
};

// SciPy 1.17.1; minkowski with p = 3. kulczynski1 and sokalmichener, which it no longer has, are of
// SciPy 1.10.1.
const std::vector<Expected> kExpected = {
    {"euclidean",
     {6.520400677872488, 1.6770509831248424, 2.0, 2.23606797749979, 17.41818896731888}},
    {"sqeuclidean", {42.515625, 2.8125, 4.0, 5.0, 303.3933069012292}},
    {"cityblock", {12.125, 2.75, 4.0, 3.0, 245.42455249424665}},
    {"chebyshev", {6.125, 1.25, 1.0, 2.0, 1.9927024968554394}},
    {"minkowski",
     {6.164725136494657, 1.4546619668742402, 1.5874010519681994, 2.080083823051904,
      7.592570121161745}},
    {"cosine", {0.5849487757501843, 0.5198712390666945, 0.4, kNaN, 1.012530992595281}},
    {"correlation",
     {0.5746539409132119, 1.267827834114857, 0.8999999999999999, kNaN, 1.0125418280686203}},
    {"canberra", {5.453968253968254, 2.2222222222222223, 4.0, 2.0, 200.55213597619067}},
    {"braycurtis", {0.5078534031413613, 0.6470588235294118, 0.4, 1.0, 1.0194489636360284}},
    {"jensenshannon", {kInfinity, 0.4947560408055896, 0.5265537695468319, kNaN, kInfinity}},
    {"hamming", {0.9, 1.0, 0.4444444444444444, 0.5, 1.0}},
    {"jaccard", {0.2, 0.3333333333333333, 0.5714285714285714, 1.0, 0.0033333333333333335}},
    {"dice", {-2.0411392405063293, 0.4411764705882353, 0.4, 1.0, 3.127165068596937}},
    {"kulczynski1", {-0.7449612403100775, 0.6333333333333333, 0.75, 0.0, -0.3401107747649744}},
    {"rogerstanimoto",
     {3.9692307692307693, 0.7692307692307693, 0.6153846153846154, 0.8571428571428571,
      0.0361345144988934}},
    {"russellrao", {-0.5015625, 0.6041666666666666, 0.6666666666666666, 1.0, 1.0062579325380012}},
    {"sokalmichener",
     {3.9692307692307693, 0.7692307692307693, 0.6153846153846154, 0.8571428571428571,
      0.0361345144988934}},
    {"sokalsneath",
     {1.5935762816553427, 0.759493670886076, 0.7272727272727273, 1.0, 1.2048996822163345}},
    {"yule", {0.5621169658367111, 2.223529411764706, 0.8, 0.0, -0.02663365036976893}},
};

double Distance(const std::string& name, const std::vector<double>& a, const std::vector<double>& b,
                double p = 3) {
  const auto metric = ParseRowMetric(name);
  EXPECT_TRUE(metric.has_value()) << name;
  return RowDistance(*metric, p, a.data(), b.data(), static_cast<int64_t>(a.size()));
}

void ExpectSame(double got, double want) {
  if (std::isfinite(want)) {
    EXPECT_NEAR(got, want, 1e-14 + 2e-14 * std::abs(want));
  } else {
    EXPECT_EQ(std::isnan(got), std::isnan(want)) << got;
    EXPECT_EQ(std::isinf(got), std::isinf(want)) << got;
  }
}

TEST(RowMetric, HasTheDistancesOfScipy) {
  const std::vector<Pair> pairs = Pairs();
  ASSERT_EQ(kExpected.size(), RowMetricNames().size());
  for (size_t m = 0; m < kExpected.size(); ++m) {
    EXPECT_EQ(kExpected[m].name, RowMetricNames()[m]);
    EXPECT_EQ(ParseRowMetric(kExpected[m].name), static_cast<RowMetric>(m));
    for (size_t p = 0; p < pairs.size(); ++p) {
      SCOPED_TRACE(std::string(kExpected[m].name) + " of pair " + std::to_string(p));
      const auto& [a, b] = pairs[p];
      ExpectSame(Distance(kExpected[m].name, a, b), kExpected[m].distances[p]);
      ExpectSame(Distance(kExpected[m].name, b, a), kExpected[m].distances[p]);
    }
  }
}

TEST(RowMetric, KnowsNoOtherNames) {
  for (const char* name : {"", "Euclidean", "euclidean ", "l2", "precomputed", "mahalanobis"}) {
    EXPECT_FALSE(ParseRowMetric(name).has_value()) << name;
  }
}

TEST(RowMetric, HasTheMinkowskiFamilyAsSpecialCases) {
  for (const auto& [a, b] : Pairs()) {
    EXPECT_EQ(Distance("minkowski", a, b, 1), Distance("cityblock", a, b));
    EXPECT_EQ(Distance("minkowski", a, b, 2), Distance("euclidean", a, b));
    EXPECT_NEAR(Distance("minkowski", a, b, 150) / Distance("chebyshev", a, b), 1, 0.04);
  }
}

TEST(RowMetric, IsZeroOfARowAndItselfExceptWhereSetsAreUndefined) {
  const std::vector<double> row = {0.5, 2, 0.25, 1};
  for (const char* name :
       {"euclidean", "sqeuclidean", "cityblock", "chebyshev", "minkowski", "cosine", "correlation",
        "canberra", "braycurtis", "jensenshannon", "hamming", "jaccard"}) {
    EXPECT_NEAR(Distance(name, row, row), 0, 1e-15) << name;
  }
  const std::vector<double> set = {1, 0, 1, 1}, none = {0, 0, 0, 0};
  for (const char* name : {"dice", "rogerstanimoto", "sokalmichener", "sokalsneath", "yule"}) {
    EXPECT_EQ(Distance(name, set, set), 0) << name;
  }
  EXPECT_EQ(Distance("russellrao", set, set), 0.25);
  EXPECT_EQ(Distance("kulczynski1", set, set), kInfinity);
  EXPECT_EQ(Distance("jaccard", none, none), 0);
  EXPECT_EQ(Distance("yule", none, none), 0);
  EXPECT_EQ(Distance("canberra", none, none), 0);
  for (const char* name : {"dice", "sokalsneath", "kulczynski1", "cosine", "correlation",
                           "braycurtis", "jensenshannon"}) {
    EXPECT_TRUE(std::isnan(Distance(name, none, none))) << name;
  }
}

TEST(RowMetric, OverflowsToInfinity) {
  const std::vector<double> a = {1e200, -1e308}, b = {-1e200, 1e308};
  EXPECT_EQ(Distance("euclidean", a, b), kInfinity);
  EXPECT_EQ(Distance("cityblock", a, b), kInfinity);
  EXPECT_EQ(Distance("chebyshev", a, b), kInfinity);
}

}  // namespace
}  // namespace tenon::testing
