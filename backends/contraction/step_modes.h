// The loops of one step, from the axes of its tensors.

#ifndef TENON_BACKENDS_CONTRACTION_STEP_MODES_H_
#define TENON_BACKENDS_CONTRACTION_STEP_MODES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "backends/plugin/abi.h"

namespace tenon::contraction {

// The loops of a tensor: distinct indices and their strides in elements, outermost first.
struct StridedAxes {
  std::vector<int> indices;
  std::vector<int64_t> strides;

  // -1 when the tensor lacks the index.
  int64_t StrideOf(int index) const;
};

enum ModeGroup { kBatch = 0, kM = 1, kN = 2, kK = 3 };

using ModeGroups = std::array<std::vector<tenon_mode>, 4>;  // by ModeGroup

// The loops of C = A * B (or of a reduction of A alone, where `b` is null), in groups, sorted and
// fused as tenon_step demands. A group with a loop of extent 0 is that loop alone. `sizes` are the
// extents per index; products of extents must fit in int64 in each tensor.
ModeGroups MakeModes(const StridedAxes& a, const StridedAxes* b, const StridedAxes& c,
                     const std::vector<int64_t>& sizes);

// Loop iterations of a step.
double Iterations(const ModeGroups& groups);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_STEP_MODES_H_
