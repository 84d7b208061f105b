// The rule that divides the slices of a block into groups.

#ifndef TENON_BACKENDS_CONTRACTION_SLICE_GROUPS_H_
#define TENON_BACKENDS_CONTRACTION_SLICE_GROUPS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::contraction {

inline constexpr int64_t kMaxSlices = int64_t{1} << 62;

struct SliceGroups {
  int64_t groups = 1;        // per block
  int64_t group_slices = 1;  // of every group but perhaps the last; never 0
};

// Divides `slices` (>= 1, at most kMaxSlices) slices, each with a partial sum of `block_elements`
// elements, into contiguous groups. `summed_extents` are the extents of the summed loops, outermost
// first; their product is `slices`.
//
// At most 256 groups, and few enough that all partial sums together have at most 2^22 elements.
// Then a group is rounded up to whole turns of the innermost loops, so that kept tensors serve
// longer, as long as 64 groups (or as many as there were) remain. Looks at nothing else: sums are
// formed alike on every machine.
SliceGroups DivideSlices(int64_t slices, int64_t block_elements,
                         std::span<const int64_t> summed_extents);

// How often a step runs in one block that has to run again whenever the slice number enters another
// run of `run_slices` consecutive slices, and at the start of every group.
double ExecutionsPerBlock(const SliceGroups& groups, int64_t slices, int64_t run_slices);

// Runs in all blocks of a step by its level (1 + the innermost loop that it depends on, output
// loops first; at level 0: of one that runs once per group).
std::vector<double> RunsByLevel(int output_loops, int64_t blocks,
                                std::span<const int64_t> summed_extents, const SliceGroups& groups);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_SLICE_GROUPS_H_
