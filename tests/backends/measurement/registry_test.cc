#include "backends/measurement/registry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "backends/core/error.h"
#include "tests/support/status_matchers.h"

namespace tenon::measurement {
namespace {

using ::tenon::testing::Fails;

TEST(Registry, DescribesAllMeasures) {
  std::set<std::string> ids, aliases;
  for (const MeasureInfo& info : AllMeasures()) {
    SCOPED_TRACE(info.id);
    ids.insert(info.id);
    aliases.insert(info.alias);
    EXPECT_FALSE(info.description.empty());
    EXPECT_FALSE(info.outputs.empty());
    EXPECT_EQ(FindMeasure(info.id), &info);
    EXPECT_EQ(FindMeasure(info.alias), &info);
    for (const OutputInfo& output : info.outputs) {
      EXPECT_FALSE(output.best.empty() || output.range.empty() || output.key.empty());
    }
    for (const ParameterInfo& parameter : info.parameters) {
      EXPECT_FALSE(parameter.range.empty() || parameter.description.empty());
    }
  }
  EXPECT_EQ(ids.size(), 22u);
  const std::set<std::string> expected = {
      "tnc",    "mrre", "lcmc",  "nh",   "nd",    "ca_tnc", "proc",      "snc",
      "dsc",    "ivm",  "c_evm", "cadi", "l_tnc", "stress", "sn_stress", "nm_stress",
      "kl_div", "dtm",  "topo",  "pr",   "srho",  "gi"};
  EXPECT_EQ(aliases, expected);
}

TEST(Registry, KnowsWhichMeasuresNeedLabels) {
  std::set<std::string> needing;
  for (const MeasureInfo& info : AllMeasures()) {
    if (info.needs_labels) needing.insert(info.alias);
  }
  const std::set<std::string> expected = {"nh", "ca_tnc", "dsc", "ivm", "c_evm", "l_tnc", "cadi"};
  EXPECT_EQ(needing, expected);
}

TEST(Registry, LooksUpNamesCaseSensitively) {
  EXPECT_EQ(FindMeasure("TNC"), nullptr);
  EXPECT_EQ(FindMeasure(""), nullptr);
}

TEST(CheckSpecs, FillsInDefaults) {
  const auto specs = CheckSpecs({{"tnc", {}}, {"kl_divergence", {}}}, 100);
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_EQ((*specs)[0].Integer("k"), 20);
  EXPECT_EQ((*specs)[1].Real("sigma"), 0.1);
}

TEST(CheckSpecs, TakesIntegralRealsAndIntegersWhereTheOtherIsMeant) {
  const auto specs = CheckSpecs({{"lcmc", {{"k", 5.0}}}, {"dtm", {{"sigma", int64_t{2}}}}}, 10);
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_EQ((*specs)[0].Integer("k"), 5);
  EXPECT_EQ((*specs)[1].Real("sigma"), 2.0);
}

TEST(CheckSpecs, AllowsTheSameMeasureTwiceAndNoMeasureAtAll) {
  EXPECT_TRUE(CheckSpecs({{"lcmc", {{"k", int64_t{1}}}}, {"lcmc", {{"k", int64_t{2}}}}}, 3).ok());
  EXPECT_TRUE(CheckSpecs({}, 3)->empty());
}

struct Refusal {
  std::string name;
  RawSpec spec;
  int64_t n;
  Reason reason;
  std::string field;
};

class CheckSpecsRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(CheckSpecsRefuses, TheSpecificationNamingItsField) {
  const Refusal& refusal = GetParam();
  const auto specs = CheckSpecs({{"stress", {}}, refusal.spec}, refusal.n);
  EXPECT_TRUE(Fails(specs, refusal.reason, "specs[1]." + refusal.field));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    All, CheckSpecsRefuses,
    ::testing::Values(
        Refusal{"UnknownMeasure", {"nope", {}}, 100, Reason::kUnknownMeasure, "id"},
        Refusal{"Choice",
                {"gi", {{"metric", std::string("cosines")}}},
                100,
                Reason::kBadParameter,
                "metric"},
        Refusal{"UnknownParameter", {"stress", {{"k", int64_t{3}}}}, 9, Reason::kBadParameter, "k"},
        Refusal{"BoolK", {"lcmc", {{"k", true}}}, 100, Reason::kBadParameter, "k"},
        Refusal{"FractionalK", {"lcmc", {{"k", 2.5}}}, 100, Reason::kBadParameter, "k"},
        Refusal{"NanK", {"lcmc", {{"k", kNaN}}}, 100, Reason::kBadParameter, "k"},
        Refusal{"HugeK", {"lcmc", {{"k", 1e300}}}, 100, Reason::kBadParameter, "k"},
        Refusal{"TextK", {"lcmc", {{"k", std::string("5")}}}, 100, Reason::kBadParameter, "k"},
        Refusal{"ZeroK", {"lcmc", {{"k", int64_t{0}}}}, 100, Reason::kKOutOfRange, "k"},
        Refusal{"NegativeK", {"nh", {{"k", int64_t{-4}}}}, 100, Reason::kKOutOfRange, "k"},
        Refusal{"KOfAllRows", {"mrre", {{"k", int64_t{12}}}}, 12, Reason::kKOutOfRange, "k"},
        Refusal{"KOfHalfTheRows", {"tnc", {{"k", int64_t{6}}}}, 12, Reason::kKOutOfRange, "k"},
        Refusal{"LargestK",
                {"tnc", {{"k", std::numeric_limits<int64_t>::max()}}},
                12,
                Reason::kKOutOfRange,
                "k"},
        Refusal{"DefaultK", {"lcmc", {}}, 12, Reason::kKOutOfRange, "k"},
        Refusal{"TextSigma",
                {"dtm", {{"sigma", std::string("0.1")}}},
                9,
                Reason::kBadParameter,
                "sigma"},
        Refusal{"BoolSigma", {"dtm", {{"sigma", true}}}, 9, Reason::kBadParameter, "sigma"},
        Refusal{"ZeroSigma", {"dtm", {{"sigma", 0.0}}}, 9, Reason::kBadParameter, "sigma"},
        Refusal{"NanSigma", {"kl_div", {{"sigma", kNaN}}}, 9, Reason::kBadParameter, "sigma"},
        Refusal{
            "InfiniteSigma", {"kl_div", {{"sigma", HUGE_VAL}}}, 9, Reason::kBadParameter, "sigma"}),
    [](const auto& info) { return info.param.name; });

TEST(CheckSpecs, NamesKAndTheRows) {
  const auto specs = CheckSpecs({{"tnc", {{"k", int64_t{5}}}}}, 10);
  ASSERT_TRUE(Fails(specs, Reason::kKOutOfRange, "specs[0].k"));
  const ErrorDetails details = GetErrorDetails(specs.status());
  EXPECT_EQ(details.metadata.at("k"), "5");
  EXPECT_EQ(details.metadata.at("n"), "10");
  EXPECT_TRUE(CheckSpecs({{"tnc", {{"k", int64_t{5}}}}}, 11).ok());
}

}  // namespace
}  // namespace tenon::measurement
