#include "backends/planner/simplify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <numeric>
#include <random>

#include "backends/planner/random_greedy.h"
#include "backends/planner/search_network.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/backends/planner/naive_trees.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using contraction::Expression;
using contraction::Path;
using planner::NetworkPart;
using planner::Pairs;
using planner::SimplifiedNetwork;
using planner::Simplify;
using planner::SimplifyOptions;
using planner::StepPrice;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Expression Make(const std::vector<std::string>& inputs, const std::string& output,
                const std::map<std::string, int64_t>& sizes) {
  return testing::ExpressionOf(testing::NetworkOf(inputs, output, sizes));
}

// Sizes all alike.
Expression Make(const std::vector<std::string>& inputs, const std::string& output, int64_t size) {
  std::map<std::string, int64_t> sizes;
  for (const std::string& input : inputs) {
    for (const char name : input) sizes[std::string(1, name)] = size;
  }
  return Make(inputs, output, sizes);
}

SimplifyOptions Only(const std::string& rule, double allowance = kInfinity) {
  SimplifyOptions options{false, false, false};
  options.allowance = allowance;
  (rule == "scalars"   ? options.scalars
   : rule == "subsets" ? options.subsets
                       : options.exchanges) = true;
  return options;
}

std::vector<Pairs> GreedyTrees(const Expression& expression, const SimplifiedNetwork& simplified) {
  std::vector<Pairs> trees;
  for (const NetworkPart& part : simplified.parts) {
    const planner::SearchNetwork network(part.tensors, part.output, expression.sizes);
    planner::Random random(1, 0);
    trees.push_back(planner::RandomGreedy(network, {}, random));
  }
  return trees;
}

// Stitches trees, and checks that what comes out is a path over the operands.
Path StitchGreedy(const Expression& expression, const SimplifiedNetwork& simplified) {
  Path path = planner::Stitch(expression, simplified, GreedyTrees(expression, simplified), {});
  PathSteps steps;
  for (const auto& [a, b] : path.pairs) steps.steps.push_back({a, b});
  const auto checked = contraction::MakePath(steps, expression.inputs.size());
  EXPECT_TRUE(checked.ok()) << checked.status();
  if (checked.ok()) {
    EXPECT_EQ(checked->pairs, path.pairs);
  }
  return path;
}

TEST(SimplifyScalars, GoIntoTheSmallestTensor) {
  const Expression expression = Make({"", "abc", "", "ab", "cdd", ""}, "abd", 3);
  const auto simplified = Simplify(expression, Only("scalars"));
  EXPECT_THAT(simplified.prefix, ElementsAre(Pair(0, 2), Pair(5, 6), Pair(3, 7)));
  ASSERT_EQ(simplified.parts.size(), 1u);
  EXPECT_THAT(simplified.parts[0].tensors,
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(simplified.parts[0].ids, ElementsAre(1, 8, 4));
  StitchGreedy(expression, simplified);
}

TEST(SimplifyScalars, StayApartFromASmallerResult) {
  const Expression expression = Make({"ab", "bc", "", "ca"}, "", 3);
  const auto simplified = Simplify(expression, Only("scalars"));
  EXPECT_THAT(simplified.prefix, IsEmpty());
  ASSERT_EQ(simplified.parts.size(), 2u);
  EXPECT_THAT(simplified.parts[1].ids, ElementsAre(2));
  EXPECT_THAT(StitchGreedy(expression, simplified).pairs.back(), Pair(2, 5));
}

TEST(SimplifyScalars, NothingElseIsThere) {
  EXPECT_THAT(Simplify(Make({"", "", ""}, "", 2)).prefix, ElementsAre(Pair(0, 1), Pair(2, 3)));
  const auto one = Simplify(Make({"aab"}, "a", 2));
  EXPECT_THAT(one.prefix, IsEmpty());
  ASSERT_EQ(one.parts.size(), 1u);
  EXPECT_THAT(one.parts[0].tensors, ElementsAre(ElementsAre(0)));  // b is private
  EXPECT_THAT(one.parts[0].output, ElementsAre(0));
}

TEST(SimplifySubsets, VectorsGoIntoANeighbour) {
  // The larger index first: it leaves less.
  const Expression expression =
      Make({"abcd", "a", "b"}, "cd", {{"a", 2}, {"b", 5}, {"c", 7}, {"d", 7}});
  const auto simplified = Simplify(expression, Only("subsets"));
  EXPECT_THAT(simplified.prefix, ElementsAre(Pair(0, 2), Pair(1, 3)));
  StitchGreedy(expression, simplified);
}

TEST(SimplifySubsets, OfAHyperedgeTheSmallestHolder) {
  const Expression expression =
      Make({"hab", "h", "hac", "hbc"}, "", {{"h", 4}, {"a", 5}, {"b", 6}, {"c", 3}});
  const auto simplified = Simplify(expression, Only("subsets"));
  EXPECT_THAT(simplified.prefix, ElementsAre(Pair(1, 2)));
  EXPECT_THAT(simplified.parts[0].tensors,
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 2, 3), ElementsAre(0, 1, 3)));
}

TEST(SimplifySubsets, EqualIndicesNeedNoAllowance) {
  // The hyperedge ends with its last holder, or stays for the output.
  EXPECT_THAT(Simplify(Make({"ha", "ah", "hb", "bh"}, "", 3), Only("subsets", 0)).prefix,
              ElementsAre(Pair(0, 1), Pair(2, 3), Pair(4, 5)));
  const auto simplified = Simplify(Make({"hx", "xh", "hy"}, "hy", 3), Only("subsets", 0));
  EXPECT_THAT(simplified.prefix, ElementsAre(Pair(0, 1)));
  EXPECT_THAT(simplified.parts[0].tensors, ElementsAre(ElementsAre(0, 2), ElementsAre(0)));
}

TEST(SimplifyExchanges, MatricesOnABond) {
  // The matrix ab goes into the smaller neighbour; what is left would grow.
  const Expression expression =
      Make({"ab", "bcx", "aefy"}, "xycfe",
           {{"a", 4}, {"b", 4}, {"c", 4}, {"e", 4}, {"f", 4}, {"x", 4}, {"y", 9}});
  const auto simplified = Simplify(expression, Only("exchanges"));
  EXPECT_THAT(simplified.prefix, ElementsAre(Pair(0, 1)));
  EXPECT_THAT(Simplify(expression, Only("subsets")).prefix, IsEmpty());
  StitchGreedy(expression, simplified);
}

TEST(SimplifyExchanges, BondsThatGrowStay) {
  EXPECT_THAT(Simplify(Make({"abx", "aby"}, "xy", {{"a", 2}, {"b", 2}, {"x", 9}, {"y", 9}}),
                       Only("exchanges"))
                  .prefix,
              IsEmpty());
}

TEST(Simplify, BesideOneLargeOperandOnlyWhatIsFree) {
  // A scale per row may wait for the result; forced, it would double the work.
  const Expression expression =
      Make({"bijx", "bijx", "bi"}, "bi", {{"b", 8}, {"i", 8}, {"j", 64}, {"x", 64}});
  EXPECT_THAT(Simplify(expression).prefix, ElementsAre(Pair(0, 1), Pair(2, 3)));
  const Expression kept =
      Make({"bijx", "bxjy", "bi"}, "biy", {{"b", 8}, {"i", 8}, {"j", 64}, {"x", 64}, {"y", 8}});
  EXPECT_THAT(Simplify(kept).prefix, IsEmpty());
  EXPECT_THAT(Simplify(kept, Only("subsets")).prefix, ElementsAre(Pair(0, 2)));
}

TEST(Simplify, MakesNothingLargerThanTheLimit) {
  const Expression expression = Make({"hab", "h", "hac", "hbc", "", "hab"}, "h", 4);
  SimplifyOptions options;
  options.allowance = kInfinity;
  EXPECT_FALSE(Simplify(expression, options).prefix.empty());
  options.largest_elements = 63;
  EXPECT_THAT(Simplify(expression, options).prefix, IsEmpty());
}

TEST(Simplify, SplitsIntoConnectedParts) {
  const Expression expression = Make(
      {"abc", "xyz", "abd", "xyw", "s"}, "cdzws",
      {{"a", 2}, {"b", 2}, {"c", 9}, {"d", 9}, {"x", 2}, {"y", 2}, {"z", 9}, {"w", 9}, {"s", 1}});
  const auto simplified = Simplify(expression);
  EXPECT_THAT(simplified.prefix, ElementsAre(Pair(0, 4)));  // of size 1: a scalar
  ASSERT_EQ(simplified.parts.size(), 2u);
  EXPECT_THAT(simplified.parts[0].ids, ElementsAre(1, 3));
  EXPECT_THAT(simplified.parts[0].output, ElementsAre(5, 7));
  EXPECT_THAT(simplified.parts[1].ids, ElementsAre(5, 2));
  EXPECT_THAT(simplified.parts[1].output, ElementsAre(2, 6));
  StitchGreedy(expression, simplified);
}

// Replays a prefix by definition: what it costs, its largest result, the sum of all harm, and what
// is left.
struct Replay {
  double flops = 0, largest = 0, harm = 0;
  testing::NaiveNetwork rest;
};

Replay ReplayPrefix(const Expression& expression, const SimplifiedNetwork& simplified) {
  Replay replay{.rest = testing::NaiveOf(expression)};
  std::vector<int> ids(expression.inputs.size());
  std::iota(ids.begin(), ids.end(), 0);
  int next = static_cast<int>(ids.size());
  for (const auto& [x, y] : simplified.prefix) {
    const auto& network = replay.rest;
    const int a = static_cast<int>(std::find(ids.begin(), ids.end(), x) - ids.begin());
    const int b = static_cast<int>(std::find(ids.begin(), ids.end(), y) - ids.begin());
    testing::Legs joint = network.tensors[a];
    joint.insert(network.tensors[b].begin(), network.tensors[b].end());
    const double flops = NaiveSize(network, joint);
    const double result = NaiveSize(network, NaiveResult(network, a, b));
    const double sizes =
        NaiveSize(network, network.tensors[a]) + NaiveSize(network, network.tensors[b]);
    replay.flops += flops;
    replay.largest = std::max(replay.largest, result);
    replay.harm += std::max(0.0, flops - sizes + result);
    replay.rest = NaiveJoin(network, a, b);
    ids.erase(ids.begin() + std::max(a, b));
    ids.erase(ids.begin() + std::min(a, b));
    ids.push_back(next++);
  }
  // What is left are the parts' tensors, but for indices of size 1.
  std::map<int, testing::Legs> left;
  for (const NetworkPart& part : simplified.parts) {
    for (size_t t = 0; t < part.ids.size(); ++t) {
      left[part.ids[t]] = testing::Legs(part.tensors[t].begin(), part.tensors[t].end());
    }
  }
  EXPECT_EQ(left.size(), ids.size());
  for (size_t t = 0; t < ids.size(); ++t) {
    testing::Legs legs = replay.rest.tensors[t];
    std::erase_if(legs, [&](int leg) { return expression.sizes[leg] < 2; });
    EXPECT_EQ(left[ids[t]], legs);
  }
  return replay;
}

// The claims of the header, against all trees.
TEST(Simplify, CostsNoMoreThanItsHarmAndNeverGrowsTheLargest) {
  std::mt19937_64 random(5);
  int joined = 0, exact = 0, networks = 0;
  for (int round = 0; round < 3000; ++round) {
    const Network network = testing::RandomNetwork(random);
    const Expression expression = testing::ExpressionOf(network);
    const bool empty = std::any_of(expression.sizes.begin(), expression.sizes.end(),
                                   [](int64_t size) { return size == 0; });
    if (expression.inputs.size() > 8 || empty) continue;
    SimplifyOptions options;
    options.scalars = round % 3 != 0;
    options.subsets = round % 5 != 0;
    options.exchanges = round % 7 != 0;
    if (round % 2 == 0) options.allowance = kInfinity;
    const auto simplified = Simplify(expression, options);
    const Replay replay = ReplayPrefix(expression, simplified);
    const auto before = testing::BestTree(testing::NaiveOf(expression));
    const auto after = testing::BestTree(replay.rest);
    ASSERT_LE(replay.flops + after.flops, before.flops + replay.harm) << round;
    ASSERT_LE(std::max(replay.largest, after.largest), before.largest) << round;
    StitchGreedy(expression, simplified);
    joined += static_cast<int>(simplified.prefix.size());
    networks += options.allowance < 1;
    exact += options.allowance < 1 && replay.flops + after.flops <= before.flops;
  }
  EXPECT_GT(joined, 3000);
  EXPECT_GT(exact, networks * 9 / 10) << networks;  // with the default allowance
}

// The cheapest order of outer products, by all trees.
TEST(Stitch, JoinsPartsAtTheLeastCost) {
  // 2 * 3 twice, not 2 * 2 and 3 * 3.
  const Expression expression =
      Make({"a", "b", "c", "d"}, "abcd", {{"a", 2}, {"b", 2}, {"c", 3}, {"d", 3}});
  const auto simplified = Simplify(expression);
  EXPECT_EQ(simplified.parts.size(), 4u);
  const Path path = StitchGreedy(expression, simplified);
  const auto cost = contraction::ComputeCost(expression, path, {});
  EXPECT_EQ(cost.flops + 64 * cost.read_write, 4528);
  std::mt19937_64 random(2);
  for (int round = 0; round < 50; ++round) {
    std::map<std::string, int64_t> sizes;
    std::vector<std::string> inputs;
    std::string output;
    for (int k = 0; k < 7; ++k) {
      inputs.emplace_back(1, static_cast<char>('a' + k));
      sizes[inputs.back()] = std::uniform_int_distribution<int64_t>(1, 9)(random);
      output += inputs.back();
    }
    const Expression product = Make(inputs, output, sizes);
    StepPrice flops;
    flops.objective.read_write_weight = 0;
    SimplifyOptions none{false, false, false};
    const auto parts = Simplify(product, none);
    const Path best = planner::Stitch(product, parts, std::vector<Pairs>(7), flops);
    EXPECT_EQ(contraction::ComputeCost(product, best, {}).flops,
              testing::BestTree(testing::NaiveOf(product)).flops);
  }
}

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bounds are a second; sanitized builds are many times slower than what they are about.
TEST(Simplify, LargeNetworksAreQuick) {
  Expression chain, star, scalars;
  for (int k = 0; k < 20000; ++k) chain.inputs.push_back({k, k + 1});
  chain.output = {0, 20000};
  chain.sizes.assign(20001, 3);
  star.sizes.assign(501, 4);
  for (int k = 0; k < 500; ++k) star.inputs.push_back({0, k + 1});
  for (int k = 0; k < 500; k += 25) star.output.push_back(k + 1);
  scalars.inputs.resize(100000);
  const std::vector<std::pair<const Expression*, size_t>> cases = {
      {&chain, 1}, {&star, 21}, {&scalars, 1}};
  for (const auto& [expression, left] : cases) {
    SimplifiedNetwork simplified;
    Path path;
    const double simplify = Seconds([&] { simplified = Simplify(*expression); });
    const double stitch = Seconds([&] { path = StitchGreedy(*expression, simplified); });
    size_t tensors = 0;
    for (const NetworkPart& part : simplified.parts) tensors += part.ids.size();
    EXPECT_LE(tensors, left);
    EXPECT_EQ(path.pairs.size() + 1, expression->inputs.size());
    printf("%zu tensors: %zu left, simplified in %.3f s, stitched in %.3f s\n",
           expression->inputs.size(), tensors, simplify, stitch);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(simplify + stitch, 1);
#endif
  }
}

// Rounds of one gate per qubit and gates on a quarter of a grid's bonds, from zeros to zeros.
Expression RawCircuit(int rows, int columns, int rounds) {
  Expression circuit;
  std::vector<int> wire(rows * columns);
  const auto gate = [&](std::initializer_list<int> qubits) {
    std::vector<int> indices;
    for (const int q : qubits) indices.push_back(wire[q]);
    for (const int q : qubits) {
      wire[q] = static_cast<int>(circuit.sizes.size());
      circuit.sizes.push_back(2);
      indices.push_back(wire[q]);
    }
    circuit.inputs.push_back(std::move(indices));
  };
  for (int& index : wire) {
    index = static_cast<int>(circuit.sizes.size());
    circuit.sizes.push_back(2);
    circuit.inputs.push_back({index});
  }
  for (int round = 0; round < rounds; ++round) {
    for (int q = 0; q < rows * columns; ++q) gate({q});
    const bool down = round % 4 < 2;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        if ((down ? r + c : c + r + 1) % 2 != round % 2) continue;
        if (down ? r + 1 < rows : c + 1 < columns) {
          gate({r * columns + c, (r + down) * columns + c + !down});
        }
      }
    }
  }
  for (const int index : wire) circuit.inputs.push_back({index});
  return circuit;
}

TEST(Simplify, RawCircuitsKeepLessThanTheirTwoQubitGates) {
  const Expression circuit = RawCircuit(6, 9, 20);
  const auto two_qubit_gates =
      std::count_if(circuit.inputs.begin(), circuit.inputs.end(),
                    [](const std::vector<int>& input) { return input.size() == 4; });
  const auto simplified = Simplify(circuit);
  ASSERT_EQ(simplified.parts.size(), 1u);
  EXPECT_LT(static_cast<int64_t>(simplified.parts[0].ids.size()), two_qubit_gates);
  printf("%zu tensors, %zd of them two-qubit gates: %zu left\n", circuit.inputs.size(),
         two_qubit_gates, simplified.parts[0].ids.size());
  StitchGreedy(circuit, simplified);
}

TEST(Simplify, CorpusNetworks) {
  const auto folder = testing::SharedPath("networks");
  if (!folder.has_value()) GTEST_SKIP() << "the larger corpus is absent";
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    const auto file = ReadNetworkFile(entry.path().string());
    if (!file.ok()) continue;  // references, the list of small ones, the README
    const Expression expression = testing::ExpressionOf(file->network);
    const auto simplified = Simplify(expression);
    size_t left = 0;
    for (const NetworkPart& part : simplified.parts) left += part.ids.size();
    EXPECT_EQ(left + simplified.prefix.size(), expression.inputs.size());
    const auto cost =
        contraction::ComputeCost(expression, StitchGreedy(expression, simplified), {});
    const auto greedy =
        contraction::ComputeCost(expression, contraction::GreedyPath(expression), {});
    printf("%-32s %4zu -> %4zu in %zu parts; greedy log10 flops %.2f, simplified %.2f\n",
           file->name.c_str(), expression.inputs.size(), left, simplified.parts.size(),
           std::log10(greedy.flops), std::log10(cost.flops));
  }
}

}  // namespace
}  // namespace tenon
