#include "backends/planner/polish.h"

#include <utility>
#include <vector>

#include "backends/planner/leaf_order.h"
#include "backends/planner/random.h"
#include "backends/planner/reconfigure.h"
#include "backends/planner/reduced_network.h"
#include "backends/planner/slice.h"

namespace tenon::planner {
namespace {

constexpr int kMostTensors = 2000, kMostOrdered = 300;

// Chains, trees and narrow networks have their best trees over an order along them.
void OrderAlong(const StepPrice& price, const Stop& stop, Tree& tree) {
  if (tree.leaves() > kMostOrdered) return;
  ImproveOverOrder(price, stop, tree);
  const SearchNetwork& network = tree.network();
  const auto pairs = BestOverOrder(network, CuthillMcKeeOrder(network), price, stop);
  if (!pairs.has_value()) return;
  Tree along(network, *pairs);
  if (along.Cost(price) < tree.Cost(price)) tree = std::move(along);
}

}  // namespace

Plan Polish(const contraction::Expression& expression, const Plan& plan, const StepPrice& price,
            uint64_t seed, const Stop& stop) {
  const auto n = static_cast<int>(expression.inputs.size());
  if (n < 3 || n > kMostTensors || stop()) return plan;
  ReducedNetwork::Options unreduced;
  unreduced.simplify = false;
  unreduced.solve_small_parts = false;
  const ReducedNetwork whole(expression, unreduced);
  if (whole.too_large()) return plan;
  const SearchNetwork& network = whole.network();
  std::vector<int> legs;
  for (const int index : plan.sliced) {
    if (network.leg_of(index) >= 0) legs.push_back(network.leg_of(index));
  }
  Slice slice(Tree(network, plan.path.pairs), legs);
  const double before = slice.tree().Cost(price);
  OrderAlong(price, stop, slice.tree());
  Random random(seed, ~uint64_t{1});
  Reconfigure(price, {}, random, stop, slice.tree());
  if (!(slice.tree().Cost(price) < before)) return plan;
  return {{slice.Whole().ToPairs()}, plan.sliced};
}

}  // namespace tenon::planner
