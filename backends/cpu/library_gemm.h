// Large matrix products in place, by the system's BLAS library.

#ifndef TENON_BACKENDS_CPU_LIBRARY_GEMM_H_
#define TENON_BACKENDS_CPU_LIBRARY_GEMM_H_

#include "backends/cpu/kernel.h"

namespace tenon::cpu {

// Takes steps whose three tensors are matrices in place. The library packs for itself, which pays
// from a few hundred rows, columns and terms on. Terms are summed in one thread; tiles depend on
// the step alone.
Preparation PrepareGemm(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_LIBRARY_GEMM_H_
