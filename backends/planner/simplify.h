// Makes a tensor network smaller before its contraction tree is searched.
//
// One rule: a pair is joined at once if the result has no more elements than the larger of both and
// if that cannot cost much. Scalars, vectors, matrices on a bond, tensors with the same indices or
// with a subset of another's are all cases of it. Sizes count, not ranks; an index on three or more
// tensors (or in the output) stays until its last holder has come.
//
// Why this is safe. Take any tree T over the network, and move leaf a beside leaf b, where the
// result c of both has |c| <= |b|. Then
//   - no tensor of the tree gets larger, nor the joint space of any other step: where b is, a's own
//     indices come instead of those that end with the pair, and where a was, the reverse. So the
//     least possible size of the largest tensor, operands counted, never rises;
//   - the step that joined a in T, of at least |a| multiply-adds, is gone; the first step of b, of
//     at least |b|, shrinks by |c|/|b|; and there is a new step of |a and b joint|. Altogether the
//     multiply-adds rise by at most harm(a, b) = |a and b joint| - |a| - |b| + |c|.
// A pair is joined if its harm is at most a small share of what every tree costs (each step holds
// at most two operands, so that is half of all operands' elements, and at least the output's).
// Tensors with the same indices have no harm at all. In networks of some dozens of tensors or more
// of similar size everything that does not grow is joined; in small ones, and beside one large
// operand, only what is (nearly) free: there the search finds the best place itself.

#ifndef TENON_BACKENDS_PLANNER_SIMPLIFY_H_
#define TENON_BACKENDS_PLANNER_SIMPLIFY_H_

#include <limits>
#include <vector>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/planner/objective.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

struct SimplifyOptions {
  // Scalars are multiplied together and into the smallest tensor, or stay a part of their own if a
  // part's result is no larger than that.
  bool scalars = true;
  bool subsets = true;    // pairs of which one's indices are all on the other
  bool exchanges = true;  // other pairs that do not grow: new indices for those that end
  // Most harm of one pair, as a share of the least cost of every tree, >= 0; infinity: any.
  double allowance = 0.125;
  // Results of more elements are never made: a target below the size of operands. (Within it no
  // pair makes slicing harder.)
  double largest_elements = std::numeric_limits<double>::infinity();
};

// A connected part of the reduced network, for a SearchNetwork with the expression's sizes.
struct NetworkPart {
  std::vector<std::vector<int>> tensors;  // distinct indices of the expression, ascending
  std::vector<int> ids;                   // SSA ids of `tensors`
  std::vector<int> output;                // the output's indices that stand on it
};

// Indices of size 0 or 1 and private ones are nowhere in it: they decide no size. So what hangs
// together by indices of size 1 alone is not connected.
struct SimplifiedNetwork {
  int operands = 0;
  Pairs prefix;                    // SSA over the operands
  std::vector<NetworkPart> parts;  // at least one, by the least id
};

// Joins pairs, the least harm first, until no rule applies; then splits what is left.
// Deterministic, n log n for n indices on tensors. Of an index on more than 32 tensors, only the
// smallest 32 (and tensors with equal indices) are looked at.
SimplifiedNetwork Simplify(const contraction::Expression& expression,
                           const SimplifyOptions& options = {});

// The path over the operands: the prefix, the trees of the parts (trees[i] is a complete tree over
// parts[i].tensors, so empty for one tensor), and the outer products of their results.
//
// Smallest first is not optimal for these: 2, 2, 3, 3 cost less as 2*3, 2*3 than as 2*2, 3*3. So up
// to 12 results are joined by the best of all trees; of more, the smallest first until 12 are left.
contraction::Path Stitch(const contraction::Expression& expression,
                         const SimplifiedNetwork& simplified, const std::vector<Pairs>& trees,
                         const StepPrice& price);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_SIMPLIFY_H_
