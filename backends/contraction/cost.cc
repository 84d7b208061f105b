// Costs of paths, and the choice of slices for a fixed path.

#include <algorithm>
#include <vector>

#include "backends/contraction/loop_order.h"
#include "backends/contraction/path.h"
#include "backends/core/error.h"
#include "backends/core/figure.h"

namespace tenon::contraction {
namespace {

// Nothing times anything is nothing, also where the rest is beyond the range of a double: there the
// plain product is no number.
double Times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

double Elements(const Expression& expression, const std::vector<int>& indices) {
  double elements = 1;
  for (const int index : indices) {
    elements = Times(elements, static_cast<double>(expression.sizes[index]));
  }
  return elements;
}

// Product of the sizes of the union of two ascending lists.
double JointElements(const Expression& expression, const std::vector<int>& a,
                     const std::vector<int>& b) {
  std::vector<int> joint;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(joint));
  return Elements(expression, joint);
}

std::vector<bool> Membership(const Expression& expression, const std::vector<int>& indices) {
  std::vector<bool> member(expression.sizes.size(), false);
  for (const int index : indices) member[index] = true;
  return member;
}

// Elements of each tensor as it is stored, and as the first step that reads it sees it.
struct TensorSizes {
  std::vector<double> stored, reduced;
};

TensorSizes MeasureTensors(const Expression& expression,
                           const std::vector<std::vector<int>>& tensors,
                           const std::vector<int>& sliced) {
  const std::vector<bool> is_sliced = Membership(expression, sliced);
  const std::vector<bool> is_private = PrivateIndices(expression);
  TensorSizes sizes;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const bool is_operand = t < expression.inputs.size();
    std::vector<int> stored = is_operand ? expression.inputs[t] : tensors[t];
    std::vector<int> reduced = tensors[t];
    std::erase_if(stored, [&](int index) { return is_sliced[index]; });
    std::erase_if(reduced, [&](int index) { return is_private[index]; });
    sizes.stored.push_back(Elements(expression, stored));
    sizes.reduced.push_back(Elements(expression, reduced));
  }
  return sizes;
}

// The results that count against a size limit: those of pairs, or the block of a single input.
std::vector<std::vector<int>> LimitedResults(const Expression& expression, const Path& path) {
  std::vector<std::vector<int>> tensors = TensorIndices(expression, path, {});
  if (path.pairs.empty()) return {expression.output};
  tensors.erase(tensors.begin(), tensors.begin() + expression.inputs.size());
  return tensors;
}

}  // namespace

PathCost ComputeCost(const Expression& expression, const Path& path,
                     const std::vector<int>& sliced) {
  const std::vector<std::vector<int>> tensors = TensorIndices(expression, path, sliced);
  const TensorSizes sizes = MeasureTensors(expression, tensors, sliced);
  const size_t n = expression.inputs.size();
  PathCost cost;
  double live = 0;
  for (size_t k = 0; k < n; ++k) live += sizes.stored[k];
  cost.peak_size = live;
  for (size_t s = 0; s < path.pairs.size(); ++s) {
    const auto [a, b] = path.pairs[s];
    const double result = sizes.stored[n + s];
    cost.flops += JointElements(expression, tensors[a], tensors[b]);
    cost.write += result;
    cost.read_write += sizes.stored[a] + sizes.stored[b] + result;
    cost.max_size = std::max(cost.max_size, result);
    cost.max_step = std::max(cost.max_step, sizes.reduced[a] + sizes.reduced[b] + result);
    live += result;
    cost.peak_size = std::max(cost.peak_size, live);
    live -= sizes.stored[a] + sizes.stored[b];
  }
  if (path.pairs.empty()) {
    std::vector<int> block = expression.output;
    const std::vector<bool> is_sliced = Membership(expression, sliced);
    std::erase_if(block, [&](int index) { return is_sliced[index]; });
    cost.max_size = Elements(expression, block);
  }
  cost.slices = Elements(expression, sliced);
  cost.flops = Times(cost.flops, cost.slices);
  cost.write = Times(cost.write, cost.slices);
  cost.read_write = Times(cost.read_write, cost.slices);
  return cost;
}

ExecutedWork ComputeExecutedWork(const Expression& expression, const Path& path,
                                 const std::vector<int>& sliced) {
  // An index without values is no loop, and what holds it is empty.
  std::vector<int> loops = sliced;
  std::erase_if(loops, [&](int index) { return expression.sizes[index] == 0; });
  const std::vector<std::vector<int>> tensors = TensorIndices(expression, path, loops);
  const TensorSizes sizes = MeasureTensors(expression, tensors, loops);
  const std::vector<double> runs = PairRuns(expression, path, loops);
  const size_t n = expression.inputs.size();
  ExecutedWork work;
  for (size_t s = 0; s < path.pairs.size(); ++s) {
    const auto [a, b] = path.pairs[s];
    work.flops += Times(runs[s], JointElements(expression, tensors[a], tensors[b]));
    work.read_write += Times(runs[s], sizes.stored[a] + sizes.stored[b] + sizes.stored[n + s]);
  }
  return work;
}

absl::StatusOr<std::vector<int>> SliceToTarget(const Expression& expression, const Path& path,
                                               double target_elements, bool allow_output) {
  std::vector<std::vector<int>> results = LimitedResults(expression, path);
  const std::vector<bool> is_output = Membership(expression, expression.output);
  std::vector<int> sliced;
  while (true) {
    std::vector<int> uses(expression.sizes.size(), 0);
    double largest = 0;
    std::erase_if(results, [&](const std::vector<int>& result) {
      return Elements(expression, result) <= target_elements;
    });
    for (const std::vector<int>& result : results) {
      largest = std::max(largest, Elements(expression, result));
      for (const int index : result) ++uses[index];
    }
    if (results.empty()) return sliced;
    int best = -1;
    for (size_t index = 0; index < uses.size(); ++index) {
      if (uses[index] == 0 || expression.sizes[index] < 2) continue;
      if (is_output[index] && !allow_output) continue;
      const bool better =
          best < 0 || uses[index] > uses[best] ||
          (uses[index] == uses[best] && expression.sizes[index] > expression.sizes[best]);
      if (better) best = static_cast<int>(index);
    }
    if (best < 0) {
      return Error(Reason::kExceedsMemoryBudget,
                   StrCat("no slicing of this path brings every step result to at most ",
                          FigureText(target_elements), " elements; at least ", FigureText(largest),
                          " are needed"))
          .Field("target_size")
          .Meta("target_elements", FigureText(target_elements))
          .Meta("needed_elements", FigureText(largest));
    }
    sliced.push_back(best);
    for (std::vector<int>& result : results) std::erase(result, best);
  }
}

}  // namespace tenon::contraction
