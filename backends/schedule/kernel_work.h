// What the kernels of a compiled program are used for, and did.

#ifndef TENON_BACKENDS_SCHEDULE_KERNEL_WORK_H_
#define TENON_BACKENDS_SCHEDULE_KERNEL_WORK_H_

#include <vector>

#include "backends/contraction/program.h"
#include "backends/plugin/provider.h"
#include "backends/schedule/contraction_job.h"

namespace tenon::schedule {

// Real operations of one run: 2 per multiply-add (complex: 8), 1 per element that is summed
// (complex: 2).
double StepFlops(const tenon_step& step, DType dtype);

// The kernels of a compiled program, by name, most used first.
std::vector<ContractionReport::Kernel> KernelsOf(const plugin::Compiled& compiled,
                                                 const contraction::Program& program);

// Adds what the steps did to the figures of their kernels, which KernelsOf gave.
void AddWork(const tenon_run_statistics& statistics, const plugin::Compiled& compiled,
             const contraction::Program& program, std::vector<ContractionReport::Kernel>& kernels);

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_KERNEL_WORK_H_
