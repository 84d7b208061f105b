#include "backends/planner/slice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "backends/contraction/loop_order.h"
#include "backends/contraction/slice_groups.h"

namespace tenon::planner {
namespace {

constexpr int kMostSummedLoops = 64;

double SizeOf(const SearchNetwork& network, const std::vector<int>& legs) {
  double size = 1;
  for (const int leg : legs) size *= network.leg_size(leg);
  return size;
}

// Multiply-adds of a slice by the summed loops that steps depend on; bit i: `summed[i]`.
std::vector<contraction::LoopWork> CollectWork(const SearchNetwork& whole, const Tree& slice,
                                               const std::vector<int>& summed) {
  std::vector<uint64_t> loops(slice.nodes(), 0);
  for (int t = 0; t < slice.leaves(); ++t) {
    for (size_t i = 0; i < summed.size(); ++i) {
      loops[t] |= uint64_t{HasLeg(whole.legs(t), summed[i])} << i;
    }
  }
  std::map<uint64_t, double> flops;
  for (const int node : slice.PostOrder()) {
    loops[node] = loops[slice.left(node)] | loops[slice.right(node)];
    // The last step runs in every slice whatever the order.
    if (node != slice.root()) flops[loops[node]] += slice.joint(node);
  }
  std::vector<contraction::LoopWork> work;
  for (const auto& [set, sum] : flops) {
    if (set != 0) work.push_back({set, sum});
  }
  return work;
}

SliceLoops Nest(const SearchNetwork& whole, const Tree& slice, const std::vector<int>& sliced) {
  SliceLoops loops;
  if (sliced.empty()) return loops;
  std::vector<int> summed;
  for (const int leg : sliced) {
    (HasLeg(whole.output(), leg) ? loops.legs : summed).push_back(leg);
  }
  const auto output_loops = static_cast<int>(loops.legs.size());
  const double blocks = SizeOf(whole, loops.legs), slices = SizeOf(whole, sliced);
  const double block_elements = slice.network().SizeOf(slice.network().output());
  loops.legs.insert(loops.legs.end(), summed.begin(), summed.end());
  if (summed.size() > kMostSummedLoops ||
      !(std::max(slices, block_elements) <= static_cast<double>(contraction::kMaxSlices))) {
    loops.runs.assign(loops.legs.size() + 1, slices);
    loops.runs[0] = 1;
    return loops;
  }
  std::vector<int64_t> extents, nested;
  for (const int leg : summed) extents.push_back(std::llround(whole.leg_size(leg)));
  const auto elements = static_cast<int64_t>(block_elements);
  const std::vector<int> order =
      contraction::GreedyLoopOrder(extents, elements, CollectWork(whole, slice, summed));
  for (size_t i = 0; i < order.size(); ++i) {
    loops.legs[output_loops + i] = summed[order[i]];
    nested.push_back(extents[order[i]]);
  }
  const auto groups = contraction::DivideSlices(std::llround(slices / blocks), elements, nested);
  loops.runs = contraction::RunsByLevel(output_loops, std::llround(blocks), nested, groups);
  loops.runs[0] = 1;
  return loops;
}

}  // namespace

Slice::Slice(const Tree& whole, std::vector<int> sliced)
    : whole_(whole.network()),
      sliced_(std::move(sliced)),
      network_(whole_.Without(sliced_)),
      tree_(whole.On(network_)) {
  NestAgain();
}

void Slice::Flatten() {
  SliceLoops flat;
  flat.runs = {SizeOf(whole_, sliced_)};
  network_.SetLoops(whole_, flat);
  tree_.SetLevels();
}

void Slice::NestAgain() {
  if (sliced_.empty()) return;
  network_.SetLoops(whole_, Nest(whole_, tree_, sliced_));
  tree_.SetLevels();
}

}  // namespace tenon::planner
