// The order of axes of the tensors that lowering forms.

#ifndef TENON_BACKENDS_CONTRACTION_AXIS_ORDER_H_
#define TENON_BACKENDS_CONTRACTION_AXIS_ORDER_H_

#include <cstdint>
#include <vector>

#include "backends/contraction/path.h"

namespace tenon::contraction {

// What the choice looks at. Index lists hold only indices that are loops of steps: none that are
// sliced and none of extent 1. Lives no longer than the call.
struct AxisOrderProblem {
  const Path& path;
  const std::vector<int64_t>& sizes;             // per index
  const std::vector<std::vector<int>>& indices;  // per tensor of the path, ascending, as pairs
                                                 // see it
  const std::vector<std::vector<int>>& natural;  // per operand, outermost first, as pairs see it
  const std::vector<bool>& formed;               // per operand: a unary step forms it anew
  const std::vector<int>& result;                // the output's order
};

// An order, outermost first, for each of the 2N-1 tensors; operands that are not formed keep their
// natural one, the last tensor has the output's.
//
// Orders are chosen from the result down, so that the step that reads a tensor needs no move: with
// C's order known, a left operand is [batch, kept, contracted] and a right one [batch, contracted,
// kept], batch and kept indices in C's order. The order of contracted indices is that of the
// operand which can't change; where both can, indices that the same tensor brings into the larger
// operand stand together.
std::vector<std::vector<int>> ChooseAxisOrders(const AxisOrderProblem& problem);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_AXIS_ORDER_H_
