// Contractions whose terms lie side by side in both operands and whose result is small: dot
// products, matrix-vector products along the rows.

#ifndef TENON_BACKENDS_CPU_DOT_H_
#define TENON_BACKENDS_CPU_DOT_H_

#include "backends/cpu/kernel.h"

namespace tenon::cpu {

// Takes steps whose sum has a long contiguous innermost loop in both operands. Operands are read in
// place; each result is formed by one thread.
Preparation PrepareDot(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_DOT_H_
