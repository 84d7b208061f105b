// Steps computed straight on the strided tensors, a block of results at a time.

#ifndef TENON_BACKENDS_CPU_NEST_KERNELS_H_
#define TENON_BACKENDS_CPU_NEST_KERNELS_H_

#include "backends/cpu/kernel.h"

namespace tenon::cpu {

// Steps without work: an empty result, or an empty sum (zeros).
Preparation PrepareEmpty(const StepView& step);

// Products without a sum: elementwise and outer products.
Preparation PrepareElementwise(const StepView& step);

// Contractions that are not worth a library call: little work in all or per batch element, or
// narrow products whose batch is contiguous.
Preparation PrepareSmall(const StepView& step);

// Contractions summed in double, as accumulate_double asks, whatever their shape.
Preparation PrepareDouble(const StepView& step);

// Sums over axes of one tensor: reductions, traces.
Preparation PrepareReduce(const StepView& step);

// Copies of one tensor: permutations, diagonals.
Preparation PrepareCopy(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_NEST_KERNELS_H_
