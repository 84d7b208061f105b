#include "backends/planner/reduced_network.h"

#include <algorithm>
#include <utility>

#include "backends/planner/simplify.h"
#include "backends/planner/subset_table.h"

namespace tenon::planner {
namespace {

using contraction::Expression;

// An index without values takes part as if it had one.
std::vector<int64_t> PositiveSizes(const Expression& expression) {
  std::vector<int64_t> sizes = expression.sizes;
  for (int64_t& size : sizes) size = std::max<int64_t>(size, 1);
  return sizes;
}

std::vector<int> Distinct(std::vector<int> indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

// Trees have twice as many nodes as tensors, each with a bit per index, and a search holds several.
constexpr int64_t kLargestTreeBytes = int64_t{64} << 20;

bool IsTooLarge(const std::vector<std::vector<int>>& tensors, size_t indices) {
  return static_cast<int64_t>(tensors.size()) * 2 * static_cast<int64_t>(indices / 8) >
         kLargestTreeBytes;
}

size_t LegsOf(const std::vector<std::vector<int>>& tensors) {
  size_t legs = 0;
  for (const std::vector<int>& tensor : tensors) legs += tensor.size();
  return legs / 2;  // most are on two
}

// The best tree of a part; false: it has too many tensors, or a result is too large.
bool SolvePart(const NetworkPart& part, const std::vector<int64_t>& sizes,
               const ReducedNetwork::Options& options, Pairs* pairs) {
  constexpr size_t kMostTensors = 12;
  const size_t n = part.tensors.size();
  if (n > kMostTensors) return false;
  if (n == 1) return true;
  const SearchNetwork network(part.tensors, part.output, sizes);
  std::vector<const Word*> legs;
  for (size_t t = 0; t < n; ++t) legs.push_back(network.legs(static_cast<int>(t)));
  SubsetTable table(network);
  const StepPrice price{options.objective};
  const double cost =
      table.Solve(legs, network.output(), price, std::numeric_limits<double>::infinity());
  if (!(cost < std::numeric_limits<double>::infinity())) return false;
  *pairs = table.Pairs();
  return Tree(network, *pairs).Largest() <= options.largest_elements;
}

}  // namespace

ReducedNetwork::ReducedNetwork(const Expression& expression, const Options& options)
    : ReducedNetwork(expression, Reduce(expression, options)) {}

ReducedNetwork::ReducedNetwork(const Expression& expression, Parts parts)
    : operands_(static_cast<int>(expression.inputs.size())),
      prefix_(std::move(parts.prefix)),
      ids_(std::move(parts.ids)),
      network_(IsTooLarge(parts.tensors, LegsOf(parts.tensors)) ? std::vector<std::vector<int>>()
                                                                : parts.tensors,
               expression.output, PositiveSizes(expression)) {}

ReducedNetwork::Parts ReducedNetwork::Reduce(const Expression& expression, const Options& options) {
  Parts parts;
  if (!options.simplify) {
    for (size_t k = 0; k < expression.inputs.size(); ++k) {
      parts.tensors.push_back(Distinct(expression.inputs[k]));
      parts.ids.push_back(static_cast<int>(k));
    }
    return parts;
  }
  SimplifyOptions simplify;
  simplify.largest_elements = options.largest_elements;
  const SimplifiedNetwork simplified = Simplify(expression, simplify);
  const std::vector<int64_t> sizes = PositiveSizes(expression);
  const auto n = static_cast<int>(expression.inputs.size());
  parts.prefix = simplified.prefix;
  for (const NetworkPart& part : simplified.parts) {
    Pairs pairs;
    if (!options.solve_small_parts || !SolvePart(part, sizes, options, &pairs)) {
      parts.tensors.insert(parts.tensors.end(), part.tensors.begin(), part.tensors.end());
      parts.ids.insert(parts.ids.end(), part.ids.begin(), part.ids.end());
      continue;
    }
    std::vector<int> ids = part.ids;
    for (const auto& [left, right] : pairs) {
      ids.push_back(n + static_cast<int>(parts.prefix.size()));
      parts.prefix.emplace_back(ids[left], ids[right]);
    }
    parts.tensors.push_back(part.output);
    parts.ids.push_back(ids.back());
  }
  return parts;
}

contraction::Path ReducedNetwork::PathOf(const Pairs& pairs) const {
  contraction::Path path;
  path.pairs = prefix_;
  std::vector<int> ids = ids_;
  for (const auto& [left, right] : pairs) {
    ids.push_back(operands_ + static_cast<int>(path.pairs.size()));
    path.pairs.emplace_back(ids[left], ids[right]);
  }
  return path;
}

}  // namespace tenon::planner
