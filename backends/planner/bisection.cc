#include "backends/planner/bisection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "backends/planner/hypergraph_cut.h"
#include "backends/planner/subset_table.h"

namespace tenon::planner {
namespace {

class Bisector {
 public:
  Bisector(const SearchNetwork& network, const BisectionChoice& choice, Random& random)
      : network_(network),
        choice_(choice),
        cutoff_(std::clamp(choice.cutoff, 2, 12)),
        imbalance_(std::clamp(choice.imbalance, 0.0, 0.9)),
        random_(random),
        table_(network),
        pins_(network.leg_positions()) {}

  Pairs Run(const Stop& stop) {
    std::vector<int> all(network_.tensors());
    for (int t = 0; t < network_.tensors(); ++t) all[t] = t;
    sets_.push_back({std::move(all), -1, -1});
    // Sets below one follow it, so that backwards all results are there when they are joined.
    for (size_t s = 0; s < sets_.size(); ++s) {
      if (static_cast<int>(sets_[s].tensors.size()) > cutoff_ && !stop()) Divide(s);
    }
    for (size_t s = sets_.size(); s-- > 0;) {
      Set& set = sets_[s];
      if (set.first >= 0) {
        set.result = Join(sets_[set.first].result, sets_[set.second].result);
      } else {
        set.result = Finish(set.tensors);
      }
    }
    return std::move(pairs_);
  }

 private:
  struct Set {
    std::vector<int> tensors;
    int first, second;  // the sets it was divided into, or -1
    int result = -1;    // id
  };

  int Join(int a, int b) {
    pairs_.emplace_back(a, b);
    return network_.tensors() + static_cast<int>(pairs_.size()) - 1;
  }

  void Divide(size_t s) {
    const std::vector<int> tensors = std::move(sets_[s].tensors);
    CollectPins(tensors);
    Hypergraph graph = GraphOf(tensors);
    std::vector<int> sides = ComponentsOf(graph);
    if (*std::max_element(sides.begin(), sides.end()) > 0) {
      sides = Distribute(sides);
    } else {
      sides = BestCut(graph);
    }
    ClearPins();
    std::vector<int> parts[2];
    for (size_t v = 0; v < tensors.size(); ++v) parts[sides[v]].push_back(tensors[v]);
    sets_[s].first = static_cast<int>(sets_.size());
    sets_[s].second = static_cast<int>(sets_.size()) + 1;
    for (std::vector<int>& part : parts) sets_.push_back({std::move(part), -1, -1});
  }

  // Of cuts at several balances the one that promises the cheapest tree.
  std::vector<int> BestCut(Hypergraph& graph) {
    const std::vector<double> pull = graph.pull;
    std::vector<int> best;
    double best_cost = std::numeric_limits<double>::infinity();
    for (int cut = 0; cut < std::max(1, choice_.cuts); ++cut) {
      const double balance = cut == 0 ? 1 : random_.LogUniform(0.2, 1.0);
      const double strength = cut == 0 ? 1 : random_.Uniform();
      for (size_t v = 0; v < pull.size(); ++v) graph.pull[v] = strength * pull[v];
      std::vector<int> sides = CutInTwo(graph, imbalance_ * balance, random_);
      const double cost = PromisedCost(sides);
      if (!best.empty() && !(cost < best_cost)) continue;
      best_cost = cost;
      best = std::move(sides);
    }
    return best;
  }

  // The logarithm of the most costly step at or below the cut, were the sides cut as well as this
  // set. (Cuts of lattices in two and three dimensions fall as the power 1/2 and 2/3 of the
  // number of tensors.)
  double PromisedCost(const std::vector<int>& sides) const {
    double joint = 0, cut = 0, size[2] = {0, 0};
    for (const int leg : held_) {
      bool on[2] = {false, false};
      for (const int v : pins_[leg]) on[sides[v]] = true;
      const double weight = std::log2(network_.leg_size(leg));
      const bool is_outside = LeadsOutside(leg), is_cut = on[0] && on[1];
      if (is_outside || is_cut) joint += weight;
      if (is_cut) cut += weight;
      for (const int side : {0, 1}) {
        if (on[side] && (is_outside || is_cut)) size[side] += weight;
      }
    }
    const auto all = static_cast<double>(sides.size());
    const auto ones = static_cast<double>(std::count(sides.begin(), sides.end(), 1));
    constexpr double kPower = 0.6;
    return std::max({joint, size[0] + cut * std::pow((all - ones) / all, kPower),
                     size[1] + cut * std::pow(ones / all, kPower)});
  }

  // Tensors and the legs that two or more of them hold.
  Hypergraph GraphOf(const std::vector<int>& tensors) const {
    const auto n = static_cast<int>(tensors.size());
    Hypergraph graph;
    graph.weight.assign(n, 1);
    graph.pull.assign(n, 0);
    for (const int leg : held_) {
      const std::vector<int>& pins = pins_[leg];
      const double weight = std::log2(network_.leg_size(leg));
      const auto count = static_cast<int>(pins.size());
      if (weight > 0 && count > 1) {
        graph.pins.insert(graph.pins.end(), pins.begin(), pins.end());
        graph.net_begin.push_back(static_cast<int>(graph.pins.size()));
        graph.net_weight.push_back(weight);
      }
      if (LeadsOutside(leg)) {
        for (const int v : pins) graph.pull[v] += choice_.outside_pull * weight / count;
      }
    }
    return graph;
  }

  bool LeadsOutside(int leg) const {
    return static_cast<int>(pins_[leg].size()) < network_.holders(leg);
  }

  void CollectPins(const std::vector<int>& tensors) {
    held_.clear();
    for (size_t v = 0; v < tensors.size(); ++v) {
      ForEachLeg(network_.legs(tensors[v]), network_.words(), [&](int leg) {
        if (pins_[leg].empty()) held_.push_back(leg);
        pins_[leg].push_back(static_cast<int>(v));
      });
    }
  }

  void ClearPins() {
    for (const int leg : held_) pins_[leg].clear();
  }

  // Components over two sides, the largest first to the smaller side.
  static std::vector<int> Distribute(const std::vector<int>& component_of) {
    std::vector<std::pair<int, int>> components;  // minus the size, number
    for (const int component : component_of) {
      while (static_cast<int>(components.size()) <= component) {
        components.emplace_back(0, static_cast<int>(components.size()));
      }
      --components[component].first;
    }
    std::sort(components.begin(), components.end());
    std::vector<int> side_of(components.size());
    int size[2] = {0, 0};
    for (const auto& [minus_size, component] : components) {
      const int side = size[0] <= size[1] ? 0 : 1;
      side_of[component] = side;
      size[side] -= minus_size;
    }
    std::vector<int> sides;
    sides.reserve(component_of.size());
    for (const int component : component_of) sides.push_back(side_of[component]);
    return sides;
  }

  // The best tree of a few tensors; of more, when there is no time, some.
  int Finish(const std::vector<int>& tensors) {
    if (static_cast<int>(tensors.size()) > cutoff_) {
      int result = tensors[0];
      for (size_t v = 1; v < tensors.size(); ++v) result = Join(result, tensors[v]);
      return result;
    }
    std::vector<Word> result(network_.words(), 0);
    CollectPins(tensors);
    for (const int leg : held_) {
      if (LeadsOutside(leg)) AddLeg(result.data(), leg);
    }
    ClearPins();
    std::vector<const Word*> legs;
    legs.reserve(tensors.size());
    for (const int t : tensors) legs.push_back(network_.legs(t));
    table_.Solve(legs, result.data(), choice_.price, std::numeric_limits<double>::infinity());
    std::vector<int> ids = tensors;
    for (const auto& [a, b] : table_.Pairs()) ids.push_back(Join(ids[a], ids[b]));
    return ids.back();
  }

  const SearchNetwork& network_;
  const BisectionChoice& choice_;
  const int cutoff_;
  const double imbalance_;
  Random& random_;
  SubsetTable table_;
  std::vector<std::vector<int>> pins_;  // per leg, empty between uses
  std::vector<int> held_;               // legs with pins
  std::vector<Set> sets_;
  Pairs pairs_;
};

}  // namespace

BisectionChoice RandomBisectionChoice(const StepPrice& price, Random& random) {
  BisectionChoice choice;
  choice.imbalance = random.LogUniform(0.1, 0.9);
  choice.outside_pull = 0.6 * random.Uniform();
  choice.price = price;
  return choice;
}

Pairs Bisect(const SearchNetwork& network, const BisectionChoice& choice, Random& random,
             const Stop& stop) {
  if (network.tensors() < 2) return {};
  return Bisector(network, choice, random).Run(stop);
}

}  // namespace tenon::planner
