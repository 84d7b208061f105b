#include "tests/backends/planner/naive_trees.h"

#include <algorithm>
#include <limits>

namespace tenon::testing {
namespace {

Legs Union(const Legs& a, const Legs& b) {
  Legs all = a;
  all.insert(b.begin(), b.end());
  return all;
}

}  // namespace

NaiveNetwork NaiveOf(const contraction::Expression& expression) {
  NaiveNetwork network;
  network.sizes = expression.sizes;
  network.output = Legs(expression.output.begin(), expression.output.end());
  for (const auto& input : expression.inputs) {
    network.tensors.emplace_back(input.begin(), input.end());
  }
  for (size_t index = 0; index < network.sizes.size(); ++index) {
    const int leg = static_cast<int>(index);
    const auto holders = std::count_if(network.tensors.begin(), network.tensors.end(),
                                       [&](const Legs& legs) { return legs.contains(leg); });
    if (holders > 1 || network.output.contains(leg)) continue;
    for (Legs& legs : network.tensors) legs.erase(leg);
  }
  return network;
}

double NaiveSize(const NaiveNetwork& network, const Legs& legs) {
  double size = 1;
  for (const int leg : legs) size *= static_cast<double>(network.sizes[leg]);
  return size;
}

Legs NaiveResult(const NaiveNetwork& network, int a, int b) {
  Legs needed = network.output;
  for (int t = 0; t < static_cast<int>(network.tensors.size()); ++t) {
    if (t != a && t != b) needed.insert(network.tensors[t].begin(), network.tensors[t].end());
  }
  Legs result = Union(network.tensors[a], network.tensors[b]);
  std::erase_if(result, [&](int leg) { return !needed.contains(leg); });
  return result;
}

NaiveNetwork NaiveJoin(const NaiveNetwork& network, int a, int b) {
  NaiveNetwork joined = network;
  joined.tensors.push_back(NaiveResult(network, a, b));
  joined.tensors.erase(joined.tensors.begin() + std::max(a, b));
  joined.tensors.erase(joined.tensors.begin() + std::min(a, b));
  return joined;
}

NaiveBest BestTree(const NaiveNetwork& network) {
  const int n = static_cast<int>(network.tensors.size());
  const uint32_t all = (1u << n) - 1;
  std::vector<Legs> legs(all + 1);
  std::vector<NaiveBest> best(all + 1);
  for (uint32_t set = 1; set <= all; ++set) {
    Legs inside, needed = network.output;
    for (int t = 0; t < n; ++t) {
      Legs& to = (set >> t & 1) != 0 ? inside : needed;
      to = Union(to, network.tensors[t]);
    }
    for (const int leg : inside) {
      if (needed.contains(leg)) legs[set].insert(leg);
    }
    const double size = NaiveSize(network, legs[set]);
    if ((set & (set - 1)) == 0) {
      best[set] = {0, size};
      continue;
    }
    best[set] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    for (uint32_t side = (set - 1) & set; side != 0; side = (side - 1) & set) {
      const NaiveBest &a = best[side], &b = best[set ^ side];
      const double joint = NaiveSize(network, Union(legs[side], legs[set ^ side]));
      best[set].flops = std::min(best[set].flops, a.flops + b.flops + joint);
      best[set].largest = std::min(best[set].largest, std::max({a.largest, b.largest, size}));
    }
  }
  return best[all];
}

}  // namespace tenon::testing
