// One path from the trees of a network's parts.

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "backends/planner/search_network.h"
#include "backends/planner/simplify.h"
#include "backends/planner/subset_table.h"

namespace tenon::planner {
namespace {

// All trees over so many are a few hundred thousand splits: milliseconds.
constexpr size_t kMostExact = 12;

struct PartResult {
  double size;
  int id;
  std::vector<int> indices;
};

class Stitcher {
 public:
  Stitcher(const contraction::Expression& expression, const SimplifiedNetwork& simplified)
      : expression_(expression), simplified_(simplified) {
    path_.pairs = simplified.prefix;
  }

  contraction::Path Run(const std::vector<Pairs>& trees, const StepPrice& price) {
    std::vector<PartResult> results;
    for (size_t p = 0; p < simplified_.parts.size(); ++p) {
      const NetworkPart& part = simplified_.parts[p];
      const int id = Append(part.ids, trees[p]);
      results.push_back({SizeOf(part.output), id, part.output});
    }
    results = JoinSmallest(std::move(results));
    if (results.size() > 1) JoinBest(results, price);
    return std::move(path_);
  }

 private:
  double SizeOf(const std::vector<int>& indices) const {
    double size = 1;
    for (const int index : indices) size *= static_cast<double>(expression_.sizes[index]);
    return size;
  }

  int Join(int a, int b) {
    path_.pairs.emplace_back(std::min(a, b), std::max(a, b));
    return simplified_.operands + static_cast<int>(path_.pairs.size()) - 1;
  }

  // Appends pairs over the tensors `ids`; the id of the last.
  int Append(std::vector<int> ids, const Pairs& pairs) {
    for (const auto& [a, b] : pairs) ids.push_back(Join(ids[a], ids[b]));
    return ids.back();
  }

  std::vector<PartResult> JoinSmallest(std::vector<PartResult> results) {
    const auto larger = [](const PartResult& a, const PartResult& b) {
      return std::pair(a.size, a.id) > std::pair(b.size, b.id);
    };
    std::make_heap(results.begin(), results.end(), larger);
    while (results.size() > kMostExact) {
      std::pop_heap(results.begin(), results.end(), larger);
      const PartResult a = std::move(results.back());
      results.pop_back();
      std::pop_heap(results.begin(), results.end(), larger);
      PartResult& b = results.back();
      b.size *= a.size;
      b.id = Join(a.id, b.id);
      b.indices.insert(b.indices.end(), a.indices.begin(), a.indices.end());
      std::push_heap(results.begin(), results.end(), larger);
    }
    return results;
  }

  void JoinBest(const std::vector<PartResult>& results, const StepPrice& price) {
    std::vector<std::vector<int>> tensors;
    std::vector<int> ids;
    for (const PartResult& result : results) {
      tensors.push_back(result.indices);
      ids.push_back(result.id);
    }
    const SearchNetwork network(tensors, expression_.output, expression_.sizes);
    std::vector<const Word*> legs;
    legs.reserve(network.tensors());
    for (int t = 0; t < network.tensors(); ++t) legs.push_back(network.legs(t));
    SubsetTable table(network);
    table.Solve(legs, network.output(), price, std::numeric_limits<double>::infinity());
    Append(ids, table.Pairs());
  }

  const contraction::Expression& expression_;
  const SimplifiedNetwork& simplified_;
  contraction::Path path_;
};

}  // namespace

contraction::Path Stitch(const contraction::Expression& expression,
                         const SimplifiedNetwork& simplified, const std::vector<Pairs>& trees,
                         const StepPrice& price) {
  return Stitcher(expression, simplified).Run(trees, price);
}

}  // namespace tenon::planner
