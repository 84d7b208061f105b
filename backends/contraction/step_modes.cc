#include "backends/contraction/step_modes.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tenon::contraction {
namespace {

// Outermost first by the leading tensor, C or, where it lacks the group, A.
bool ComesFirst(const tenon_mode& x, const tenon_mode& y) {
  return std::tuple(x.stride_c, x.stride_a, x.stride_b, x.extent) >
         std::tuple(y.stride_c, y.stride_a, y.stride_b, y.extent);
}

// Whether `outer` and `inner`, neighbours in this order, are one loop in all three tensors.
bool IsOneLoop(const tenon_mode& outer, const tenon_mode& inner) {
  return outer.stride_a == inner.extent * inner.stride_a &&
         outer.stride_b == inner.extent * inner.stride_b &&
         outer.stride_c == inner.extent * inner.stride_c;
}

std::vector<tenon_mode> FuseGroup(std::vector<tenon_mode> modes) {
  for (const tenon_mode& mode : modes) {
    if (mode.extent == 0) return {tenon_mode{}};
  }
  std::stable_sort(modes.begin(), modes.end(), ComesFirst);
  std::vector<tenon_mode> fused;
  for (const tenon_mode& inner : modes) {
    if (!fused.empty() && IsOneLoop(fused.back(), inner)) {
      const int64_t outer_extent = fused.back().extent;
      fused.back() = inner;
      fused.back().extent *= outer_extent;
    } else {
      fused.push_back(inner);
    }
  }
  return fused;
}

ModeGroup GroupOf(bool in_a, bool in_b, bool in_c) {
  if (!in_c) return kK;
  if (in_a && in_b) return kBatch;
  return in_a ? kM : kN;
}

}  // namespace

int64_t StridedAxes::StrideOf(int index) const {
  const auto position = std::find(indices.begin(), indices.end(), index);
  return position == indices.end() ? -1 : strides[position - indices.begin()];
}

ModeGroups MakeModes(const StridedAxes& a, const StridedAxes* b, const StridedAxes& c,
                     const std::vector<int64_t>& sizes) {
  std::vector<int> joint = a.indices;
  if (b != nullptr) {
    std::copy_if(b->indices.begin(), b->indices.end(), std::back_inserter(joint),
                 [&](int index) { return a.StrideOf(index) < 0; });
  }
  ModeGroups groups;
  for (const int index : joint) {
    const int64_t in_a = a.StrideOf(index);
    const int64_t in_b = b == nullptr ? -1 : b->StrideOf(index);
    const int64_t in_c = c.StrideOf(index);
    groups[GroupOf(in_a >= 0, in_b >= 0, in_c >= 0)].push_back(
        tenon_mode{sizes[index], std::max<int64_t>(in_a, 0), std::max<int64_t>(in_b, 0),
                   std::max<int64_t>(in_c, 0)});
  }
  for (auto& group : groups) group = FuseGroup(std::move(group));
  return groups;
}

double Iterations(const ModeGroups& groups) {
  double iterations = 1;
  for (const auto& group : groups) {
    for (const tenon_mode& mode : group) iterations *= static_cast<double>(mode.extent);
  }
  return iterations;
}

}  // namespace tenon::contraction
