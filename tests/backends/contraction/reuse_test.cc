#include "backends/contraction/reuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "backends/contraction/program.h"
#include "tests/backends/contraction/test_networks.h"

namespace tenon::contraction {
namespace {

using ::testing::ElementsAre;

const std::vector<double> kRuns = {1, 10, 100};

std::vector<int> Ranks(const std::vector<ReuseStep>& steps) {
  std::vector<int> ranks;
  for (const ReuseStep& step : steps) ranks.push_back(step.rank);
  return ranks;
}

TEST(ReduceReuse, GivesUpWhatFreesMostPerFlop) {
  // 0 and 1 are kept for 2: 1 is as large and costs less.
  std::vector<ReuseStep> steps = {{2, 0, 50, 64}, {2, 0, 5, 64}, {-1, 2, 1, 1}};
  EXPECT_EQ(ReduceReuse(kRuns, 1, steps), 1);
  EXPECT_THAT(Ranks(steps), ElementsAre(0, 2, 2));
  EXPECT_EQ(ReduceReuse(kRuns, 64, steps), 1);
  EXPECT_THAT(Ranks(steps), ElementsAre(2, 2, 2));
  EXPECT_EQ(ReduceReuse(kRuns, 64, steps), 0);
}

// 0 serves only 1, so it runs with it; 2 serves 3 that runs more often already.
TEST(ReduceReuse, StepsBelowRunWithTheirReader) {
  std::vector<ReuseStep> steps = {
      {1, 0, 5, 8}, {4, 0, 5, 1000}, {3, 0, 1, 8}, {4, 1, 1, 8}, {-1, 2, 1, 1}};
  EXPECT_EQ(ReduceReuse(kRuns, 1000, steps), 1);
  EXPECT_THAT(Ranks(steps), ElementsAre(2, 2, 0, 1, 2));
}

TEST(ReduceReuse, RanksNeverFallAlongTheTree) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::vector<ReuseStep> steps(random() % 12 + 1);
    for (size_t i = steps.size(); i-- > 0;) {
      ReuseStep& step = steps[i];
      const bool is_root = i + 1 == steps.size();
      step.reader = is_root ? -1 : static_cast<int>(i + 1 + random() % (steps.size() - i - 1));
      step.rank = is_root ? 2 : static_cast<int>(random() % (steps[step.reader].rank + 1));
      step.flops = static_cast<double>(random() % 100);
      step.elements = random() % 100 + 1;
    }
    std::vector<ReuseStep> before = steps;
    int kept = 0;
    for (const ReuseStep& step : steps) {
      kept += step.reader >= 0 && steps[step.reader].rank > step.rank;
    }
    while (ReduceReuse(kRuns, 1, steps) == 1) {
      --kept;
      for (size_t i = 0; i < steps.size(); ++i) {
        ASSERT_GE(steps[i].rank, before[i].rank);
        if (steps[i].reader < 0) continue;
        ASSERT_LE(steps[i].rank, steps[steps[i].reader].rank);
      }
      before = steps;
    }
    EXPECT_EQ(kept, 0);
    for (const ReuseStep& step : steps) EXPECT_EQ(step.rank, 2);
  }
}

// "K" (pr) is formed once but needed late, when the large product of each slice has gone.
TEST(LowerProgram, GivesUpReuseToMeetALimit) {
  const Expression expression = testing::ExpressionOf(testing::NetworkOf(
      {"pq", "qr", "sab", "cd", "abc", "dp"}, "r",
      {{"p", 64}, {"q", 2}, {"r", 64}, {"s", 4}, {"a", 8}, {"b", 8}, {"c", 8}, {"d", 8}}));
  const Path path{{{0, 1}, {2, 3}, {7, 4}, {8, 5}, {9, 6}}};
  const std::vector<int> sliced = {3};
  ASSERT_EQ(expression.names[3], "s");
  LoweringOptions options;
  const auto free = *LowerProgram(expression, path, sliced, options);
  EXPECT_EQ(free->descriptor().constant_elements, 4096);
  EXPECT_GE(free->descriptor().arena_elements, 4096);
  EXPECT_EQ(free->given_up_results(), 0);
  options.intermediate_bytes = 5000 * 8;
  const auto tight = *LowerProgram(expression, path, sliced, options);
  EXPECT_EQ(tight->given_up_results(), 1);
  EXPECT_EQ(tight->descriptor().constant_elements, 0);
  EXPECT_LE(tight->descriptor().arena_elements, 5000);
  EXPECT_EQ(tight->total_flops() - free->total_flops(), 3 * 2 * 64 * 2 * 64);
  EXPECT_NE(tight->FingerprintHex(), free->FingerprintHex());
  options.intermediate_bytes = 1;  // as far as it goes
  EXPECT_LE((*LowerProgram(expression, path, sliced, options))->descriptor().arena_elements, 5000);
}

}  // namespace
}  // namespace tenon::contraction
