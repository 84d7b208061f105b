// Giving up reuse between slices where memory is short.

#ifndef TENON_BACKENDS_CONTRACTION_REUSE_H_
#define TENON_BACKENDS_CONTRACTION_REUSE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::contraction {

// A step as a node of the tree of steps; steps stand before the step that reads their result.
struct ReuseStep {
  int reader = -1;   // -1: the last step
  int rank = 0;      // how often it runs; never above its reader's. Where it is below, the result
                     // is kept until the next run
  double flops = 0;  // of one run
  int64_t elements = 0;  // of its result
};

// Gives up kept results, of at least `elements` elements in all, or of all that there are: each
// time the one that frees most per flop that is done again; ties go to the earlier step. The step
// of such a result, and the steps that only served it, then run as often as its reader. `runs` are
// the runs of steps by rank, ascending. Returns how many results were given up; 0 when none was
// kept.
int ReduceReuse(std::span<const double> runs, int64_t elements, std::vector<ReuseStep>& steps);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_REUSE_H_
