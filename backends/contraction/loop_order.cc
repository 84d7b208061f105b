#include "backends/contraction/loop_order.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "backends/contraction/slice_groups.h"

namespace tenon::contraction {
namespace {

// Loops that are ordered exactly at once: 2^10 sets of them are looked at.
constexpr size_t kWindow = 10;
constexpr int64_t kAnyTurn = 0;

int64_t Slices(const std::vector<int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

SliceGroups GroupsOf(const std::vector<int64_t>& extents, int64_t block_elements,
                     const std::vector<int>& order) {
  std::vector<int64_t> ordered;
  ordered.reserve(order.size());
  for (const int loop : order) ordered.push_back(extents[loop]);
  return DivideSlices(Slices(extents), block_elements, ordered);
}

// The best order of a few neighbouring loops, by dynamic programming over the sets of them that
// stand outside: work is redone as often as the loops inside the set that completes it allow.
class WindowSearch {
 public:
  // `outside` loops stand before the window, the loops of `window` are to be ordered, and
  // `inner_slices` slices lie inside. Groups are taken as given.
  WindowSearch(const std::vector<int64_t>& extents, const std::vector<LoopWork>& work,
               uint64_t outside, const std::vector<int>& window, int64_t inner_slices,
               const SliceGroups& groups)
      : window_(window),
        count_(size_t{1} << window.size()),
        inner_(count_),
        complete_(count_, 0.0) {
    const int64_t slices = Slices(extents);
    const size_t all = count_ - 1;
    uint64_t window_mask = 0;
    for (const int loop : window_) window_mask |= uint64_t{1} << loop;
    for (size_t set = 0; set < count_; ++set) {
      inner_[set] = inner_slices;
      for (size_t i = 0; i < window_.size(); ++i) {
        if ((all & ~set) >> i & 1) inner_[set] *= extents[window_[i]];
      }
    }
    for (const LoopWork& one : work) {
      // Work that also needs loops inside the window is redone in every order alike.
      if ((one.loops & ~outside & ~window_mask) != 0) continue;
      complete_[Compress(one.loops)] += one.flops;
    }
    for (size_t i = 0; i < window_.size(); ++i) {
      for (size_t set = 0; set < count_; ++set) {
        if (set >> i & 1) complete_[set] += complete_[set ^ size_t{1} << i];
      }
    }
    std::map<int64_t, double> known;  // sets of equal extents are many
    for (size_t set = 0; set < count_; ++set) {
      const auto [entry, is_new] = known.try_emplace(inner_[set]);
      if (is_new) entry->second = ExecutionsPerBlock(groups, slices, inner_[set]);
      executions_.push_back(entry->second);
    }
  }

  // The order with the fewest flops; empty when none is allowed. With a turn, only orders whose
  // groups are whole turns of `turn` slices: some inner loops have exactly that many, and with the
  // next one more than `group_slices`.
  std::vector<int> Run(int64_t turn, int64_t group_slices) const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    std::vector<double> best(count_, kNone);
    std::vector<int> last(count_, -1);
    best[0] = complete_[0] * executions_[0];
    for (size_t set = 1; set < count_; ++set) {
      for (size_t i = 0; i < window_.size(); ++i) {
        if (!(set >> i & 1)) continue;
        const size_t before = set ^ size_t { 1 } << i;
        if (best[before] == kNone) continue;
        if (turn != kAnyTurn && !Allowed(inner_[before], inner_[set], turn, group_slices)) continue;
        const double cost = best[before] + (complete_[set] - complete_[before]) * executions_[set];
        if (cost < best[set]) {
          best[set] = cost;
          last[set] = static_cast<int>(i);
        }
      }
    }
    std::vector<int> order;
    if (best.back() == kNone) return order;
    for (size_t set = count_ - 1; set != 0; set ^= size_t{1} << last[set]) {
      order.push_back(window_[last[set]]);
    }
    std::reverse(order.begin(), order.end());
    return order;
  }

 private:
  // Whether moving one loop outside, which leaves `inner` of `wider` slices inside, keeps the turn.
  static bool Allowed(int64_t wider, int64_t inner, int64_t turn, int64_t group_slices) {
    const bool crosses = wider > group_slices && inner <= group_slices;
    if (!crosses) return true;
    // Where even one turn of the innermost loop is too long, it is the turn.
    return inner > 1 ? inner == turn : wider == turn;
  }

  size_t Compress(uint64_t loops) const {
    size_t set = 0;
    for (size_t i = 0; i < window_.size(); ++i) set |= size_t{loops >> window_[i] & 1} << i;
    return set;
  }

  const std::vector<int>& window_;
  const size_t count_;
  std::vector<int64_t> inner_;      // per set of loops outside: slices inside
  std::vector<double> complete_;    // per set: flops of the work that needs no other loop
  std::vector<double> executions_;  // per set: runs of work that it completes
};

std::vector<int> Identity(size_t count) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Tries every turn that some order of the loops can have, because the groups follow from it.
std::vector<int> ExactOrder(const std::vector<int64_t>& extents, int64_t block_elements,
                            const std::vector<LoopWork>& work) {
  std::vector<int> best = Identity(extents.size());
  double best_flops = LoopFlops(extents, block_elements, work, best);
  const SliceGroups unaligned = DivideSlices(Slices(extents), block_elements, {});
  std::set<int64_t> turns;
  for (size_t set = 0; set < size_t{1} << extents.size(); ++set) {
    int64_t turn = 1;
    for (size_t i = 0; i < extents.size(); ++i) turn *= set >> i & 1 ? extents[i] : 1;
    if (turn <= unaligned.group_slices || std::popcount(set) == 1) turns.insert(turn);
  }
  for (const int64_t turn : turns) {
    const SliceGroups groups = DivideSlices(Slices(extents), block_elements, {{turn}});
    const std::vector<int> window = Identity(extents.size());
    const WindowSearch search(extents, work, 0, window, 1, groups);
    const std::vector<int> order = search.Run(turn, unaligned.group_slices);
    if (order.empty()) continue;
    const double flops = LoopFlops(extents, block_elements, work, order);
    if (flops < best_flops) {
      best_flops = flops;
      best = order;
    }
  }
  return best;
}

}  // namespace

// From the innermost loop outwards, always the one that leaves the least to redo.
std::vector<int> GreedyLoopOrder(const std::vector<int64_t>& extents, int64_t block_elements,
                                 const std::vector<LoopWork>& work) {
  const int64_t slices = Slices(extents);
  const SliceGroups groups = DivideSlices(slices, block_elements, {});
  std::vector<int> left = Identity(extents.size()), order;
  std::vector<LoopWork> open = work;  // depends on none of the loops in `order`
  for (int64_t inner = 1; !left.empty(); inner *= extents[order.back()]) {
    const double often = ExecutionsPerBlock(groups, slices, inner);
    double best = std::numeric_limits<double>::infinity();
    auto chosen = left.begin();
    for (auto loop = left.begin(); loop != left.end(); ++loop) {
      const double seldom = ExecutionsPerBlock(groups, slices, inner * extents[*loop]);
      double flops = 0;
      for (const LoopWork& one : open)
        flops += one.flops * (one.loops >> *loop & 1 ? often : seldom);
      if (flops < best) {
        best = flops;
        chosen = loop;
      }
    }
    order.push_back(*chosen);
    std::erase_if(open, [&](const LoopWork& one) { return one.loops >> *chosen & 1; });
    left.erase(chosen);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

namespace {

// Orders the loops [first, first + kWindow) of `order` anew; whether that gained.
bool ImproveWindow(const std::vector<int64_t>& extents, int64_t block_elements,
                   const std::vector<LoopWork>& work, size_t first, std::vector<int>& order,
                   double& flops) {
  uint64_t outside = 0;
  for (size_t i = 0; i < first; ++i) outside |= uint64_t{1} << order[i];
  const size_t last = std::min(first + kWindow, order.size());
  std::vector<int> window(order.begin() + first, order.begin() + last);
  std::sort(window.begin(), window.end());
  int64_t inner = 1;
  for (size_t i = last; i < order.size(); ++i) inner *= extents[order[i]];
  const WindowSearch search(extents, work, outside, window, inner,
                            GroupsOf(extents, block_elements, order));
  const std::vector<int> better = search.Run(kAnyTurn, 0);
  std::vector<int> candidate = order;
  std::copy(better.begin(), better.end(), candidate.begin() + first);
  const double gained = LoopFlops(extents, block_elements, work, candidate);
  if (gained >= flops) return false;
  order = std::move(candidate);
  flops = gained;
  return true;
}

// Work that depends on summed loops, by the set of them; positions in `summed` are bits.
std::vector<LoopWork> CollectWork(const Expression& expression, const Path& path,
                                  const std::vector<int>& sliced, const std::vector<int>& summed) {
  const std::vector<std::vector<int>> tensors = TensorIndices(expression, path, sliced);
  const std::vector<bool> is_private = PrivateIndices(expression);
  const size_t n = expression.inputs.size();
  std::vector<uint64_t> loops(tensors.size(), 0);
  std::map<uint64_t, double> flops;
  const auto joint = [&](size_t a, size_t b, bool with_private) {
    std::vector<int> indices;
    std::set_union(tensors[a].begin(), tensors[a].end(), tensors[b].begin(), tensors[b].end(),
                   std::back_inserter(indices));
    double elements = 1;
    for (const int index : indices) {
      if (with_private || !is_private[index]) {
        elements *= static_cast<double>(expression.sizes[index]);
      }
    }
    return elements;
  };
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < summed.size(); ++i) {
      const std::vector<int>& indices = expression.inputs[k];
      const bool holds = std::find(indices.begin(), indices.end(), summed[i]) != indices.end();
      loops[k] |= uint64_t{holds} << i;
    }
    const bool reduced = std::any_of(tensors[k].begin(), tensors[k].end(),
                                     [&](int index) { return is_private[index]; });
    if (reduced) flops[loops[k]] += joint(k, k, true);
  }
  // The last step runs in every slice whatever the order.
  for (size_t s = 0; s + 1 < path.pairs.size(); ++s) {
    const auto [a, b] = path.pairs[s];
    loops[n + s] = loops[a] | loops[b];
    constexpr double kPerMultiplyAdd = 2;  // against 1 per element that is only added
    flops[loops[n + s]] += kPerMultiplyAdd * joint(a, b, false);
  }
  std::vector<LoopWork> work;
  for (const auto& [set, sum] : flops) {
    if (set != 0) work.push_back(LoopWork{set, sum});
  }
  return work;
}

struct LoopRuns {
  std::vector<int> order;    // indices, outermost first
  std::vector<double> runs;  // by level: 0 for what depends on no loop
  int levels() const { return static_cast<int>(runs.size()) - 1; }
};

LoopRuns OrderLoops(const Expression& expression, const Path& path,
                    const std::vector<int>& sliced) {
  LoopRuns loops;
  std::vector<int> summed;
  double block_elements = 1, blocks = 1, slices = 1;
  for (const int index : expression.output) {
    const auto size = static_cast<double>(expression.sizes[index]);
    const bool is_loop = std::find(sliced.begin(), sliced.end(), index) != sliced.end();
    (is_loop ? blocks : block_elements) *= size;
    if (is_loop) loops.order.push_back(index);
  }
  for (const int index : sliced) {
    slices *= static_cast<double>(expression.sizes[index]);
    const auto& order = loops.order;
    if (std::find(order.begin(), order.end(), index) == order.end()) summed.push_back(index);
  }
  if (!(slices > 0 && std::max(slices, block_elements) <= static_cast<double>(kMaxSlices))) {
    loops.order.insert(loops.order.end(), summed.begin(), summed.end());
    loops.runs = {1, slices};
    return loops;
  }
  const auto elements = static_cast<int64_t>(block_elements);
  summed = OrderSummedLoops(expression, path, sliced, std::move(summed), elements);
  std::vector<int64_t> extents;
  extents.reserve(summed.size());
  for (const int index : summed) extents.push_back(expression.sizes[index]);
  const SliceGroups groups = DivideSlices(Slices(extents), elements, extents);
  loops.runs = RunsByLevel(static_cast<int>(loops.order.size()), static_cast<int64_t>(blocks),
                           extents, groups);
  loops.runs[0] = 1;
  loops.order.insert(loops.order.end(), summed.begin(), summed.end());
  return loops;
}

}  // namespace

double LoopFlops(const std::vector<int64_t>& extents, int64_t block_elements,
                 const std::vector<LoopWork>& work, const std::vector<int>& order) {
  const int64_t slices = Slices(extents);
  const SliceGroups groups = GroupsOf(extents, block_elements, order);
  double flops = 0;
  int64_t inner = slices;
  uint64_t outside = 0;
  std::vector<bool> done(work.size(), false);
  for (const int loop : order) {
    outside |= uint64_t{1} << loop;
    inner /= extents[loop];
    const double executions = ExecutionsPerBlock(groups, slices, inner);
    for (size_t i = 0; i < work.size(); ++i) {
      if (done[i] || (work[i].loops & ~outside) != 0) continue;
      flops += work[i].flops * executions;
      done[i] = true;
    }
  }
  return flops;
}

std::vector<int> BestLoopOrder(const std::vector<int64_t>& extents, int64_t block_elements,
                               const std::vector<LoopWork>& work) {
  if (extents.size() < 2 || work.empty()) return Identity(extents.size());
  if (extents.size() <= kWindow) return ExactOrder(extents, block_elements, work);
  std::vector<int> order = GreedyLoopOrder(extents, block_elements, work);
  double flops = LoopFlops(extents, block_elements, work, order);
  bool gained = true;
  constexpr int kRounds = 4;
  for (int round = 0; gained && round < kRounds; ++round) {
    gained = false;
    for (size_t first = 0; first + kWindow / 2 < order.size(); first += kWindow / 2) {
      gained |= ImproveWindow(extents, block_elements, work, first, order, flops);
    }
  }
  return order;
}

std::vector<int> OrderSummedLoops(const Expression& expression, const Path& path,
                                  const std::vector<int>& sliced, std::vector<int> summed,
                                  int64_t block_elements) {
  std::sort(summed.begin(), summed.end());
  const auto first_loop = std::stable_partition(
      summed.begin(), summed.end(), [&](int index) { return expression.sizes[index] < 2; });
  const std::vector<int> loops(first_loop, summed.end());
  std::vector<int64_t> extents;
  extents.reserve(loops.size());
  for (const int index : loops) extents.push_back(expression.sizes[index]);
  const std::vector<LoopWork> work = CollectWork(expression, path, sliced, loops);
  const std::vector<int> order = BestLoopOrder(extents, block_elements, work);
  for (size_t i = 0; i < order.size(); ++i) first_loop[i] = loops[order[i]];
  return summed;
}

std::vector<double> PairRuns(const Expression& expression, const Path& path,
                             const std::vector<int>& sliced) {
  if (sliced.empty()) return std::vector<double>(path.pairs.size(), 1.0);
  const LoopRuns loops = OrderLoops(expression, path, sliced);
  const size_t n = expression.inputs.size();
  std::vector<int> level_of_index(expression.sizes.size(), 0);
  for (size_t i = 0; i < loops.order.size(); ++i) {
    level_of_index[loops.order[i]] = std::min(static_cast<int>(i) + 1, loops.levels());
  }
  std::vector<int> levels(n + path.pairs.size(), 0);
  std::vector<double> runs;
  for (size_t k = 0; k < n; ++k) {
    for (const int index : expression.inputs[k]) {
      levels[k] = std::max(levels[k], level_of_index[index]);
    }
  }
  for (size_t s = 0; s < path.pairs.size(); ++s) {
    levels[n + s] = std::max(levels[path.pairs[s].first], levels[path.pairs[s].second]);
    runs.push_back(loops.runs[levels[n + s]]);
  }
  if (!runs.empty()) runs.back() = loops.runs.back();
  return runs;
}

}  // namespace tenon::contraction
