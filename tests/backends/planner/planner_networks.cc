#include "tests/backends/planner/planner_networks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace tenon::testing {
namespace {

using planner::HasLeg;
using planner::Pairs;
using planner::SearchNetwork;
using planner::StepPrice;
using planner::StepSizes;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

int Below(int count, std::mt19937_64& random) {
  return std::uniform_int_distribution<int>(0, count - 1)(random);
}

std::vector<int64_t> Repeat(const std::vector<int64_t>& sizes, size_t count) {
  std::vector<int64_t> repeated;
  for (size_t i = 0; i < count; ++i) repeated.push_back(sizes[i % sizes.size()]);
  return repeated;
}

// Costs of steps between sets of tensors, from nothing but the definition.
class SetCosts {
 public:
  SetCosts(const SearchNetwork& network, const StepPrice& price)
      : network_(network), price_(price) {
    for (uint32_t set = 0; set < 1u << network.tensors(); ++set) legs_.push_back(LegsOf(set));
  }

  double Size(const std::vector<bool>& legs) const {
    double size = 1;
    for (int leg = 0; leg < network_.leg_positions(); ++leg) {
      if (legs[leg]) size *= network_.leg_size(leg);
    }
    return size;
  }

  double Step(uint32_t a, uint32_t b) const {
    std::vector<bool> joint = legs_[a];
    for (size_t leg = 0; leg < joint.size(); ++leg) joint[leg] = joint[leg] || legs_[b][leg];
    int level = 0;
    for (int t = 0; t < network_.tensors(); ++t) {
      if (((a | b) >> t & 1) != 0) level = std::max(level, network_.level(t));
    }
    return price_(
        {Size(legs_[a]), Size(legs_[b]), Size(legs_[a | b]), Size(joint), network_.runs(level)});
  }

  bool Touch(uint32_t a, uint32_t b) const {
    for (size_t leg = 0; leg < legs_[a].size(); ++leg) {
      if (legs_[a][leg] && legs_[b][leg]) return true;
    }
    return false;
  }

 private:
  std::vector<bool> LegsOf(uint32_t set) const {
    std::vector<bool> legs(network_.leg_positions());
    for (int leg = 0; leg < network_.leg_positions(); ++leg) {
      bool inside = false, outside = HasLeg(network_.output(), leg);
      for (int t = 0; t < network_.tensors(); ++t) {
        if (HasLeg(network_.legs(t), leg)) ((set >> t & 1) != 0 ? inside : outside) = true;
      }
      legs[leg] = inside && outside;
    }
    return legs;
  }

  const SearchNetwork& network_;
  const StepPrice& price_;
  std::vector<std::vector<bool>> legs_;  // per set of tensors
};

double LeastOfAll(const SetCosts& costs, const std::vector<uint32_t>& sets) {
  if (sets.size() == 1) return 0;
  double least = kInfinite;
  for (size_t i = 0; i < sets.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      std::vector<uint32_t> rest = sets;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      rest[j] |= sets[i];
      least = std::min(least, costs.Step(sets[i], sets[j]) + LeastOfAll(costs, rest));
    }
  }
  return least;
}

}  // namespace

SearchNetwork SearchNetworkOf(const contraction::Expression& expression) {
  std::vector<std::vector<int>> tensors;
  for (std::vector<int> indices : expression.inputs) {
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    tensors.push_back(std::move(indices));
  }
  return SearchNetwork(tensors, expression.output, expression.sizes);
}

Network Reduced(Network network) {
  std::map<std::string, int> holders;
  for (std::vector<std::string>& input : network.inputs) {
    std::sort(input.begin(), input.end());
    input.erase(std::unique(input.begin(), input.end()), input.end());
    for (const std::string& name : input) ++holders[name];
  }
  for (const std::string& name : network.output) ++holders[name];
  for (std::vector<std::string>& input : network.inputs) {
    std::erase_if(input, [&](const std::string& name) { return holders[name] < 2; });
  }
  std::erase_if(network.sizes, [&](const auto& size) { return holders[size.first] < 2; });
  for (auto& [name, size] : network.sizes) size = std::max<int64_t>(size, 1);
  return network;
}

SearchNetwork FromEdges(int tensors, const std::vector<std::pair<int, int>>& edges,
                        const std::vector<int64_t>& sizes) {
  std::vector<std::vector<int>> legs(tensors);
  for (size_t e = 0; e < edges.size(); ++e) {
    legs[edges[e].first].push_back(static_cast<int>(e));
    legs[edges[e].second].push_back(static_cast<int>(e));
  }
  return SearchNetwork(legs, {}, Repeat(sizes, edges.size()));
}

SearchNetwork ChainOf(int tensors, const std::vector<int64_t>& sizes) {
  std::vector<std::pair<int, int>> edges;
  for (int t = 1; t < tensors; ++t) edges.emplace_back(t - 1, t);
  return FromEdges(tensors, edges, sizes);
}

SearchNetwork LatticeOf(int width, int height, const std::vector<int64_t>& sizes) {
  std::vector<std::pair<int, int>> edges;
  for (int t = 0; t < width * height; ++t) {
    if (t % width > 0) edges.emplace_back(t - 1, t);
    if (t >= width) edges.emplace_back(t - width, t);
  }
  return FromEdges(width * height, edges, sizes);
}

SearchNetwork CompleteOf(int tensors, const std::vector<int64_t>& sizes) {
  std::vector<std::pair<int, int>> edges;
  for (int b = 0; b < tensors; ++b) {
    for (int a = 0; a < b; ++a) edges.emplace_back(a, b);
  }
  return FromEdges(tensors, edges, sizes);
}

SearchNetwork StarOf(int tensors) {
  std::vector<std::vector<int>> legs(tensors, {0});
  std::vector<int> output;
  for (int t = 0; t < tensors; t += 10) {
    output.push_back(1 + t / 10);
    legs[t].push_back(output.back());
  }
  return SearchNetwork(legs, output, Repeat({2}, output.size() + 1));
}

SearchNetwork RandomSearchNetwork(const RandomShape& shape, std::mt19937_64& random) {
  std::vector<std::vector<int>> legs(shape.tensors);
  std::vector<int> output;
  std::vector<int64_t> sizes;
  for (int index = 0; index < shape.indices; ++index) {
    sizes.push_back(shape.sizes[Below(static_cast<int>(shape.sizes.size()), random)]);
    int holders = 2 + Below(shape.most_holders - 1, random);
    if (Below(shape.one_output_in, random) == 0) {
      output.push_back(index);
      if (shape.most_holders == 2 || Below(2, random) == 0) holders = 1;
    }
    std::vector<int> tensors(shape.tensors);
    std::iota(tensors.begin(), tensors.end(), 0);
    std::shuffle(tensors.begin(), tensors.end(), random);
    for (int h = 0; h < std::min(holders, shape.tensors); ++h) legs[tensors[h]].push_back(index);
  }
  return SearchNetwork(legs, output, sizes);
}

Pairs RandomPairs(int tensors, std::mt19937_64& random) {
  std::vector<int> alive(tensors);
  std::iota(alive.begin(), alive.end(), 0);
  Pairs pairs;
  while (alive.size() > 1) {
    std::swap(alive[Below(static_cast<int>(alive.size()), random)], alive.back());
    const int a = alive.back();
    alive.pop_back();
    int& b = alive[Below(static_cast<int>(alive.size()), random)];
    pairs.emplace_back(a, b);
    b = tensors + static_cast<int>(pairs.size()) - 1;
  }
  return pairs;
}

bool IsCompleteTree(const Pairs& pairs, int tensors) {
  if (static_cast<int>(pairs.size()) != std::max(0, tensors - 1)) return false;
  std::vector<bool> used(tensors + pairs.size(), false);
  for (size_t s = 0; s < pairs.size(); ++s) {
    for (const int id : {pairs[s].first, pairs[s].second}) {
      if (id < 0 || id >= tensors + static_cast<int>(s) || used[id]) return false;
      used[id] = true;
    }
  }
  return true;
}

std::vector<std::vector<bool>> LegsByDefinition(const SearchNetwork& network, const Pairs& pairs) {
  const int positions = network.leg_positions(), n = network.tensors();
  std::vector<std::vector<int>> below(n + pairs.size(), std::vector<int>(positions, 0));
  std::vector<int> holders(positions, 0);
  for (int leg = 0; leg < positions; ++leg) {
    for (int t = 0; t < n; ++t) below[t][leg] = HasLeg(network.legs(t), leg);
    for (int t = 0; t < n; ++t) holders[leg] += below[t][leg];
    holders[leg] += HasLeg(network.output(), leg);
  }
  std::vector<std::vector<bool>> legs;
  for (size_t node = 0; node < below.size(); ++node) {
    std::vector<bool>& set = legs.emplace_back(positions);
    for (int leg = 0; leg < positions; ++leg) {
      if (node >= static_cast<size_t>(n)) {
        const auto& [a, b] = pairs[node - n];
        below[node][leg] = below[a][leg] + below[b][leg];
      }
      set[leg] = below[node][leg] > 0 && below[node][leg] < holders[leg];
    }
  }
  return legs;
}

double CostByDefinition(const SearchNetwork& network, const Pairs& pairs, const StepPrice& price) {
  const std::vector<std::vector<bool>> legs = LegsByDefinition(network, pairs);
  const auto size = [&](const std::vector<bool>& a, const std::vector<bool>& b) {
    double product = 1;
    for (size_t leg = 0; leg < a.size(); ++leg) {
      if (a[leg] || b[leg]) product *= network.leg_size(static_cast<int>(leg));
    }
    return product;
  };
  double cost = 0;
  for (size_t s = 0; s < pairs.size(); ++s) {
    const auto &a = legs[pairs[s].first], &b = legs[pairs[s].second];
    const auto& c = legs[network.tensors() + s];
    cost += price({size(a, a), size(b, b), size(c, c), size(a, b)});
  }
  return cost;
}

double LeastCostOfAll(const SearchNetwork& network, const StepPrice& price) {
  std::vector<uint32_t> sets;
  for (int t = 0; t < network.tensors(); ++t) sets.push_back(1u << t);
  return LeastOfAll(SetCosts(network, price), sets);
}

double LeastCostConnected(const SearchNetwork& network, const StepPrice& price) {
  const SetCosts costs(network, price);
  std::vector<double> least(size_t{1} << network.tensors(), kInfinite);
  for (uint32_t set = 1; set < least.size(); ++set) {
    if ((set & (set - 1)) == 0) least[set] = 0;
    for (uint32_t a = (set - 1) & set; a > set - a; a = (a - 1) & set) {
      const double before = least[a] + least[set - a];
      if (before < least[set] && costs.Touch(a, set - a)) {
        least[set] = std::min(least[set], before + costs.Step(a, set - a));
      }
    }
  }
  return least.back();
}

double LeastCostOverOrder(const SearchNetwork& network, const std::vector<int>& order,
                          const StepPrice& price) {
  const SetCosts costs(network, price);
  const auto n = static_cast<int>(order.size());
  std::map<std::pair<int, int>, double> least;
  const auto set_of = [&](int i, int j) {
    uint32_t set = 0;
    for (int p = i; p <= j; ++p) set |= 1u << order[p];
    return set;
  };
  for (int length = 1; length <= n; ++length) {
    for (int i = 0; i + length <= n; ++i) {
      const int j = i + length - 1;
      double& best = least[{i, j}];
      best = length == 1 ? 0 : kInfinite;
      for (int k = i; k < j; ++k) {
        best = std::min(
            best, least[{i, k}] + least[{k + 1, j}] + costs.Step(set_of(i, k), set_of(k + 1, j)));
      }
    }
  }
  return least[{0, n - 1}];
}

std::vector<StepPrice> SomePrices() {
  std::vector<StepPrice> prices(5);
  prices[1].objective.read_write_weight = 0;
  prices[2].objective.kind = planner::Objective::Kind::kLargest;
  prices[3].largest_elements = 20;
  prices[4].objective.flops_weight = 0;
  return prices;
}

}  // namespace tenon::testing
