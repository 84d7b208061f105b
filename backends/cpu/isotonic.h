// Isotonic regression: the non-decreasing sequence nearest to a sequence of groups.
//
// Pool adjacent violators (Ayer, Brunk, Ewing, Reid, Silverman: An empirical distribution function
// for sampling with incomplete information, 1955). The residual is the sum over all mergers of two
// blocks of what they add to the sum of squared deviations, so it never cancels.

#ifndef TENON_BACKENDS_CPU_ISOTONIC_H_
#define TENON_BACKENDS_CPU_ISOTONIC_H_

#include <algorithm>
#include <cstdint>
#include <span>

namespace tenon::cpu {

// Values pooled to their mean.
struct FitBlock {
  double mean = 0;
  int64_t count = 0;
};

// A group of equal weight-bearing values and its own sum of squared deviations.
struct FitGroup {
  FitBlock block;
  double squared_deviations = 0;
};

// The group of `values`, which are sorted on the way: the same for any order of them.
inline FitGroup GroupOf(std::span<double> values) {
  FitGroup group{{values[0], static_cast<int64_t>(values.size())}, 0};
  if (values.size() == 1) return group;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value - values[0];
  group.block.mean = values[0] + sum / static_cast<double>(group.block.count);
  for (const double value : values) {
    group.squared_deviations += (value - group.block.mean) * (value - group.block.mean);
  }
  return group;
}

// Pools `block` with the one below it; returns what that adds to the sum of squared deviations.
inline double MergeGroup(FitBlock block, FitBlock& below) {
  const auto a = static_cast<double>(below.count), b = static_cast<double>(block.count);
  const double difference = block.mean - below.mean, share = b / (a + b);
  below.mean = below.count == 0 ? block.mean : below.mean + difference * share;
  below.count += block.count;
  return difference * difference * (a * share);
}

// Puts a block on a stack of increasing means; adds what mergers cost to `residual`. `Stack` has
// empty(), Top(), Pop() and Push(FitBlock).
template <typename Stack>
void PushBlock(FitBlock block, Stack& stack, double& residual) {
  while (!stack.empty()) {
    FitBlock below = stack.Top();
    if (!(below.mean > block.mean)) break;
    residual += MergeGroup(block, below);
    block = below;
    stack.Pop();
  }
  stack.Push(block);
}

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_ISOTONIC_H_
