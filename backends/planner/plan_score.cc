// What a plan costs by an objective, over the operands as given.

#include <algorithm>
#include <iterator>
#include <vector>

#include "backends/contraction/loop_order.h"
#include "backends/planner/search.h"

namespace tenon::planner {
namespace {

using contraction::Expression;

// By the sizes of the tensors of every pair; an index that one operand alone has is summed before.
double SecondsOf(const Expression& expression, const Objective& objective, const Plan& plan) {
  std::vector<std::vector<int>> tensors = TensorIndices(expression, plan.path, plan.sliced);
  const std::vector<bool> is_private = contraction::PrivateIndices(expression);
  const std::vector<double> runs = PairRuns(expression, plan.path, plan.sliced);
  const size_t n = expression.inputs.size();
  for (size_t k = 0; k < n; ++k) {
    std::erase_if(tensors[k], [&](int index) { return is_private[index]; });
  }
  const auto elements = [&](const std::vector<int>& indices) {
    double product = 1;
    for (const int index : indices) product *= static_cast<double>(expression.sizes[index]);
    return product;
  };
  double seconds = 0;
  for (size_t s = 0; s < plan.path.pairs.size(); ++s) {
    const auto& a = tensors[plan.path.pairs[s].first];
    const auto& b = tensors[plan.path.pairs[s].second];
    std::vector<int> joint;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(joint));
    const StepSizes sizes = {elements(a), elements(b), elements(tensors[n + s]), elements(joint)};
    seconds += runs[s] * objective.StepCost(sizes);
  }
  return seconds;
}

}  // namespace

double PlanScore(const Expression& expression, const Objective& objective, const Plan& plan) {
  switch (objective.kind) {
    case Objective::Kind::kWeighted: {
      const auto work = ComputeExecutedWork(expression, plan.path, plan.sliced);
      return objective.flops_weight * work.flops + objective.read_write_weight * work.read_write;
    }
    case Objective::Kind::kLargest:
      return ComputeCost(expression, plan.path, plan.sliced).max_size;
    case Objective::Kind::kSeconds:
      break;
  }
  return SecondsOf(expression, objective, plan);
}

}  // namespace tenon::planner
