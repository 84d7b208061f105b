#include "backends/contraction/step_order.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tenon::contraction {
namespace {

// Sums of elements as doubles, because they may exceed 63 bits before lowering refuses them.
double Elements(const std::vector<TreeStep>& steps, int step) {
  return step < 0 ? 0 : static_cast<double>(steps[step].elements);
}

}  // namespace

double PeakElements(const std::vector<TreeStep>& steps, const std::vector<int>& order) {
  double live = 0, peak = 0;
  for (const int step : order) {
    live += Elements(steps, step);
    peak = std::max(peak, live);
    live -= Elements(steps, steps[step].left) + Elements(steps, steps[step].right);
  }
  return peak;
}

std::vector<int> OrderSteps(const std::vector<TreeStep>& steps) {
  std::vector<double> peaks(steps.size(), 0);               // of the subtree of a step
  std::vector<std::pair<int, int>> children(steps.size());  // in the order in which they run
  for (size_t i = 0; i < steps.size(); ++i) {
    int first = std::min(steps[i].left, steps[i].right);
    int second = std::max(steps[i].left, steps[i].right);
    const auto peak_of = [&](int one, int other) {
      const double before = one < 0 ? 0 : peaks[one];
      return std::max(before, other < 0 ? 0 : Elements(steps, one) + peaks[other]);
    };
    double peak = peak_of(first, second);
    if (const double swapped = peak_of(second, first); swapped < peak) {
      std::swap(first, second);
      peak = swapped;
    }
    children[i] = {first, second};
    const double all =
        Elements(steps, first) + Elements(steps, second) + static_cast<double>(steps[i].elements);
    peaks[i] = std::max(peak, all);
  }
  // From the root backwards: the reverse of a walk that takes the second child first.
  std::vector<int> order, open;
  if (!steps.empty()) open.push_back(static_cast<int>(steps.size()) - 1);
  while (!open.empty()) {
    const int step = open.back();
    open.pop_back();
    order.push_back(step);
    if (children[step].first >= 0) open.push_back(children[step].first);
    if (children[step].second >= 0) open.push_back(children[step].second);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace tenon::contraction
