// A validated tensor-network expression over dense index ids.

#ifndef TENON_BACKENDS_CONTRACTION_EXPRESSION_H_
#define TENON_BACKENDS_CONTRACTION_EXPRESSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/network.h"

namespace tenon::contraction {

// Indices are numbered 0.. in order of first appearance in the inputs. Immutable once made.
struct Expression {
  std::vector<std::vector<int>> inputs;  // may hold an index several times (traces, diagonals)
  std::vector<int> output;               // no repeats, each held by an input
  std::vector<int64_t> sizes;            // per index, >= 0
  std::vector<std::string> names;        // per index
};

// Checks and renumbers `network`. `shapes` are the operands' shapes, one per input, and are the
// truth about sizes; `network.sizes`, where given for an index, must agree.
//
// Errors (fields relative to the network message): BAD_EXPRESSION no inputs, wrong operand count or
// an empty name; SHAPE_MISMATCH rank or size disagreement (names the operand, the index and both
// sizes: an axis of size 1 is not broadcast); UNKNOWN_INDEX an output index on no operand, a sized
// index on no operand; DUPLICATE_OUTPUT; OVERFLOW an operand or the output whose elements do not
// fit in 63 bits. The joint index space may be of any size.
absl::StatusOr<Expression> MakeExpression(const Network& network,
                                          const std::vector<std::vector<int64_t>>& shapes);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_EXPRESSION_H_
