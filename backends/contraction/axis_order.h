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
  int64_t vector_elements = 8;                   // of a cache line
};

// An order, outermost first, for each of the 2N-1 tensors; operands that are not formed keep their
// natural one, the last tensor has the output's.
//
// Orders are chosen from the result down, so that the step that reads a tensor can run vectors
// along it where they lie, and leave them where they belong in its result. With C's order known,
// the operand that keeps C's innermost indices (else the larger one) is [batch, kept, contracted, a
// vector's worth of kept]; where all of C's innermost indices are batch indices, both operands end
// with them; where nothing but the sum is long, both end with the contracted ones. What is free to
// choose goes to indices that the larger operand of the step before brings in, so that this step's
// vectors are that step's too.
std::vector<std::vector<int>> ChooseAxisOrders(const AxisOrderProblem& problem);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_AXIS_ORDER_H_
