// Steps as nested loops: the oracle, and the implementation that takes every step.

#ifndef TENON_BACKENDS_CPU_INTERPRETER_H_
#define TENON_BACKENDS_CPU_INTERPRETER_H_

#include "backends/cpu/kernel.h"

namespace tenon::cpu {

// Accepts everything. Sums over k in the order of the loops, in the step's dtype or, with
// accumulate_double, in double. One thread.
Preparation PrepareInterpreter(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_INTERPRETER_H_
