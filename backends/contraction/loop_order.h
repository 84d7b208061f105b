// The order in which the loops over summed sliced indices are nested.

#ifndef TENON_BACKENDS_CONTRACTION_LOOP_ORDER_H_
#define TENON_BACKENDS_CONTRACTION_LOOP_ORDER_H_

#include <cstdint>
#include <vector>

#include "backends/contraction/path.h"

namespace tenon::contraction {

// Flops of all steps that depend on the same summed loops.
struct LoopWork {
  uint64_t loops = 0;  // bit i: loop i
  double flops = 0;    // of one run of those steps
};

// Flops of one block, prologue excluded, when the loops are nested as `order` says (positions in
// `extents`, outermost first): work is redone when one of its loops has moved on, and in the first
// slice of each group, with the groups that DivideSlices makes of this order.
double LoopFlops(const std::vector<int64_t>& extents, int64_t block_elements,
                 const std::vector<LoopWork>& work, const std::vector<int>& order);

// The order of at most 64 loops, with extents >= 2, that needs the fewest flops: exact up to 10
// loops; beyond, a greedy order whose runs of 10 loops are ordered exactly until none gains. Ties
// go to the smaller position first. Depends on its arguments alone; takes up to a few milliseconds.
std::vector<int> BestLoopOrder(const std::vector<int64_t>& extents, int64_t block_elements,
                               const std::vector<LoopWork>& work);

// The greedy order alone, for any number of loops up to 64: quick.
std::vector<int> GreedyLoopOrder(const std::vector<int64_t>& extents, int64_t block_elements,
                                 const std::vector<LoopWork>& work);

// `summed`, sorted so that walking the slices redoes the least work: indices of one value first,
// then the loops in their best order. The order in which they were given does not matter.
// `block_elements` are those of one partial sum; `sliced` are all sliced indices, those of the
// output included.
std::vector<int> OrderSummedLoops(const Expression& expression, const Path& path,
                                  const std::vector<int>& sliced, std::vector<int> summed,
                                  int64_t block_elements);

// How often each pair of a path runs over all slices when reuse is limited by no memory: a pair
// that depends on no sliced index once, the last one in every slice. Where there are more than 2^62
// slices or 64 summed loops, all that depend on one run in every slice.
std::vector<double> PairRuns(const Expression& expression, const Path& path,
                             const std::vector<int>& sliced);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_LOOP_ORDER_H_
