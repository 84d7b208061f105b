#include "backends/planner/slicer.h"

#include <algorithm>
#include <cmath>

namespace tenon::planner {
namespace {

// The sizes of all steps while legs are sliced one after the other.
class SlicedSizes {
 public:
  SlicedSizes(const Tree& tree, const std::vector<int>& sliced) : tree_(tree) {
    for (int node = tree.leaves(); node < tree.nodes(); ++node) steps_.push_back(tree.Step(node));
    for (const int leg : sliced) Slice(leg);
  }

  const StepSizes& step(int node) const { return steps_[node - tree_.leaves()]; }

  void Slice(int leg) {
    for (int node = tree_.leaves(); node < tree_.nodes(); ++node) {
      steps_[node - tree_.leaves()] = Without(node, leg);
    }
  }

  StepSizes Without(int node, int leg) const {
    StepSizes sizes = step(node);
    const double size = tree_.network().leg_size(leg);
    const bool in_left = HasLeg(tree_.legs(tree_.left(node)), leg);
    const bool in_right = HasLeg(tree_.legs(tree_.right(node)), leg);
    if (in_left) sizes.left /= size;
    if (in_right) sizes.right /= size;
    if (in_left || in_right) sizes.joint /= size;
    if (HasLeg(tree_.legs(node), leg)) sizes.result /= size;
    return sizes;
  }

  // What all slices together would cost with each leg of `uses` sliced, over what they cost now.
  // Steps that cost next to nothing are taken to stay as they are.
  void CostsWithout(const StepPrice& price, const std::vector<int>& uses,
                    std::vector<double>& costs) const {
    constexpr double kNothing = 1e-7;
    double total = 0;
    for (const StepSizes& step : steps_) total += price(step);
    std::fill(costs.begin(), costs.end(), total);
    for (int node = tree_.leaves(); node < tree_.nodes(); ++node) {
      const double cost = price(step(node));
      if (cost < kNothing * total) continue;
      const Word* left = tree_.legs(tree_.left(node));
      const Word* right = tree_.legs(tree_.right(node));
      for (int w = 0; w < tree_.network().words(); ++w) {
        const Word joint = left[w] | right[w];
        ForEachLeg(&joint, 1, [&](int bit) {
          const int leg = w * kWordBits + bit;
          if (uses[leg] > 0) costs[leg] += price(Without(node, leg)) - cost;
        });
      }
    }
  }

 private:
  const Tree& tree_;
  std::vector<StepSizes> steps_;
};

}  // namespace

bool ChooseSlices(const StepPrice& price, const SlicerOptions& options, const Tree& tree,
                  Random& random, std::vector<int>& sliced) {
  const SearchNetwork& network = tree.network();
  SlicedSizes sizes(tree, sliced);
  // How many results that are too large have each leg.
  std::vector<int> uses(network.leg_positions());
  std::vector<double> costs(network.leg_positions());
  while (!options.stop()) {
    std::fill(uses.begin(), uses.end(), 0);
    bool fits = true;
    for (int node = tree.leaves(); node < tree.nodes(); ++node) {
      if (sizes.step(node).result <= options.largest_elements) continue;
      if (std::isinf(sizes.step(node).result)) return false;
      fits = false;
      ForEachLeg(tree.legs(node), network.words(), [&](int leg) { ++uses[leg]; });
    }
    if (fits) return true;
    for (const int leg : sliced) uses[leg] = 0;
    sizes.CostsWithout(price, uses, costs);
    int best = -1;
    double least = 0;
    for (int leg = 0; leg < network.leg_positions(); ++leg) {
      if (uses[leg] == 0 || network.leg_size(leg) < 2) continue;
      if (!options.allow_output && HasLeg(network.output(), leg)) continue;
      double rank = std::log(costs[leg] * network.leg_size(leg));
      // A leg of size s does the work of log2(s) legs of size 2.
      rank -= 1e-3 * std::log(uses[leg]);
      if (options.temperature > 0) rank -= options.temperature * random.Gumbel();
      if (best < 0 || rank < least) {
        best = leg;
        least = rank;
      }
    }
    if (best < 0) return false;
    sliced.push_back(best);
    sizes.Slice(best);
  }
  return false;
}

bool SlicePlainly(const SlicerOptions& options, const Tree& tree, std::vector<int>& sliced) {
  const SearchNetwork& network = tree.network();
  const double limit = std::log2(options.largest_elements) + 1e-9;
  std::vector<double> bits(tree.nodes(), 0);                       // log2 of the result's size
  std::vector<std::vector<int>> holders(network.leg_positions());  // results that are too large
  std::vector<int> uses(network.leg_positions(), 0);
  const auto log_size = [&](int leg) { return std::log2(network.leg_size(leg)); };
  int too_large = 0;
  for (int node = tree.leaves(); node < tree.nodes(); ++node) {
    if (options.stop()) return false;
    ForEachLeg(tree.legs(node), network.words(), [&](int leg) { bits[node] += log_size(leg); });
    for (const int leg : sliced) {
      if (HasLeg(tree.legs(node), leg)) bits[node] -= log_size(leg);
    }
    if (bits[node] <= limit) continue;
    ++too_large;
    ForEachLeg(tree.legs(node), network.words(), [&](int leg) {
      holders[leg].push_back(node);
      ++uses[leg];
    });
  }
  std::vector<bool> is_free(network.leg_positions());
  for (int leg = 0; leg < network.leg_positions(); ++leg) {
    is_free[leg] = network.leg_size(leg) >= 2 &&
                   (options.allow_output || !HasLeg(network.output(), leg)) &&
                   std::find(sliced.begin(), sliced.end(), leg) == sliced.end();
  }
  while (too_large > 0) {
    if (options.stop()) return false;
    int best = -1;
    for (int leg = 0; leg < network.leg_positions(); ++leg) {
      if (is_free[leg] && uses[leg] > 0 && (best < 0 || uses[leg] > uses[best])) best = leg;
    }
    if (best < 0) return false;
    sliced.push_back(best);
    is_free[best] = false;
    for (const int node : holders[best]) {
      if (bits[node] <= limit) continue;
      bits[node] -= log_size(best);
      if (bits[node] > limit) continue;
      --too_large;
      ForEachLeg(tree.legs(node), network.words(), [&](int leg) { --uses[leg]; });
    }
  }
  return true;
}

}  // namespace tenon::planner
