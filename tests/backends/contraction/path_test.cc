#include "backends/contraction/path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "backends/core/error.h"
#include "tests/backends/contraction/test_networks.h"

namespace tenon {
namespace {

using contraction::Expression;
using contraction::GreedyPath;
using contraction::MakePath;
using contraction::MakeSliced;
using contraction::Path;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

PathSteps Linear(std::vector<std::vector<int64_t>> steps) {
  return {PathSteps::Format::kLinear, std::move(steps)};
}

PathSteps Ssa(std::vector<std::vector<int64_t>> steps) {
  return {PathSteps::Format::kSsa, std::move(steps)};
}

void ExpectBadPath(const PathSteps& steps, size_t n_inputs, const std::string& field,
                   const std::string& text) {
  const auto path = MakePath(steps, n_inputs);
  ASSERT_FALSE(path.ok());
  const ErrorDetails details = GetErrorDetails(path.status());
  EXPECT_EQ(details.reason, Reason::kBadPath);
  ASSERT_EQ(details.fields.size(), 1u);
  EXPECT_EQ(details.fields[0].first, field);
  EXPECT_THAT(std::string(path.status().message()), HasSubstr(text));
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("path"));
}

TEST(MakePath, LinearPositionsMoveUp) {
  EXPECT_THAT(MakePath(Linear({{0, 1}, {0, 1}}), 3)->pairs, ElementsAre(Pair(0, 1), Pair(2, 3)));
  EXPECT_THAT(MakePath(Linear({{2, 1}, {0, 1}}), 3)->pairs, ElementsAre(Pair(2, 1), Pair(0, 3)));
  EXPECT_THAT(MakePath(Linear({{1, 3}, {2, 0}, {1, 0}}), 4)->pairs,
              ElementsAre(Pair(1, 3), Pair(4, 0), Pair(5, 2)));
}

TEST(MakePath, SsaKeepsTheOrderOfAPair) {
  EXPECT_THAT(MakePath(Ssa({{2, 0}, {1, 3}}), 3)->pairs, ElementsAre(Pair(2, 0), Pair(1, 3)));
}

TEST(MakePath, StepsOfManyAreSplitLeftToRight) {
  EXPECT_THAT(MakePath(Linear({{0, 1, 2}}), 3)->pairs, ElementsAre(Pair(0, 1), Pair(3, 2)));
  EXPECT_THAT(MakePath(Ssa({{3, 0, 1}, {2, 4}}), 4)->pairs,
              ElementsAre(Pair(3, 0), Pair(4, 1), Pair(2, 5)));
}

TEST(MakePath, StepsOfOneRename) {
  EXPECT_THAT(MakePath(Linear({{0}, {0}, {1, 0}}), 2)->pairs, ElementsAre(Pair(1, 0)));
  EXPECT_THAT(MakePath(Ssa({{0}, {1, 2}}), 2)->pairs, ElementsAre(Pair(1, 0)));
  EXPECT_THAT(MakePath(Ssa({{0}}), 1)->pairs, IsEmpty());
  EXPECT_THAT(MakePath(Ssa({}), 1)->pairs, IsEmpty());
}

TEST(MakePath, RefusesPathsThatAreNone) {
  ExpectBadPath(Linear({{0, 1}}), 3, "path.steps", "leaves 2 tensors");
  ExpectBadPath(Linear({}), 2, "path.steps", "leaves 2 tensors");
  ExpectBadPath(Linear({{0, 0}, {0, 1}}), 3, "path.steps[0]", "0 twice");
  ExpectBadPath(Linear({{0, 1}, {1, 2}}), 3, "path.steps[1]", "position 2");
  ExpectBadPath(Linear({{0, 3}, {0, 1}}), 3, "path.steps[0]", "position 3");
  ExpectBadPath(Linear({{-1, 7}, {0, 1}}), 3, "path.steps[0]", "position -1");
  ExpectBadPath(Linear({{0, 1}, {0, 1}, {0, 1}}), 3, "path.steps[2]", "position 1");
  ExpectBadPath(Linear({{}}), 3, "path.steps[0]", "names no tensor");
  ExpectBadPath(Ssa({{0, 1}, {0, 3}}), 3, "path.steps[1]", "tensor 0, which is already consumed");
  ExpectBadPath(Ssa({{0, 3}, {1, 2}}), 3, "path.steps[0]", "tensor 3, which is not in 0..2");
  ExpectBadPath(Ssa({{0, int64_t{1} << 40}}), 2, "path.steps[0]", "1099511627776");
}

TEST(MakeSteps, IsTheInverseOfMakePath) {
  EXPECT_THAT(
      contraction::MakeSteps(Path{{{1, 3}, {4, 0}, {5, 2}}}, PathSteps::Format::kLinear).steps,
      ElementsAre(ElementsAre(1, 3), ElementsAre(2, 0), ElementsAre(1, 0)));
  EXPECT_THAT(contraction::MakeSteps(Path{}, PathSteps::Format::kLinear).steps, IsEmpty());
  std::mt19937_64 random(3);
  for (size_t n = 1; n < 60; ++n) {
    const Path path = testing::RandomPath(n, random);
    for (const auto format : {PathSteps::Format::kSsa, PathSteps::Format::kLinear}) {
      const PathSteps steps = contraction::MakeSteps(path, format);
      EXPECT_EQ(steps.format, format);
      EXPECT_EQ(MakePath(steps, n)->pairs, path.pairs);
    }
  }
}

TEST(MakeSliced, NamesBecomeIdsInOrder) {
  const Expression expression =
      testing::ExpressionOf(testing::NetworkOf({"ab", "bc"}, "a", {{"a", 2}, {"b", 3}, {"c", 4}}));
  EXPECT_THAT(*MakeSliced(expression, {"c", "a"}), ElementsAre(2, 0));
  EXPECT_THAT(*MakeSliced(expression, {}), IsEmpty());
  for (const auto& [names, text] :
       {std::pair<std::vector<std::string>, std::string>{{"a", "x"}, "'x'"},
        {{"a", "a"}, "twice"}}) {
    const auto sliced = MakeSliced(expression, names);
    ASSERT_FALSE(sliced.ok());
    const ErrorDetails details = GetErrorDetails(sliced.status());
    EXPECT_EQ(details.reason, Reason::kBadSlice);
    EXPECT_EQ(details.fields.at(0).first, "sliced[1]");
    EXPECT_THAT(std::string(sliced.status().message()), HasSubstr(text));
  }
}

TEST(TensorIndices, KeepsWhatLaterTensorsAndTheOutputNeed) {
  const Expression expression = testing::ExpressionOf(
      testing::NetworkOf({"ijj", "jp", "jk"}, "ki", {{"i", 2}, {"j", 3}, {"k", 2}, {"p", 5}}));
  const auto tensors =
      contraction::TensorIndices(expression, Path{{{0, 2}, {1, 3}}}, {/*sliced=*/0});
  EXPECT_THAT(tensors, ElementsAre(ElementsAre(1), ElementsAre(1, 2), ElementsAre(1, 3),
                                   ElementsAre(1, 3), ElementsAre(3)));
}

// Replays a path and checks that it is one.
void ExpectComplete(const Path& path, size_t n_inputs) {
  ASSERT_EQ(path.pairs.size() + 1, n_inputs);
  std::vector<bool> used(2 * n_inputs - 1, false);
  for (size_t s = 0; s < path.pairs.size(); ++s) {
    const auto [a, b] = path.pairs[s];
    ASSERT_LT(a, b);
    ASSERT_LT(b, static_cast<int>(n_inputs + s));
    ASSERT_FALSE(used[a] || used[b]);
    used[a] = used[b] = true;
  }
}

// The same rule, with a full search for the best pair before each step.
Path SlowGreedy(const Expression& expression) {
  const size_t n = expression.inputs.size();
  const std::vector<bool> is_private = contraction::PrivateIndices(expression);
  std::vector<std::set<int>> tensors;
  std::vector<bool> alive;
  for (const auto& input : expression.inputs) {
    tensors.emplace_back();
    for (const int index : input) {
      if (!is_private[index]) tensors.back().insert(index);
    }
    alive.push_back(true);
  }
  const auto size = [&](const std::set<int>& indices) {
    return std::accumulate(indices.begin(), indices.end(), 1.0, [&](double product, int index) {
      return product * static_cast<double>(expression.sizes[index]);
    });
  };
  const auto result = [&](size_t a, size_t b) {
    std::set<int> kept(expression.output.begin(), expression.output.end());
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (alive[t] && t != a && t != b) kept.insert(tensors[t].begin(), tensors[t].end());
    }
    std::set<int> joint = tensors[a];
    joint.insert(tensors[b].begin(), tensors[b].end());
    std::erase_if(joint, [&](int index) { return !kept.contains(index); });
    return joint;
  };
  Path path;
  while (path.pairs.size() + 1 < n) {
    std::tuple<bool, double, size_t, size_t> best{true, INFINITY, 0, 0};
    for (size_t b = 0; b < tensors.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        if (!alive[a] || !alive[b]) continue;
        const bool apart = std::none_of(tensors[a].begin(), tensors[a].end(),
                                        [&](int index) { return tensors[b].contains(index); });
        if (apart) continue;
        const double cost = size(result(a, b)) - (size(tensors[a]) + size(tensors[b]));
        best = std::min(best, {false, cost, a, b});
      }
    }
    if (std::get<0>(best)) {
      std::vector<std::pair<double, size_t>> left;
      for (size_t t = 0; t < tensors.size(); ++t) {
        if (alive[t]) left.emplace_back(size(tensors[t]), t);
      }
      std::sort(left.begin(), left.end());
      best = {true, 0, std::min(left[0].second, left[1].second),
              std::max(left[0].second, left[1].second)};
    }
    const auto [apart, cost, a, b] = best;
    std::set<int> joined = result(a, b);
    alive[a] = alive[b] = false;
    tensors.push_back(std::move(joined));
    alive.push_back(true);
    path.pairs.emplace_back(a, b);
  }
  return path;
}

TEST(GreedyPath, FollowsTheRuleOnRandomNetworks) {
  std::mt19937_64 random(11);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const Network network = testing::RandomNetwork(random);
    const Expression expression = testing::ExpressionOf(network);
    const Path path = GreedyPath(expression);
    ExpectComplete(path, network.inputs.size());
    EXPECT_EQ(path.pairs, SlowGreedy(expression).pairs);
  }
}

TEST(GreedyPath, ManyTensorsOnOneIndexAreJoined) {
  Network network;
  for (int k = 0; k < 3000; ++k)
    network.inputs.push_back({"batch", StrCat("b", k), StrCat("b", k + 1)});
  network.output = {"batch"};
  network.sizes["batch"] = 3;
  for (int k = 0; k <= 3000; ++k) network.sizes[StrCat("b", k)] = 2;
  const Expression expression = testing::ExpressionOf(network);
  const Path path = GreedyPath(expression);
  ExpectComplete(path, network.inputs.size());
  // A chain of matrices under a common batch index never needs more than batch * 2 * 2 elements.
  EXPECT_LE(contraction::ComputeCost(expression, path, {}).max_size, 3 * 2 * 2);
}

TEST(GreedyPath, ManyDisconnectedTensorsAndHugeSizesStayFinite) {
  Network network;
  for (int k = 0; k < 2000; ++k) {
    network.inputs.push_back({StrCat("o", k)});
    network.output.push_back(StrCat("o", k));
    network.sizes[StrCat("o", k)] = 1;
  }
  for (int k = 0; k < 1500; ++k) {
    network.inputs.push_back(
        {StrCat("x", k), StrCat("x", (k * 7 + 1) % 1500), StrCat("x", (k * 31 + 5) % 1500)});
  }
  for (int k = 0; k < 1500; ++k) network.sizes[StrCat("x", k)] = 1000;
  const Expression expression = testing::ExpressionOf(network);
  ExpectComplete(GreedyPath(expression), network.inputs.size());
}

}  // namespace
}  // namespace tenon
