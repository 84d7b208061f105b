// The choice of legs to slice for a given tree.

#ifndef TENON_BACKENDS_PLANNER_SLICER_H_
#define TENON_BACKENDS_PLANNER_SLICER_H_

#include <vector>

#include "backends/planner/random.h"
#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

struct SlicerOptions {
  double largest_elements = 0;  // no result of a slice may have more
  bool allow_output = false;    // legs of the output too
  double temperature = 0;       // of the logarithm of the cost: how random the choice is
  Stop stop = Stop();           // gives up
};

// Adds legs to `sliced`, one after the other, until all results are small enough: each time, of the
// legs of the results that are too large, the one that makes all slices together cost least for
// what it takes off the largest results. `tree` is the unsliced tree. False: it cannot be done, or
// a result is beyond the range of a double, so that nobody could count the slices.
bool ChooseSlices(const StepPrice& price, const SlicerOptions& options, const Tree& tree,
                  Random& random, std::vector<int>& sliced);

// The same whatever it costs, quickly and for results of any size: each time the leg that most of
// the results have which are too large.
bool SlicePlainly(const SlicerOptions& options, const Tree& tree, std::vector<int>& sliced);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_SLICER_H_
