#include "backends/planner/leaf_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tenon::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Walks the graph of tensors breadth first; legs with many holders stay lists.
class BreadthFirst {
 public:
  explicit BreadthFirst(const SearchNetwork& network)
      : network_(network), holders_(network.leg_positions()), degree_(network.tensors(), 0) {
    for (int t = 0; t < network.tensors(); ++t) {
      ForEachLeg(network.legs(t), network.words(), [&](int leg) { holders_[leg].push_back(t); });
    }
    for (const std::vector<int>& holders : holders_) {
      for (const int t : holders) degree_[t] += static_cast<int>(holders.size()) - 1;
    }
  }

  int degree(int tensor) const { return degree_[tensor]; }

  // The tensors connected to `start`, by distance; within one distance in the order of those they
  // were met from, then by degree.
  std::vector<int> From(int start) const {
    std::vector<bool> met(network_.tensors(), false), used(network_.leg_positions(), false);
    std::vector<int> order = {start};
    met[start] = true;
    for (size_t next = 0; next < order.size(); ++next) {
      const size_t first = order.size();
      ForEachLeg(network_.legs(order[next]), network_.words(), [&](int leg) {
        if (used[leg]) return;
        used[leg] = true;
        for (const int t : holders_[leg]) {
          if (met[t]) continue;
          met[t] = true;
          order.push_back(t);
        }
      });
      std::sort(order.begin() + static_cast<std::ptrdiff_t>(first), order.end(),
                [&](int a, int b) { return std::pair(degree_[a], a) < std::pair(degree_[b], b); });
    }
    return order;
  }

 private:
  const SearchNetwork& network_;
  std::vector<std::vector<int>> holders_;  // per leg
  std::vector<int> degree_;
};

// Intervals are [i, j], i <= j. Quantities of [i, j] stand at (i, j) and at (j, i), so that those
// of all [i, k] and of all [k + 1, j] are contiguous in k.
class IntervalTable {
 public:
  IntervalTable(const std::vector<int>& order, const StepPrice& price)
      : order_(order), price_(price), n_(static_cast<int>(order.size())) {
    cost_.assign(n_ * n_, 0);
    size_.assign(n_ * n_, 0);
    inside_.assign(n_ * n_, 0);
    runs_.assign(n_ * n_, 1);
    split_.assign(n_ * n_, 0);
  }

  bool Fill(const SearchNetwork& network, const Stop& stop) {
    if (!FillSizes(network, stop)) return false;
    for (int j = 1; j < n_; ++j) {
      for (int i = j - 1; i >= 0; --i) {
        if (i % 16 == 0 && stop()) return false;
        FillInterval(i, j);
      }
    }
    return cost_[n_ - 1] < kInfinite;
  }

  Pairs Emit() const {
    // Intervals from the root down; those below one follow it.
    std::vector<std::pair<int, int>> intervals = {{0, n_ - 1}};
    for (size_t next = 0; next < intervals.size(); ++next) {
      const auto [i, j] = intervals[next];
      if (i == j) continue;
      const int k = split_[At(i, j)];
      intervals.emplace_back(i, k);
      intervals.emplace_back(k + 1, j);
    }
    // The two below the p-th of several leaves stand at 2p + 1 and 2p + 2.
    std::vector<int> id(intervals.size());
    Pairs pairs;
    pairs.reserve(n_ - 1);
    int64_t children = static_cast<int64_t>(intervals.size());
    for (int64_t p = children - 1; p >= 0; --p) {
      const auto [i, j] = intervals[p];
      if (i == j) {
        id[p] = order_[i];
        continue;
      }
      children -= 2;
      id[p] = n_ + static_cast<int>(pairs.size());
      pairs.emplace_back(id[children], id[children + 1]);
    }
    return pairs;
  }

 private:
  int64_t At(int64_t i, int64_t j) const { return i * n_ + j; }
  void Set(std::vector<double>& table, int i, int j, double value) {
    table[At(i, j)] = table[At(j, i)] = value;
  }

  // A leg ends inside an interval that has the first and the last place that hold it.
  bool FillSizes(const SearchNetwork& network, const Stop& stop) {
    std::vector<std::vector<int>> places(network.leg_positions());
    for (int p = 0; p < n_; ++p) {
      ForEachLeg(network.legs(order_[p]), network.words(),
                 [&](int leg) { places[leg].push_back(p); });
    }
    std::vector<int> first(network.leg_positions(), n_), last(network.leg_positions(), n_);
    for (int leg = 0; leg < network.leg_positions(); ++leg) {
      if (places[leg].empty() || HasLeg(network.output(), leg)) continue;
      first[leg] = places[leg].front();
      last[leg] = places[leg].back();
      inside_[At(first[leg], last[leg])] += std::log2(network.leg_size(leg));
    }
    for (int i = n_ - 1; i >= 0; --i) {
      double from_here = 0;  // of legs from i to a place up to j
      for (int j = i; j < n_; ++j) {
        from_here += inside_[At(i, j)];
        Set(inside_, i, j, from_here + (j > i ? inside_[At(i + 1, j)] : 0));
      }
    }
    std::vector<Word> open(network.words());
    for (int i = 0; i < n_; ++i) {
      if (stop()) return false;
      std::fill(open.begin(), open.end(), 0);
      int level = 0;
      for (int j = i; j < n_; ++j) {
        const Word* legs = network.legs(order_[j]);
        ForEachLeg(legs, network.words(), [&](int leg) {
          if (first[leg] >= i && last[leg] <= j) {
            RemoveLeg(open.data(), leg);
          } else {
            AddLeg(open.data(), leg);
          }
        });
        Set(size_, i, j, network.SizeOf(open.data()));
        level = std::max(level, network.level(order_[j]));
        runs_[At(i, j)] = network.runs(level);
      }
    }
    return true;
  }

  // The joint space of [i, k] and [k + 1, j] has the legs of [i, j] and those that end here: they
  // are inside [i, j] but in neither part. This holds for hyperedges too.
  void FillInterval(int i, int j) {
    const double* left = cost_.data() + At(i, 0);
    const double* right = cost_.data() + At(j, 1);
    const double size = size_[At(i, j)], inside = inside_[At(i, j)], runs = runs_[At(i, j)];
    double best = kInfinite;
    int split = i;
    for (int k = i; k < j; ++k) {
      const double before = left[k] + right[k];
      if (!(before < best)) continue;
      const double ended = inside - inside_[At(i, k)] - inside_[At(j, k + 1)];
      const double cost = before + price_({size_[At(i, k)], size_[At(j, k + 1)], size,
                                           size * std::exp2(ended), runs});
      if (cost < best) {
        best = cost;
        split = k;
      }
    }
    Set(cost_, i, j, best);
    split_[At(i, j)] = split;
  }

  const std::vector<int>& order_;
  const StepPrice& price_;
  const int64_t n_;
  std::vector<double> cost_, size_;
  std::vector<double> inside_;  // log2 of the size of the legs that no place outside needs
  std::vector<double> runs_;
  std::vector<int> split_;  // the last place of the left part
};

}  // namespace

std::vector<int> LeavesOf(const Tree& tree) {
  std::vector<int> leaves, stack = {tree.root()};
  while (!stack.empty()) {
    const int node = stack.back();
    stack.pop_back();
    if (tree.is_leaf(node)) {
      leaves.push_back(node);
    } else {
      stack.push_back(tree.right(node));
      stack.push_back(tree.left(node));
    }
  }
  return leaves;
}

std::vector<int> CuthillMcKeeOrder(const SearchNetwork& network) {
  const BreadthFirst walk(network);
  std::vector<int> starts;
  starts.reserve(network.tensors());
  for (int t = 0; t < network.tensors(); ++t) starts.push_back(t);
  std::stable_sort(starts.begin(), starts.end(),
                   [&](int a, int b) { return walk.degree(a) < walk.degree(b); });
  std::vector<bool> placed(network.tensors(), false);
  std::vector<int> order;
  for (const int start : starts) {
    if (placed[start]) continue;
    // The far end of a walk lies at the rim.
    for (const int t : walk.From(walk.From(start).back())) {
      placed[t] = true;
      order.push_back(t);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::optional<Pairs> BestOverOrder(const SearchNetwork& network, const std::vector<int>& order,
                                   const StepPrice& price, const Stop& stop) {
  if (order.size() > kMostOrderedLeaves) return std::nullopt;
  if (order.size() < 2) return Pairs();
  if (stop()) return std::nullopt;
  IntervalTable table(order, price);
  if (!table.Fill(network, stop)) return std::nullopt;
  return table.Emit();
}

bool ImproveOverOrder(const StepPrice& price, const Stop& stop, Tree& tree) {
  const std::optional<Pairs> pairs = BestOverOrder(tree.network(), LeavesOf(tree), price, stop);
  if (!pairs.has_value()) return false;
  Tree improved(tree.network(), *pairs);
  if (!(improved.Cost(price) < tree.Cost(price))) return false;
  tree = std::move(improved);
  return true;
}

}  // namespace tenon::planner
