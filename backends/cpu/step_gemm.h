// Contractions as matrix products, tile by tile.
//
// The result is cut into a grid of tiles that depends on the step's loops alone. A tile whose
// operands lie as matrices is multiplied in place; otherwise they are packed first, and the product
// is put back, in scratch that stays in cache. Terms are summed in one thread, in order, so the
// bits do not depend on the number of threads.

#ifndef TENON_BACKENDS_CPU_STEP_GEMM_H_
#define TENON_BACKENDS_CPU_STEP_GEMM_H_

#include "backends/cpu/kernel.h"

namespace tenon::cpu {

// Takes steps whose three tensors are matrices in place.
Preparation PrepareGemm(const StepView& step);

// Takes every step that sums in its own dtype.
Preparation PreparePackedGemm(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_STEP_GEMM_H_
