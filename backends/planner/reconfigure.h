// Optimal replacement of parts of a tree.

#ifndef TENON_BACKENDS_PLANNER_RECONFIGURE_H_
#define TENON_BACKENDS_PLANNER_RECONFIGURE_H_

#include "backends/planner/random.h"
#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

struct ReconfigureOptions {
  int leaves = 8;   // of a part, 3 .. 16: work grows as 3^leaves
  int sweeps = 20;  // over all nodes, at most
  // Chooses which subtrees a part is made of: 0 takes the largest tensors apart first, larger
  // values do so more at random.
  double randomness = 0;
};

// Visits nodes by decreasing cost of their step; each is the root of a part of the tree with so
// many leaves, which is replaced by the best tree over these if that costs less (all trees are
// considered, outer products too). Until nothing changes. The cost never rises.
void Reconfigure(const StepPrice& price, const ReconfigureOptions& options, Random& random,
                 const Stop& stop, Tree& tree);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_RECONFIGURE_H_
