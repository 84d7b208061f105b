#include "backends/contraction/reuse.h"

#include <cstddef>

namespace tenon::contraction {
namespace {

// Per step, the flops of it and of the steps below that run with it.
std::vector<double> FlopsTogether(const std::vector<ReuseStep>& steps) {
  std::vector<double> flops(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    flops[i] += steps[i].flops;
    const int reader = steps[i].reader;
    if (reader >= 0 && steps[reader].rank == steps[i].rank) flops[reader] += flops[i];
  }
  return flops;
}

int BestToGiveUp(std::span<const double> runs, const std::vector<ReuseStep>& steps) {
  const std::vector<double> flops = FlopsTogether(steps);
  int best = -1;
  double best_elements = 0, best_cost = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const ReuseStep& step = steps[i];
    if (step.reader < 0 || steps[step.reader].rank == step.rank || step.elements == 0) continue;
    const double cost = flops[i] * (runs[steps[step.reader].rank] - runs[step.rank]);
    const auto elements = static_cast<double>(step.elements);
    // elements / cost > best_elements / best_cost, with costs that may be 0
    const double gain = elements * best_cost - best_elements * cost;
    if (best >= 0 && !(gain > 0 || (gain == 0 && cost < best_cost))) continue;
    best = static_cast<int>(i);
    best_elements = elements;
    best_cost = cost;
  }
  return best;
}

void GiveUp(int result, std::vector<ReuseStep>& steps) {
  const int rank = steps[result].rank;
  std::vector<bool> together(steps.size(), false);
  together[result] = true;
  for (int i = result; i >= 0; --i) {
    const int reader = steps[i].reader;
    if (i != result) together[i] = reader >= 0 && together[reader] && steps[i].rank == rank;
  }
  const int raised = steps[steps[result].reader].rank;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (together[i]) steps[i].rank = raised;
  }
}

}  // namespace

int ReduceReuse(std::span<const double> runs, int64_t elements, std::vector<ReuseStep>& steps) {
  int given_up = 0;
  for (int64_t freed = 0; freed < elements; ++given_up) {
    const int result = BestToGiveUp(runs, steps);
    if (result < 0) break;
    freed += steps[result].elements;
    GiveUp(result, steps);
  }
  return given_up;
}

}  // namespace tenon::contraction
