// Contractions of a large tensor with a small one, or with a small one for each iteration of a
// batch, over indices that lie inside a vector, in one pass over memory: gates on the low qubits of
// a state, products of tiny matrices.

#ifndef TENON_BACKENDS_CPU_GATE_H_
#define TENON_BACKENDS_CPU_GATE_H_

#include "backends/cpu/kernel.h"

namespace tenon::cpu {

// Takes contractions whose result has the contracted low bits of the large operand's
// layout replaced, bit by bit, by indices of the small one.
Preparation PrepareGate(const StepView& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_GATE_H_
