// The last improvement of a plan, over the operands as given.

#ifndef TENON_BACKENDS_PLANNER_POLISH_H_
#define TENON_BACKENDS_PLANNER_POLISH_H_

#include <cstdint>

#include "backends/contraction/expression.h"
#include "backends/planner/objective.h"
#include "backends/planner/search.h"
#include "backends/planner/stop.h"

namespace tenon::planner {

// Simplification takes steps that the best tree may lack. Orders the leaves of the plan's tree
// optimally and reconfigures it, for up to 2000 operands; slices stay as they are. Never returns a
// costlier plan by this price; the plan itself if it finds none or `stop` comes first.
Plan Polish(const contraction::Expression& expression, const Plan& plan, const StepPrice& price,
            uint64_t seed, const Stop& stop);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_POLISH_H_
