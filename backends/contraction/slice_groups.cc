#include "backends/contraction/slice_groups.h"

#include <algorithm>

namespace tenon::contraction {
namespace {

constexpr int64_t kMaxGroups = 256;
constexpr int64_t kMinGroupsAligned = 64;
constexpr int64_t kPartialElements = int64_t{1} << 22;

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Slices of the innermost loops that a group of `group_slices` can best be a multiple of: the
// longest turn not above it, or else the shortest one.
int64_t TurnSlices(int64_t group_slices, std::span<const int64_t> summed_extents) {
  int64_t turn = 1;
  for (size_t loop = summed_extents.size(); loop-- > 0;) {
    const int64_t longer = turn * summed_extents[loop];
    if (longer > group_slices) return turn > 1 ? turn : longer;
    turn = longer;
  }
  return turn;
}

}  // namespace

SliceGroups DivideSlices(int64_t slices, int64_t block_elements,
                         std::span<const int64_t> summed_extents) {
  const int64_t by_memory =
      std::max<int64_t>(1, kPartialElements / std::max<int64_t>(1, block_elements));
  const int64_t wanted = std::min({slices, kMaxGroups, by_memory});
  SliceGroups result;
  result.group_slices = CeilDivide(slices, wanted);
  result.groups = CeilDivide(slices, result.group_slices);

  const int64_t turn = TurnSlices(result.group_slices, summed_extents);
  const int64_t aligned = CeilDivide(result.group_slices, turn) * turn;
  const int64_t groups = CeilDivide(slices, aligned);
  if (groups >= kMinGroupsAligned || groups == result.groups) {
    result.group_slices = aligned;
    result.groups = groups;
  }
  return result;
}

double ExecutionsPerBlock(const SliceGroups& groups, int64_t slices, int64_t run_slices) {
  // Whole runs in every group, or every group within one run.
  if (groups.group_slices % run_slices == 0) {
    return static_cast<double>(CeilDivide(slices, run_slices));
  }
  if (run_slices % groups.group_slices == 0) return static_cast<double>(groups.groups);
  double executions = 0;
  for (int64_t group = 0; group < groups.groups; ++group) {
    const int64_t first = group * groups.group_slices;
    const int64_t last = std::min(first + groups.group_slices, slices) - 1;
    executions += static_cast<double>(last / run_slices - first / run_slices + 1);
  }
  return executions;
}

std::vector<double> RunsByLevel(int output_loops, int64_t blocks,
                                std::span<const int64_t> summed_extents,
                                const SliceGroups& groups) {
  const size_t loops = output_loops + summed_extents.size();
  int64_t slices = 1;
  for (const int64_t extent : summed_extents) slices *= extent;
  std::vector<double> runs(loops + 1);
  int64_t run_slices = 1;  // consecutive slices for which one execution serves
  for (size_t level = loops + 1; level-- > 0;) {
    runs[level] = static_cast<double>(blocks) * ExecutionsPerBlock(groups, slices, run_slices);
    if (level > static_cast<size_t>(output_loops)) {
      run_slices *= summed_extents[level - output_loops - 1];
    }
  }
  return runs;
}

}  // namespace tenon::contraction
