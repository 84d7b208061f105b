#include "backends/planner/exact.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "backends/planner/annealing.h"
#include "backends/planner/connected_sets.h"
#include "backends/planner/random_greedy.h"
#include "backends/planner/reconfigure.h"
#include "backends/planner/subset_table.h"

namespace tenon::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Tensors by connected part, in ascending order.
std::vector<std::vector<int>> ConnectedParts(const SearchNetwork& network) {
  std::vector<int> part_of(network.tensors());
  std::iota(part_of.begin(), part_of.end(), 0);
  const auto find = [&](int t) {
    while (part_of[t] != t) t = part_of[t] = part_of[part_of[t]];
    return t;
  };
  std::vector<int> holder(network.leg_positions(), -1);
  for (int t = 0; t < network.tensors(); ++t) {
    ForEachLeg(network.legs(t), network.words(), [&](int leg) {
      if (holder[leg] >= 0) {
        const int a = find(t), b = find(holder[leg]);
        part_of[std::max(a, b)] = std::min(a, b);
      }
      holder[leg] = t;
    });
  }
  std::vector<std::vector<int>> parts(network.tensors());
  for (int t = 0; t < network.tensors(); ++t) parts[find(t)].push_back(t);
  std::erase_if(parts, [](const std::vector<int>& part) { return part.empty(); });
  return parts;
}

// A network of these tensors alone, which no other tensor is connected to.
SearchNetwork PartOf(const SearchNetwork& network, const std::vector<int>& tensors) {
  std::vector<std::vector<int>> indices;
  std::vector<int> output, index_of_leg(network.leg_positions(), -1);
  std::vector<int64_t> sizes;
  for (const int t : tensors) {
    indices.emplace_back();
    ForEachLeg(network.legs(t), network.words(), [&](int leg) {
      if (index_of_leg[leg] < 0) {
        index_of_leg[leg] = static_cast<int>(sizes.size());
        sizes.push_back(static_cast<int64_t>(network.leg_size(leg)));
        if (HasLeg(network.output(), leg)) output.push_back(index_of_leg[leg]);
      }
      indices.back().push_back(index_of_leg[leg]);
    });
  }
  return SearchNetwork(indices, output, sizes);
}

// Good enough to be the best one mostly: then the exact search has only to show it.
Tree KnownTree(const SearchNetwork& network, const StepPrice& price, const Stop& stop) {
  constexpr int kStarts = 4;
  constexpr int64_t kSweeps = 300;
  std::optional<Tree> best;
  double best_cost = kInfinite;
  for (int start = 0; start < kStarts; ++start) {
    Random random(0, start);
    Tree tree(network, RandomGreedy(network, {1.0, start == 0 ? 0.0 : 0.3}, random));
    Anneal(price, {1, 0.05, kSweeps}, random, stop, tree);
    Reconfigure(price, {}, random, stop, tree);
    const double cost = tree.Cost(price);
    if (best.has_value() && !(cost < best_cost)) continue;
    best_cost = cost;
    best = std::move(tree);
  }
  return *std::move(best);
}

// Over these sets of legs, outer products included; nothing if none costs less than `below`.
std::optional<Pairs> BestOfAll(const SearchNetwork& network,
                               const std::vector<const Word*>& tensors, const Word* result,
                               const StepPrice& price, double below, const Stop& stop) {
  SubsetTable table(network);
  if (!(table.Solve(tensors, result, price, below, stop) < below)) return std::nullopt;
  return table.Pairs();
}

std::vector<const Word*> LegsOf(const SearchNetwork& network) {
  std::vector<const Word*> legs;
  legs.reserve(network.tensors());
  for (int t = 0; t < network.tensors(); ++t) legs.push_back(network.legs(t));
  return legs;
}

// Of the table of all subsets: two sets of legs and 32 bytes for each.
int64_t TableBytes(const SearchNetwork& network) {
  return (int64_t{1} << network.tensors()) * (16 * network.words() + 32);
}

// Connected sets are few or cost too much mostly; where they turn out to be many, the table of all
// subsets takes less time for each.
std::optional<Pairs> BestOfLargePart(const SearchNetwork& part, const StepPrice& price,
                                     const ExactLimits& limits, const Stop& stop) {
  const Tree known = KnownTree(part, price, stop);
  const double below = known.Cost(price);
  const bool may_use_table =
      part.tensors() <= SubsetTable::kMostTensors && TableBytes(part) <= limits.bytes;
  const int64_t work = may_use_table ? static_cast<int64_t>(std::pow(3.0, part.tensors()) / 4)
                                     : std::numeric_limits<int64_t>::max();
  ConnectedSets sets(part, price, below, {limits.bytes, work});
  const ConnectedSets::End end = sets.Solve(stop);
  if (end == ConnectedSets::End::kFound) return sets.Emit();
  if (end == ConnectedSets::End::kGaveUp) {
    if (!may_use_table) return std::nullopt;
    std::optional<Pairs> better = BestOfAll(part, LegsOf(part), part.output(), price, below, stop);
    if (better.has_value()) return better;
    if (stop()) return std::nullopt;
  }
  if (below < kInfinite) return known.ToPairs();
  return std::nullopt;
}

std::optional<Pairs> BestOfPart(const SearchNetwork& part, const StepPrice& price,
                                const ExactLimits& limits, const Stop& stop) {
  if (part.tensors() > kMostExactTensors) return std::nullopt;
  if (part.tensors() > kMostAllTrees) return BestOfLargePart(part, price, limits, stop);
  return BestOfAll(part, LegsOf(part), part.output(), price, kInfinite, stop);
}

// Appends the pairs of a part, in the ids of the network; returns the id of its result.
int AppendPart(const std::vector<int>& tensors, const Pairs& part, int network_tensors,
               Pairs& pairs) {
  const auto n = static_cast<int>(tensors.size());
  const int first = network_tensors + static_cast<int>(pairs.size());
  const auto id_of = [&](int id) { return id < n ? tensors[id] : first + id - n; };
  for (const auto& [a, b] : part) pairs.emplace_back(id_of(a), id_of(b));
  return id_of(n + static_cast<int>(part.size()) - 1);
}

}  // namespace

std::optional<Pairs> ExactTree(const SearchNetwork& network, const StepPrice& price,
                               const ExactLimits& limits, const Stop& stop) {
  if (network.tensors() == 0) return Pairs();
  const int n = network.tensors();
  if (n <= kMostAllTrees) return BestOfPart(network, price, limits, stop);
  const std::vector<std::vector<int>> parts = ConnectedParts(network);
  if (parts.size() > kMostAllTrees) return std::nullopt;
  Pairs pairs;
  std::vector<int> results;
  std::vector<std::vector<Word>> legs;
  for (const std::vector<int>& part : parts) {
    const std::optional<Pairs> best = BestOfPart(PartOf(network, part), price, limits, stop);
    if (!best.has_value()) return std::nullopt;
    results.push_back(AppendPart(part, *best, n, pairs));
    std::vector<Word>& result = legs.emplace_back(network.words());
    for (const int t : part) {
      for (int w = 0; w < network.words(); ++w) result[w] |= network.legs(t)[w];
    }
    for (int w = 0; w < network.words(); ++w) result[w] &= network.output()[w];
  }
  std::vector<const Word*> tensors;
  tensors.reserve(legs.size());
  for (const std::vector<Word>& result : legs) tensors.push_back(result.data());
  const std::optional<Pairs> join =
      BestOfAll(network, tensors, network.output(), price, kInfinite, stop);
  if (!join.has_value()) return std::nullopt;
  AppendPart(results, *join, n, pairs);
  return pairs;
}

}  // namespace tenon::planner
