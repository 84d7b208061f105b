#include "backends/contraction/loop_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "backends/contraction/program.h"
#include "backends/contraction/slice_groups.h"
#include "backends/core/network.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/support/test_data.h"

namespace tenon::contraction {
namespace {

using ::testing::ElementsAre;
using testing::ExpressionOf;
using testing::NetworkOf;

struct Problem {
  std::vector<int64_t> extents;
  int64_t block_elements = 1;
  std::vector<LoopWork> work;
};

Problem RandomProblem(std::mt19937_64& random, size_t loops, int64_t largest_extent) {
  Problem problem;
  for (size_t i = 0; i < loops; ++i) {
    problem.extents.push_back(static_cast<int64_t>(random() % (largest_extent - 1)) + 2);
  }
  problem.block_elements = int64_t{1} << random() % 20;
  const size_t sets = random() % 8 + 1;
  for (size_t i = 0; i < sets; ++i) {
    const uint64_t mask = (random() & random()) % (uint64_t{1} << loops);
    if (mask != 0) problem.work.push_back({mask, static_cast<double>(random() % 1000 + 1)});
  }
  return problem;
}

// By walking all slices.
double WalkedFlops(const Problem& problem, const std::vector<int>& order, int64_t group_slices) {
  int64_t slices = 1;
  for (const int64_t extent : problem.extents) slices *= extent;
  double flops = 0;
  std::vector<int64_t> last;
  for (int64_t slice = 0; slice < slices; ++slice) {
    std::vector<int64_t> values(order.size());
    int64_t rest = slice;
    for (size_t i = order.size(); i-- > 0; rest /= problem.extents[order[i]]) {
      values[i] = rest % problem.extents[order[i]];
    }
    size_t changed = 0;
    while (slice > 0 && changed < values.size() && values[changed] == last[changed]) ++changed;
    if (slice % group_slices == 0) changed = 0;
    for (const LoopWork& work : problem.work) {
      size_t level = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        if (work.loops >> order[i] & 1) level = i + 1;
      }
      if (changed < level) flops += work.flops;
    }
    last = values;
  }
  return flops;
}

int64_t GroupSlices(const Problem& problem, const std::vector<int>& order) {
  std::vector<int64_t> extents;
  int64_t slices = 1;
  for (const int loop : order) {
    extents.push_back(problem.extents[loop]);
    slices *= extents.back();
  }
  return DivideSlices(slices, problem.block_elements, extents).group_slices;
}

TEST(LoopFlops, CountsWhatAWalkRedoes) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const Problem problem = RandomProblem(random, random() % 5 + 1, 6);
    std::vector<int> order(problem.extents.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    ASSERT_EQ(LoopFlops(problem.extents, problem.block_elements, problem.work, order),
              WalkedFlops(problem, order, GroupSlices(problem, order)));
  }
}

TEST(BestLoopOrder, IsTheBestOfAllPermutations) {
  std::mt19937_64 random(2);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Problem problem = RandomProblem(random, random() % 5 + 2, repeat % 2 == 0 ? 2 : 12);
    const std::vector<int> best =
        BestLoopOrder(problem.extents, problem.block_elements, problem.work);
    const double flops = LoopFlops(problem.extents, problem.block_elements, problem.work, best);
    std::vector<int> order(problem.extents.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      ASSERT_LE(flops, LoopFlops(problem.extents, problem.block_elements, problem.work, order));
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// Nested work: each deeper set costs more, so the order is known.
TEST(BestLoopOrder, FindsTheNestOfManyLoops) {
  for (const size_t loops : {12, 21, 40}) {
    std::vector<int> nest(loops);
    std::iota(nest.begin(), nest.end(), 0);
    std::mt19937_64 random(loops);
    std::shuffle(nest.begin(), nest.end(), random);
    Problem problem{std::vector<int64_t>(loops, 2), 1, {}};
    uint64_t outside = 0;
    for (const int loop : nest) {
      outside |= uint64_t{1} << loop;
      problem.work.push_back({outside, 1});
    }
    const std::vector<int> order = BestLoopOrder(problem.extents, 1, problem.work);
    const double best = LoopFlops(problem.extents, 1, problem.work, nest);
    EXPECT_EQ(LoopFlops(problem.extents, 1, problem.work, order), best);
  }
}

TEST(BestLoopOrder, TrivialProblems) {
  EXPECT_THAT(BestLoopOrder({}, 1, {}), ElementsAre());
  EXPECT_THAT(BestLoopOrder({5}, 1, {{1, 2}}), ElementsAre(0));
  EXPECT_THAT(BestLoopOrder({2, 3}, 1, {}), ElementsAre(0, 1));
}

TEST(OrderSummedLoops, DoesNotDependOnTheOrderGiven) {
  std::mt19937_64 random(3);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Network network = testing::RandomNetwork(random);
    const Expression expression = ExpressionOf(network);
    const Path path = testing::RandomPath(network.inputs.size(), random);
    std::vector<int> sliced = testing::RandomSliced(expression, random);
    const auto program = LowerProgram(expression, path, sliced, {});
    std::shuffle(sliced.begin(), sliced.end(), random);
    const auto shuffled = LowerProgram(expression, path, sliced, {});
    ASSERT_TRUE(program.ok() && shuffled.ok());
    EXPECT_EQ((*program)->FingerprintHex(), (*shuffled)->FingerprintHex());
    EXPECT_EQ((*program)->sliced_order(), (*shuffled)->sliced_order());
    EXPECT_THAT((*program)->sliced_order(), ::testing::UnorderedElementsAreArray(sliced));
  }
}

// A chain: the expensive end depends on `a` alone, so `a` is the outer loop.
TEST(OrderSummedLoops, ExpensiveWorkStandsOutside) {
  const Expression expression = ExpressionOf(NetworkOf(
      {"ax", "xb", "ya", "bz", "zy"}, "", {{"a", 64}, {"b", 64}, {"x", 2}, {"y", 40}, {"z", 40}}));
  const int a = 0, b = 2;
  ASSERT_EQ(expression.names[a] + expression.names[b], "ab");
  EXPECT_THAT(
      OrderSummedLoops(expression, Path{{{0, 1}, {2, 4}, {5, 6}, {7, 3}}}, {a, b}, {b, a}, 1),
      ElementsAre(a, b));
}

// The engine's own count, of programs that have no steps beside the pairs.
TEST(ComputeExecutedWork, IsWhatTheProgramRuns) {
  std::mt19937_64 random(7);
  LoweringOptions options;
  options.dtype = DType::kFloat64;
  int compared = 0, saved = 0;
  for (int repeat = 0; repeat < 600; ++repeat) {
    const Network network = testing::RandomNetwork(random);
    const Expression expression = ExpressionOf(network);
    const Path path = testing::RandomPath(network.inputs.size(), random);
    const std::vector<int> sliced = testing::RandomSliced(expression, random);
    const auto program = LowerProgram(expression, path, sliced, options);
    ASSERT_TRUE(program.ok());
    if ((*program)->descriptor().n_steps != static_cast<int>(path.pairs.size())) continue;
    if ((*program)->total_flops() == 0) continue;
    const double flops = ComputeExecutedWork(expression, path, sliced).flops;
    EXPECT_EQ(2 * flops, (*program)->total_flops());
    ++compared;
    saved += flops < ComputeCost(expression, path, sliced).flops;
  }
  EXPECT_GT(compared, 50);
  EXPECT_GT(saved, 10);
}

TEST(ComputeExecutedWork, OfMoreSlicesThanCanBeCounted) {
  Network network{{{}, {}, {}, {}, {"out"}}, {"out"}, {{"out", 2}}};
  for (int i = 0; i < 70; ++i) {
    const std::string name = "i" + std::to_string(i);
    network.inputs[i % 2].push_back(name);
    network.inputs[2 + i % 2].push_back(name);
    network.sizes[name] = 2;
  }
  const Expression expression = ExpressionOf(network);
  std::vector<int> sliced;
  for (size_t index = 0; index < expression.sizes.size(); ++index) {
    if (expression.names[index] != "out") sliced.push_back(static_cast<int>(index));
  }
  const Path path = {{{0, 2}, {1, 3}, {5, 6}, {7, 4}}};
  const ExecutedWork work = ComputeExecutedWork(expression, path, sliced);
  EXPECT_EQ(work.flops, 0x1p70 * (1 + 1 + 1 + 2));
  EXPECT_EQ(work.read_write, 0x1p70 * (3 + 3 + 3 + 5));
}

// Figures of deep slicing: how many times the flops of all slices run one by one are saved.
double SavedFactor(const std::string& name, double target_elements) {
  const auto file = ReadNetworkFile(testing::TestPath("data/networks/" + name + ".json"));
  EXPECT_TRUE(file.ok()) << file.status();
  const Expression expression = ExpressionOf(file->network);
  const auto path = MakePath(*file->path, expression.inputs.size());
  const auto sliced = SliceToTarget(expression, *path, target_elements, false);
  EXPECT_TRUE(sliced.ok()) << sliced.status();
  LoweringOptions options;
  options.dtype = DType::kFloat64;
  const auto program = LowerProgram(expression, *path, *sliced, options);
  EXPECT_TRUE(program.ok()) << program.status();
  return 2 * ComputeCost(expression, *path, *sliced).flops / (*program)->total_flops();
}

TEST(OrderSummedLoops, SavesFlopsOnDeepSlicing) {
  EXPECT_GT(SavedFactor("peps_norm_6x6_D4", 1 << 20), 1.5);
  EXPECT_GT(SavedFactor("rqc_fsim_5x5_m14_amp", 1 << 18), 1.05);
  EXPECT_GT(SavedFactor("randreg3_n100_D4", 1 << 18), 1.01);
}

}  // namespace
}  // namespace tenon::contraction
