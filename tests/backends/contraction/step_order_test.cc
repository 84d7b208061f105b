#include "backends/contraction/step_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tenon::contraction {
namespace {

using ::testing::ElementsAre;

// A random tree whose steps come in random order, as paths do.
std::vector<TreeStep> RandomTree(std::mt19937_64& random, int n_steps) {
  std::vector<TreeStep> steps;
  std::vector<int> roots;
  for (int i = 0; i < n_steps; ++i) {
    TreeStep step{-1, -1, static_cast<int64_t>(random() % 100)};
    const int left_over = n_steps - i;
    for (int* child : {&step.left, &step.right}) {
      const bool must = static_cast<int>(roots.size()) >= left_over;
      if (roots.empty() || (!must && random() % 2 == 0)) continue;
      const size_t pick = random() % roots.size();
      *child = roots[pick];
      roots.erase(roots.begin() + pick);
    }
    roots.push_back(i);
    steps.push_back(step);
  }
  return steps;
}

bool IsWhole(const std::vector<TreeStep>& steps) {
  std::vector<bool> read(steps.size(), false);
  for (const TreeStep& step : steps) {
    if (step.left >= 0) read[step.left] = true;
    if (step.right >= 0) read[step.right] = true;
  }
  return std::count(read.begin(), read.end(), false) == 1;
}

// The least peak of all orders that finish one subtree before another.
double LeastPeak(const std::vector<TreeStep>& steps, int root) {
  if (root < 0) return 0;
  const int a = steps[root].left, b = steps[root].right;
  const auto size = [&](int step) { return step < 0 ? 0.0 : steps[step].elements * 1.0; };
  const double peak_a = LeastPeak(steps, a), peak_b = LeastPeak(steps, b);
  const double best = std::min(std::max(peak_a, b < 0 ? 0 : size(a) + peak_b),
                               std::max(peak_b, a < 0 ? 0 : size(b) + peak_a));
  return std::max(best, size(a) + size(b) + size(root));
}

TEST(OrderSteps, NeedsTheLeastMemoryAndKeepsDependencies) {
  std::mt19937_64 random(1);
  int checked = 0;
  for (int repeat = 0; repeat < 500; ++repeat) {
    const std::vector<TreeStep> steps = RandomTree(random, random() % 12 + 1);
    if (!IsWhole(steps)) continue;
    ++checked;
    const std::vector<int> order = OrderSteps(steps);
    ASSERT_EQ(order.size(), steps.size());
    std::vector<bool> done(steps.size(), false);
    for (const int step : order) {
      ASSERT_TRUE(steps[step].left < 0 || done[steps[step].left]);
      ASSERT_TRUE(steps[step].right < 0 || done[steps[step].right]);
      ASSERT_FALSE(done[step]);
      done[step] = true;
    }
    ASSERT_EQ(PeakElements(steps, order), LeastPeak(steps, static_cast<int>(steps.size()) - 1));
  }
  EXPECT_GT(checked, 100);
}

TEST(OrderSteps, TiesKeepTheNumbers) {
  EXPECT_THAT(OrderSteps({{-1, -1, 5}, {-1, -1, 5}, {1, 0, 5}}), ElementsAre(0, 1, 2));
  EXPECT_THAT(OrderSteps({}), ElementsAre());
}

// The second subtree forms something large and leaves something small.
TEST(OrderSteps, LargeSubtreesComeFirst) {
  const std::vector<TreeStep> steps = {{-1, -1, 100}, {-1, -1, 1000}, {1, -1, 1}, {0, 2, 1}};
  EXPECT_THAT(OrderSteps(steps), ElementsAre(1, 2, 0, 3));
}

TEST(OrderSteps, DeepTreesNeedNoStack) {
  std::vector<TreeStep> chain(200'000);
  for (size_t i = 1; i < chain.size(); ++i) chain[i].left = static_cast<int>(i) - 1;
  std::vector<int> expected(chain.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(OrderSteps(chain), expected);
}

}  // namespace
}  // namespace tenon::contraction
