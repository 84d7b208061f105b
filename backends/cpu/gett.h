// Contractions by the register-blocked product, tile by tile.
//
// The result is cut into a grid of tiles that depends on the step's loops alone. Operands whose
// vectors lie side by side are read in place, others are packed into scratch that stays in cache;
// so for the result. Terms are summed in one thread, in order, so the bits do not depend on the
// number of threads.

#ifndef TENON_BACKENDS_CPU_GETT_H_
#define TENON_BACKENDS_CPU_GETT_H_

#include "backends/cpu/kernel.h"

namespace tenon::cpu {

// Takes every step with work that sums in its own dtype.
Preparation PrepareGett(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_GETT_H_
