#include "backends/planner/hypergraph_cut.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <queue>
#include <utility>

namespace tenon::planner {
namespace {

constexpr int kCoarsestVertices = 32;
constexpr int kSeeds = 8;
constexpr int kMostPasses = 4;
constexpr int kLongNet = 64;  // pins; longer nets say little about what belongs together

// A hypergraph with the nets of every vertex: nets[net_begin[v]] .. nets[net_begin[v + 1] - 1].
struct Incidence {
  explicit Incidence(const Hypergraph& graph) : net_begin(graph.vertices() + 1, 0) {
    for (const int v : graph.pins) ++net_begin[v + 1];
    std::partial_sum(net_begin.begin(), net_begin.end(), net_begin.begin());
    std::vector<int> next(net_begin.begin(), net_begin.end() - 1);
    nets.resize(graph.pins.size());
    for (int e = 0; e < graph.nets(); ++e) {
      for (int p = graph.net_begin[e]; p < graph.net_begin[e + 1]; ++p) {
        nets[next[graph.pins[p]]++] = e;
      }
    }
  }
  std::vector<int> net_begin, nets;
};

std::vector<int> Shuffled(int count, Random& random) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) std::swap(order[i], order[random.Below(i + 1)]);
  return order;
}

// The coarse vertex of every vertex: pairs that share the most net weight, and single ones. Light
// vertices go first, so that the coarse ones weigh about the same.
std::vector<int> MatchByWeight(const Hypergraph& graph, const Incidence& incidence, int heaviest,
                               Random& random, int& coarse_vertices) {
  std::vector<int> coarse(graph.vertices(), -1), touched;
  std::vector<double> shared(graph.vertices(), 0);
  coarse_vertices = 0;
  for (const int u : Shuffled(graph.vertices(), random)) {
    if (coarse[u] >= 0) continue;
    for (int i = incidence.net_begin[u]; i < incidence.net_begin[u + 1]; ++i) {
      const int e = incidence.nets[i];
      const int pins = graph.net_begin[e + 1] - graph.net_begin[e];
      if (pins > kLongNet) continue;
      for (int p = graph.net_begin[e]; p < graph.net_begin[e + 1]; ++p) {
        const int v = graph.pins[p];
        if (v == u || coarse[v] >= 0 || graph.weight[u] + graph.weight[v] > heaviest) continue;
        if (shared[v] == 0) touched.push_back(v);
        shared[v] += graph.net_weight[e] / (pins - 1);
      }
    }
    int mate = -1;
    double most = 0;
    for (const int v : touched) {
      const double rating = shared[v] / graph.weight[v];
      if (rating > most) {
        most = rating;
        mate = v;
      }
      shared[v] = 0;
    }
    touched.clear();
    coarse[u] = coarse_vertices;
    if (mate >= 0) coarse[mate] = coarse_vertices;
    ++coarse_vertices;
  }
  return coarse;
}

// Nets with the same pins become one; those within a vertex vanish.
Hypergraph Merge(const Hypergraph& graph, const std::vector<int>& coarse, int coarse_vertices) {
  Hypergraph merged;
  merged.weight.assign(coarse_vertices, 0);
  merged.pull.assign(coarse_vertices, 0);
  for (int v = 0; v < graph.vertices(); ++v) {
    merged.weight[coarse[v]] += graph.weight[v];
    merged.pull[coarse[v]] += graph.pull[v];
  }
  struct Net {
    int begin, end;
    double weight;
  };
  std::vector<int> pins;
  std::vector<Net> nets;
  for (int e = 0; e < graph.nets(); ++e) {
    const auto begin = static_cast<std::ptrdiff_t>(pins.size());
    for (int p = graph.net_begin[e]; p < graph.net_begin[e + 1]; ++p) {
      pins.push_back(coarse[graph.pins[p]]);
    }
    std::sort(pins.begin() + begin, pins.end());
    pins.erase(std::unique(pins.begin() + begin, pins.end()), pins.end());
    if (static_cast<std::ptrdiff_t>(pins.size()) - begin < 2) {
      pins.resize(begin);
    } else {
      nets.push_back({static_cast<int>(begin), static_cast<int>(pins.size()), graph.net_weight[e]});
    }
  }
  const auto pins_of = [&](const Net& net) {
    return std::pair(pins.begin() + net.begin, pins.begin() + net.end);
  };
  std::stable_sort(nets.begin(), nets.end(), [&](const Net& a, const Net& b) {
    const auto [a_begin, a_end] = pins_of(a);
    const auto [b_begin, b_end] = pins_of(b);
    return std::lexicographical_compare(a_begin, a_end, b_begin, b_end);
  });
  for (size_t e = 0; e < nets.size(); ++e) {
    const auto [begin, end] = pins_of(nets[e]);
    if (e > 0) {
      const auto [before_begin, before_end] = pins_of(nets[e - 1]);
      if (std::equal(begin, end, before_begin, before_end)) {
        merged.net_weight.back() += nets[e].weight;
        continue;
      }
    }
    merged.pins.insert(merged.pins.end(), begin, end);
    merged.net_begin.push_back(static_cast<int>(merged.pins.size()));
    merged.net_weight.push_back(nets[e].weight);
  }
  return merged;
}

// A cut that is moved vertex by vertex.
class MovingCut {
 public:
  MovingCut(const Hypergraph& graph, double imbalance)
      : graph_(graph),
        incidence_(graph),
        total_(std::accumulate(graph.weight.begin(), graph.weight.end(), 0)) {
    const int heaviest = *std::max_element(graph.weight.begin(), graph.weight.end());
    const auto wanted = static_cast<int>((1 + imbalance) / 2 * total_);
    limit_ = std::min(std::max(wanted, (total_ + heaviest) / 2), total_ - 1);
  }

  const std::vector<int>& sides() const { return side_; }
  double cost() const { return cost_; }
  int Excess() const { return std::max({0, side_weight_[0] - limit_, side_weight_[1] - limit_}); }

  void Set(std::vector<int> sides) {
    side_ = std::move(sides);
    side_weight_[0] = side_weight_[1] = 0;
    cost_ = 0;
    gain_.assign(graph_.vertices(), 0);
    for (int v = 0; v < graph_.vertices(); ++v) {
      side_weight_[side_[v]] += graph_.weight[v];
      if (side_[v] == 0) cost_ += graph_.pull[v];
      gain_[v] = side_[v] == 0 ? graph_.pull[v] : -graph_.pull[v];
    }
    count_[0].assign(graph_.nets(), 0);
    count_[1].assign(graph_.nets(), 0);
    for (int e = 0; e < graph_.nets(); ++e) SetNet(e);
  }

  // Everything on side 1 but what grows from `seed`, the vertex of most gain next, until side 0 has
  // this weight.
  void Grow(int seed, int weight) {
    Set(std::vector<int>(graph_.vertices(), 1));
    Move(seed, [](int) {});
    while (side_weight_[0] < weight) {
      int best = -1;
      for (int v = 0; v < graph_.vertices(); ++v) {
        if (side_[v] == 0 || side_weight_[0] + graph_.weight[v] > limit_) continue;
        if (best < 0 || gain_[v] > gain_[best]) best = v;
      }
      if (best < 0) return;
      Move(best, [](int) {});
    }
  }

  void Refine() {
    for (int pass = 0; pass < kMostPasses; ++pass) {
      if (!RefineOnce()) return;
    }
  }

  int Total() const { return total_; }

 private:
  // The latest entry of a vertex counts; of equal gains the latest first.
  struct Candidate {
    double gain;
    int64_t stamp;
    int vertex;
    bool operator<(const Candidate& other) const {
      return std::pair(gain, stamp) < std::pair(other.gain, other.stamp);
    }
  };

  void SetNet(int e) {
    const int begin = graph_.net_begin[e], end = graph_.net_begin[e + 1];
    for (int p = begin; p < end; ++p) ++count_[side_[graph_.pins[p]]][e];
    if (count_[0][e] > 0 && count_[1][e] > 0) cost_ += graph_.net_weight[e];
    for (int p = begin; p < end; ++p) {
      const int v = graph_.pins[p];
      if (count_[1 - side_[v]][e] == 0) gain_[v] -= graph_.net_weight[e];
      if (count_[side_[v]][e] == 1) gain_[v] += graph_.net_weight[e];
    }
  }

  // Calls changed(v) for others whose gain changed. Gains change where a net has no or one pin on a
  // side before or after the move.
  template <typename Changed>
  void Move(int v, const Changed& changed) {
    const int from = side_[v], to = 1 - from;
    const double gain = gain_[v];
    for (int i = incidence_.net_begin[v]; i < incidence_.net_begin[v + 1]; ++i) {
      const int e = incidence_.nets[i];
      const double weight = graph_.net_weight[e];
      const auto add = [&](double change, int only_side) {
        for (int p = graph_.net_begin[e]; p < graph_.net_begin[e + 1]; ++p) {
          const int u = graph_.pins[p];
          if (u == v || (only_side >= 0 && side_[u] != only_side)) continue;
          gain_[u] += change;
          changed(u);
        }
      };
      if (count_[to][e] == 0) add(weight, -1);
      if (count_[to][e] == 1) add(-weight, to);
      --count_[from][e];
      ++count_[to][e];
      if (count_[from][e] == 0) add(-weight, -1);
      if (count_[from][e] == 1) add(weight, from);
    }
    side_[v] = to;
    side_weight_[from] -= graph_.weight[v];
    side_weight_[to] += graph_.weight[v];
    cost_ -= gain;
    gain_[v] = -gain;
  }

  bool IsAtCut(int v) const {
    return std::any_of(incidence_.nets.begin() + incidence_.net_begin[v],
                       incidence_.nets.begin() + incidence_.net_begin[v + 1],
                       [&](int e) { return count_[1 - side_[v]][e] > 0; });
  }

  void Push(int v) {
    stamp_[v] = ++stamps_;
    queue_[side_[v]].push({gain_[v], stamps_, v});
  }

  // The vertex of most gain that may leave `side`, or -1.
  int Top(int side) {
    auto& queue = queue_[side];
    for (; !queue.empty(); queue.pop()) {
      const Candidate& top = queue.top();
      if (stamp_[top.vertex] != top.stamp) continue;
      if (side_weight_[1 - side] + graph_.weight[top.vertex] <= limit_) return top.vertex;
    }
    return -1;
  }

  int Choose() {
    const int a = Top(0), b = Top(1);
    if (a < 0 || b < 0) return a < 0 ? b : a;
    if (gain_[a] != gain_[b]) return gain_[a] > gain_[b] ? a : b;
    return side_weight_[0] >= side_weight_[1] ? a : b;
  }

  // Moves every vertex once at most, the best first, and goes back to the best cut on the way.
  bool RefineOnce() {
    queue_[0] = queue_[1] = {};
    stamp_.assign(graph_.vertices(), 0);
    for (int v = 0; v < graph_.vertices(); ++v) {
      if (gain_[v] > 0 || IsAtCut(v)) Push(v);  // others when a neighbour has moved
    }
    constexpr int64_t kLocked = -1;
    const size_t patience = 40 + graph_.vertices() / 16;
    std::vector<int> moves;
    size_t best_moves = 0;
    std::pair best(Excess(), cost_);
    while (moves.size() < best_moves + patience) {
      const int v = Choose();
      if (v < 0) break;
      stamp_[v] = kLocked;
      Move(v, [&](int u) {
        if (stamp_[u] != kLocked) Push(u);
      });
      moves.push_back(v);
      constexpr double kRounding = 1e-9;
      const int excess = Excess();
      if (excess < best.first || (excess == best.first && cost_ < best.second - kRounding)) {
        best = {excess, cost_};
        best_moves = moves.size();
      }
    }
    while (moves.size() > best_moves) {
      Move(moves.back(), [](int) {});
      moves.pop_back();
    }
    return best_moves > 0;
  }

  const Hypergraph& graph_;
  const Incidence incidence_;
  const int total_;
  int limit_;
  int side_weight_[2] = {0, 0};
  double cost_ = 0;
  std::vector<int> side_, count_[2];  // count_[s]: per net, pins on side s
  std::vector<double> gain_;          // per vertex: what its move saves
  std::vector<int64_t> stamp_;
  int64_t stamps_ = 0;
  std::priority_queue<Candidate> queue_[2];
};

std::vector<int> CutCoarsest(const Hypergraph& graph, double imbalance, Random& random) {
  MovingCut cut(graph, imbalance);
  std::vector<int> sides;
  std::pair<int, double> best;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const double part = (1 - imbalance * random.Uniform()) / 2;
    cut.Grow(random.Below(graph.vertices()), static_cast<int>(part * cut.Total()));
    cut.Refine();
    const std::pair found(cut.Excess(), cut.cost());
    if (!sides.empty() && !(found < best)) continue;
    best = found;
    sides = cut.sides();
  }
  return sides;
}

}  // namespace

std::vector<int> CutInTwo(const Hypergraph& graph, double imbalance, Random& random) {
  std::vector<Hypergraph> coarser;  // level by level
  std::vector<std::vector<int>> coarse_of;
  const int total = std::accumulate(graph.weight.begin(), graph.weight.end(), 0);
  const int heaviest = std::max(2, 3 * total / (2 * kCoarsestVertices));
  const auto level = [&](size_t l) -> const Hypergraph& { return l == 0 ? graph : coarser[l - 1]; };
  while (level(coarser.size()).vertices() > kCoarsestVertices) {
    const Hypergraph& fine = level(coarser.size());
    int vertices = 0;
    std::vector<int> coarse = MatchByWeight(fine, Incidence(fine), heaviest, random, vertices);
    if (vertices > fine.vertices() - fine.vertices() / 16) break;  // hardly anything to merge
    Hypergraph merged = Merge(fine, coarse, vertices);
    coarser.push_back(std::move(merged));
    coarse_of.push_back(std::move(coarse));
  }
  std::vector<int> sides = CutCoarsest(level(coarser.size()), imbalance, random);
  for (size_t l = coarser.size(); l-- > 0;) {
    std::vector<int> fine_sides(coarse_of[l].size());
    for (size_t v = 0; v < fine_sides.size(); ++v) fine_sides[v] = sides[coarse_of[l][v]];
    MovingCut cut(level(l), imbalance);
    cut.Set(std::move(fine_sides));
    cut.Refine();
    sides = cut.sides();
  }
  return sides;
}

std::vector<int> ComponentsOf(const Hypergraph& graph) {
  const Incidence incidence(graph);
  std::vector<int> component(graph.vertices(), -1), stack;
  std::vector<bool> used(graph.nets(), false);
  int components = 0;
  for (int start = 0; start < graph.vertices(); ++start) {
    if (component[start] >= 0) continue;
    component[start] = components;
    stack.push_back(start);
    while (!stack.empty()) {
      const int v = stack.back();
      stack.pop_back();
      for (int i = incidence.net_begin[v]; i < incidence.net_begin[v + 1]; ++i) {
        const int e = incidence.nets[i];
        if (used[e]) continue;
        used[e] = true;
        for (int p = graph.net_begin[e]; p < graph.net_begin[e + 1]; ++p) {
          const int u = graph.pins[p];
          if (component[u] >= 0) continue;
          component[u] = components;
          stack.push_back(u);
        }
      }
    }
    ++components;
  }
  return component;
}

}  // namespace tenon::planner
