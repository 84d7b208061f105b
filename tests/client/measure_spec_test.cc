#include "tenon/measure_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "backends/core/error.h"

namespace tenon::client {
namespace {

using ::testing::HasSubstr;

v1::MeasureSpec Parse(const std::string& text) {
  const auto spec = ParseMeasureSpec(text);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.status();
  return spec.ok() ? *spec : v1::MeasureSpec();
}

TEST(MeasureSpecTest, NamesAlone) {
  EXPECT_EQ(Parse("stress").id(), "stress");
  EXPECT_EQ(Parse(" tnc ").id(), "tnc");
  // A server may know more measures than this client.
  EXPECT_EQ(Parse("measure_of_tomorrow").id(), "measure_of_tomorrow");
  EXPECT_EQ(Parse("stress").parameters_case(), v1::MeasureSpec::PARAMETERS_NOT_SET);
}

TEST(MeasureSpecTest, AliasesAndFullNames) {
  EXPECT_EQ(Parse("tnc:k=20").trustworthiness_continuity().k(), 20);
  EXPECT_EQ(Parse("trustworthiness_continuity:k=7").trustworthiness_continuity().k(), 7);
  EXPECT_EQ(Parse("kl_div:sigma=0.25").kl_divergence().sigma(), 0.25);
  EXPECT_EQ(Parse("tnc:k=20").id(), "tnc");
}

// Every measure of the contract is reached by its id, and by the alias in its comment.
TEST(MeasureSpecTest, EveryMeasureHasItsParameters) {
  const std::map<std::string, std::string> kExamples = {{"tnc", "k=3"},
                                                        {"mrre", "k=3"},
                                                        {"lcmc", "k=3"},
                                                        {"nh", "k=3"},
                                                        {"nd", "k=3"},
                                                        {"ca_tnc", "k=3"},
                                                        {"proc", "pairing=identity"},
                                                        {"snc", "alpha=0.5"},
                                                        {"dsc", "arithmetic=float64"},
                                                        {"ivm", "measure=davies_bouldin"},
                                                        {"c_evm", "clustering=dbscan"},
                                                        {"l_tnc", "cvm=ch_btw"},
                                                        {"cadi", "n_triplets=100"},
                                                        {"kl_div", "sigma=1"},
                                                        {"dtm", "sigma=1"},
                                                        {"topo", "k=3"},
                                                        {"gi", "metric=cosine"}};
  std::set<int> cases;
  for (const auto& [alias, parameters] : kExamples) {
    cases.insert(Parse(alias + ":" + parameters).parameters_case());
  }
  EXPECT_EQ(cases.size(), kExamples.size());
  EXPECT_EQ(cases.count(v1::MeasureSpec::PARAMETERS_NOT_SET), 0u);
  // The rest has no parameters at all, and says so.
  for (const char* alias : {"stress", "sn_stress", "nm_stress", "pr", "srho"}) {
    const auto spec = ParseMeasureSpec(std::string(alias) + ":k=3");
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("it has none")) << alias;
  }
}

TEST(MeasureSpecTest, RandomNumbersHaveShortNames) {
  const auto snc = Parse("snc:k=10,seed=18446744073709551615,rng=numpy").steadiness_cohesiveness();
  EXPECT_EQ(snc.random().seed(), UINT64_MAX);
  EXPECT_EQ(snc.random().generator(), v1::RANDOM_GENERATOR_NUMPY);
  EXPECT_EQ(Parse("snc:random.seed=3").steadiness_cohesiveness().random().seed(), 3u);
}

TEST(MeasureSpecTest, TheOrderOfMinkowskiAsTheReferenceWritesIt) {
  EXPECT_EQ(Parse("gi:metric=minkowski,minkowski.p=3").gap_index().minkowski_p(), 3);
  EXPECT_EQ(Parse("c_evm:clustering=dbscan,dbscan.metric=minkowski,dbscan.minkowski.p=3")
                .clustering_and_external_validation_measure()
                .dbscan()
                .minkowski_p(),
            3);
  EXPECT_FALSE(ParseMeasureSpec("gi:metric=minkowski,minkowski.p=3,minkowski_p=4").ok());
}

TEST(MeasureSpecTest, EnumerationsInnerMessagesAndBooleans) {
  EXPECT_EQ(Parse("ivm:measure=silhouette").internal_validation_measure().measure(),
            v1::INTERNAL_VALIDATION_INDEX_SILHOUETTE);
  const auto cevm = Parse("c_evm:clustering=kmeans, kmeans.n_clusters=4, kmeans.init=k-means++")
                        .clustering_and_external_validation_measure();
  EXPECT_EQ(cevm.kmeans().n_clusters(), 4);
  EXPECT_EQ(cevm.kmeans().init(), v1::KMEANS_INIT_PLUS_PLUS);
  const auto means = Parse("snc:clustering_strategy=7-means").steadiness_cohesiveness();
  EXPECT_EQ(means.clustering_strategy(), v1::CLUSTERING_STRATEGY_KMEANS);
  EXPECT_EQ(means.cluster_count(), 7);
  EXPECT_TRUE(Parse("l_tnc:rescale_dsc=true").label_trustworthiness_and_continuity().rescale_dsc());
  EXPECT_EQ(Parse("gi:precomputed_handle=datasets/a=b").gap_index().precomputed_handle(),
            "datasets/a=b");
}

TEST(MeasureSpecTest, ErrorsNameTheParameter) {
  const struct {
    const char* text;
    const char* field;
    const char* message;
  } kCases[] = {
      {"tnc:kk=3", "kk", "it has k"},
      {"tnc:k=x", "k", "not a whole number"},
      {"tnc:k=2.5", "k", "not a whole number"},
      {"tnc:k=99999999999", "k", "not a whole number"},
      {"tnc:k=", "k", "not a whole number"},
      {"tnc:k=1,k=2", "k", "given twice"},
      {"snc:seed=1,random.seed=2", "random.seed", "given twice"},
      {"tnc:k", "k", "name=value"},
      {"tnc:", "", "name=value"},
      {"tnc:=3", "=3", "name=value"},
      {"kl_div:sigma=wide", "sigma", "not a number"},
      {"ivm:measure=gold", "measure", "silhouette, calinski_harabasz, davies_bouldin"},
      {"ivm:measure=unspecified", "measure", "it may be"},
      {"l_tnc:rescale_dsc=1", "rescale_dsc", "neither true nor false"},
      {"snc:random=1", "random", "has parts"},
      {"tnc:k.x=1", "k.x", "has no parts"},
      {"snc:seed=-1", "seed", "not a whole number"},
  };
  for (const auto& c : kCases) {
    const auto spec = ParseMeasureSpec(c.text);
    ASSERT_FALSE(spec.ok()) << c.text;
    const ErrorDetails details = GetErrorDetails(spec.status());
    EXPECT_EQ(details.reason, Reason::kBadParameter) << c.text;
    ASSERT_EQ(details.fields.size(), 1u) << c.text;
    EXPECT_EQ(details.fields[0].first, c.field) << c.text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(c.message)) << c.text;
  }
}

TEST(MeasureSpecTest, UnknownMeasures) {
  for (const char* text : {"", ":k=3", "nope:k=3", "parameters:k=3", "id:k=3"}) {
    const auto spec = ParseMeasureSpec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(GetErrorDetails(spec.status()).reason, Reason::kUnknownMeasure) << text;
  }
  EXPECT_EQ(GetErrorDetails(ParseMeasureSpec("\xFF").status()).reason, Reason::kBadParameter);
}

}  // namespace
}  // namespace tenon::client
