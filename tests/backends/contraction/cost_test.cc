// Costs and slices against golden figures.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "backends/contraction/path.h"
#include "backends/core/error.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using contraction::ComputeCost;
using contraction::Expression;
using contraction::Path;
using contraction::PathCost;
using contraction::SliceToTarget;
using ::testing::ElementsAre;
using testing::ExpressionOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::NetworkOf;

double Score(const PathCost& cost) { return cost.flops + 64 * cost.read_write; }

// All complete paths over n tensors.
void AllPaths(std::vector<int> alive, int next, Path& path, std::vector<Path>& paths) {
  if (alive.size() == 1) paths.push_back(path);
  for (size_t i = 0; i < alive.size(); ++i) {
    for (size_t j = i + 1; j < alive.size(); ++j) {
      std::vector<int> rest = alive;
      rest.erase(rest.begin() + j);
      rest.erase(rest.begin() + i);
      rest.push_back(next);
      path.pairs.emplace_back(alive[i], alive[j]);
      AllPaths(rest, next + 1, path, paths);
      path.pairs.pop_back();
    }
  }
}

std::vector<Path> AllPaths(int n) {
  std::vector<int> alive;
  for (int k = 0; k < n; ++k) alive.push_back(k);
  Path path;
  std::vector<Path> paths;
  AllPaths(alive, n, path, paths);
  return paths;
}

double BestScore(const Expression& expression) {
  double best = INFINITY;
  for (const Path& path : AllPaths(static_cast<int>(expression.inputs.size()))) {
    best = std::min(best, Score(ComputeCost(expression, path, {})));
  }
  return best;
}

TEST(ComputeCost, MatrixChain) {
  const Expression chain =
      ExpressionOf(NetworkOf({"ab", "bc", "cd"}, "ad", {{"a", 2}, {"b", 4}, {"c", 8}, {"d", 3}}));
  const PathCost cost = ComputeCost(chain, Path{{{1, 2}, {0, 3}}}, {});
  EXPECT_EQ(cost.flops, 120);
  EXPECT_EQ(cost.read_write, 94);
  EXPECT_EQ(cost.write, 4 * 3 + 2 * 3);
  EXPECT_EQ(cost.max_size, 12);
  EXPECT_EQ(cost.max_step, 32 + 24 + 12);
  EXPECT_EQ(BestScore(chain), 6136);
}

TEST(ComputeCost, OuterProductOfFourVectors) {
  const Expression vectors = ExpressionOf(
      NetworkOf({"a", "b", "c", "d"}, "abcd", {{"a", 2}, {"b", 2}, {"c", 3}, {"d", 3}}));
  EXPECT_EQ(BestScore(vectors), 4528);
}

TEST(ComputeCost, DotProduct) {
  const PathCost cost =
      ComputeCost(ExpressionOf(NetworkOf({"a", "a"}, "", {{"a", 7}})), Path{{{0, 1}}}, {});
  EXPECT_EQ(cost.flops, 7);
  EXPECT_EQ(cost.read_write, 15);
  EXPECT_EQ(Score(cost), 967);
}

TEST(ComputeCost, RepeatedAxesCountAsStored) {
  const Expression trace = ExpressionOf(NetworkOf({"aab", "b"}, "", {{"a", 3}, {"b", 4}}));
  const PathCost cost = ComputeCost(trace, Path{{{0, 1}}}, {});
  EXPECT_EQ(cost.peak_size, 41);
  EXPECT_EQ(cost.flops, 12);
  EXPECT_EQ(cost.read_write, 41);
  EXPECT_EQ(cost.max_step, 4 + 4 + 1);
}

TEST(ComputeCost, PrivateIndicesAreChargedInFlops) {
  const Expression outer =
      ExpressionOf(NetworkOf({"ab", "c"}, "a", {{"a", 2}, {"b", 3}, {"c", 5}}));
  const PathCost cost = ComputeCost(outer, Path{{{0, 1}}}, {});
  EXPECT_EQ(cost.flops, 30);
  EXPECT_EQ(cost.max_step, 2 + 1 + 2);
}

TEST(ComputeCost, PeakOfThreeMatrices) {
  const Expression chain =
      ExpressionOf(NetworkOf({"ab", "bc", "cd"}, "ad", {{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}}));
  const PathCost cost = ComputeCost(chain, Path{{{0, 1}, {2, 3}}}, {});
  EXPECT_EQ(cost.max_size, 4);
  EXPECT_EQ(cost.peak_size, 16);
}

TEST(ComputeCost, SlicesMultiplyTotalsOnly) {
  const Expression chain =
      ExpressionOf(NetworkOf({"ab", "bc", "cd"}, "ad", {{"a", 2}, {"b", 4}, {"c", 8}, {"d", 3}}));
  const PathCost cost = ComputeCost(chain, Path{{{1, 2}, {0, 3}}}, {/*b=*/1, /*a=*/0});
  EXPECT_EQ(cost.slices, 8);
  EXPECT_EQ(cost.flops, 8 * (24 + 3));
  EXPECT_EQ(cost.write, 8 * (3 + 3));
  EXPECT_EQ(cost.read_write, 8 * ((8 + 24 + 3) + (1 + 3 + 3)));
  EXPECT_EQ(cost.max_size, 3);
}

// Twenty vectors of 2^62 elements reach beyond the range of a double; the last one is empty.
TEST(ComputeCost, NothingTimesInfinityIsNothing) {
  std::vector<std::string> inputs;
  std::map<std::string, int64_t> sizes;
  std::string output;
  for (char name = 'a'; name < 'a' + 20; ++name) {
    inputs.emplace_back(1, name);
    output += name;
    sizes[std::string(1, name)] = int64_t{1} << 62;
  }
  inputs.emplace_back("z");
  output += 'z';
  sizes["z"] = 0;
  const Expression expression = ExpressionOf(NetworkOf(inputs, output, sizes));
  Path path{{{0, 1}}};
  for (int k = 2; k <= 20; ++k) path.pairs.emplace_back(19 + k, k);
  for (const std::vector<int>& sliced : {std::vector<int>{}, {0, 20}, {20}}) {
    const PathCost cost = ComputeCost(expression, path, sliced);
    EXPECT_EQ(cost.slices, sliced.empty() ? 1 : 0);
    EXPECT_EQ(cost.flops, sliced.empty() ? HUGE_VAL : 0);
    EXPECT_EQ(cost.write, sliced.empty() ? HUGE_VAL : 0);
    EXPECT_EQ(cost.read_write, sliced.empty() ? HUGE_VAL : 0);
    const auto work = contraction::ComputeExecutedWork(expression, path, sliced);
    EXPECT_FALSE(std::isnan(work.flops));
    EXPECT_FALSE(std::isnan(work.read_write));
  }
}

TEST(ComputeCost, SingleInputHasOnlyItsOutput) {
  const Expression single = ExpressionOf(NetworkOf({"aab"}, "b", {{"a", 3}, {"b", 4}}));
  const PathCost cost = ComputeCost(single, Path{}, {});
  EXPECT_EQ(cost.flops, 0);
  EXPECT_EQ(cost.max_size, 4);
  EXPECT_EQ(ComputeCost(single, Path{}, {1}).max_size, 1);
}

Network NetworkFromJson(const nlohmann::json& json) {
  Network network;
  json.at("inputs").get_to(network.inputs);
  json.at("output").get_to(network.output);
  json.at("size_dict").get_to(network.sizes);
  return network;
}

// Every network file's figures follow from its path.
void ExpectFileFigures(const nlohmann::json& json) {
  const Expression expression = ExpressionOf(NetworkFromJson(json));
  const PathSteps steps{PathSteps::Format::kSsa, json.at("path_ssa")};
  const auto path = contraction::MakePath(steps, expression.inputs.size());
  ASSERT_TRUE(path.ok()) << path.status();
  const auto sliced = contraction::MakeSliced(expression, json.at("sliced"));
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  const PathCost cost = ComputeCost(expression, *path, *sliced);
  const auto expect_near = [&](const char* key, double value) {
    if (!json.contains(key)) return;
    const double expected = json.at(key).get<double>();
    const bool is_exact = expected < 9007199254740992.0;  // sums of integers below 2^53
    EXPECT_NEAR(value, expected, is_exact ? 0 : 1e-12 * expected) << key;
  };
  // The files leave indices on a single operand out of the flops; the cost model charges them.
  const std::vector<bool> is_private = contraction::PrivateIndices(expression);
  const bool has_private =
      std::find(is_private.begin(), is_private.end(), true) != is_private.end();
  if (!has_private) expect_near("flops", cost.flops);
  expect_near("write", cost.write);
  expect_near("max_size", cost.max_size);
  expect_near("nslices", cost.slices);
}

int ExpectFolderFigures(const std::string& folder) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const nlohmann::json json = testing::ReadJsonOrDie(entry.path());
    if (!json.is_object() || !json.contains("path_ssa")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ExpectFileFigures(json);
    ++files;
  }
  return files;
}

TEST(ComputeCost, ReproducesTheCorpus) {
  EXPECT_GE(ExpectFolderFigures(testing::TestPath("data/networks")), 15);
}

TEST(ComputeCost, ReproducesTheLargerCorpus) {
  const auto folder = testing::SharedPath("networks");
  if (!folder.has_value()) GTEST_SKIP() << "the larger corpus is absent";
  EXPECT_GE(ExpectFolderFigures(*folder), 25);
  for (const auto& json : testing::ReadJsonOrDie(*folder + "/small_einsums.json")) {
    SCOPED_TRACE(json.at("name").dump());
    ExpectFileFigures(json);
  }
}

TEST(SliceToTarget, PicksTheIndexOfMostResultsThenTheLarger) {
  const Expression chain = ExpressionOf(NetworkOf(
      {"ab", "bc", "cd", "de"}, "ae", {{"a", 2}, {"b", 4}, {"c", 8}, {"d", 16}, {"e", 2}}));
  const Path path{{{1, 2}, {3, 4}, {0, 5}}};  // bd (64), be (8), ae (4)
  EXPECT_THAT(*SliceToTarget(chain, path, 64, false), IsEmpty());
  EXPECT_THAT(*SliceToTarget(chain, path, 63, false), ElementsAre(/*d=*/3));
  EXPECT_THAT(*SliceToTarget(chain, path, 7, false), ElementsAre(/*b=*/1, /*d=*/3));
  const auto sliced = SliceToTarget(chain, path, 3, false);
  EXPECT_EQ(GetErrorDetails(sliced.status()).reason, Reason::kExceedsMemoryBudget);
  EXPECT_THAT(*SliceToTarget(chain, path, 3, true), ElementsAre(1, 3, 0));
}

TEST(SliceToTarget, SaysWhatIsNeeded) {
  const Expression outer = ExpressionOf(
      NetworkOf({"ai", "ibcd"}, "abcd", {{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}, {"i", 3}}));
  const auto sliced = SliceToTarget(outer, Path{{{0, 1}}}, 8, false);
  ASSERT_FALSE(sliced.ok());
  const ErrorDetails details = GetErrorDetails(sliced.status());
  EXPECT_EQ(details.reason, Reason::kExceedsMemoryBudget);
  EXPECT_EQ(details.fields.at(0).first, "target_size");
  EXPECT_EQ(details.metadata.at("target_elements"), "8");
  EXPECT_EQ(details.metadata.at("needed_elements"), "16");
  EXPECT_THAT(std::string(sliced.status().message()), HasSubstr("16"));
}

TEST(SliceToTarget, MeetsTheTargetOnRandomNetworks) {
  std::mt19937_64 random(3);
  int reached = 0;
  for (int repeat = 0; repeat < 300; ++repeat) {
    const Expression expression = ExpressionOf(testing::RandomNetwork(random));
    const Path path = testing::RandomPath(expression.inputs.size(), random);
    const double target = static_cast<double>(random() % 20 + 1);
    const auto sliced = SliceToTarget(expression, path, target, repeat % 2);
    if (!sliced.ok()) {
      EXPECT_EQ(repeat % 2, 0) << "slicing all indices reaches one element";
      continue;
    }
    ++reached;
    EXPECT_LE(ComputeCost(expression, path, *sliced).max_size, target);
  }
  EXPECT_GT(reached, 150);
}

}  // namespace
}  // namespace tenon
