// Random rotations of a tree, accepted by a temperature.
//
// A rotation at a node with children (x y) and z makes it (x z) and y, or (y z) and x. Its energy
// is the logarithm of the cost of the two steps that change (as in TreeSA: Kalachev, Panteleev,
// Yung, arXiv 2108.05665), so that small subtrees settle as well as large ones.

#ifndef TENON_BACKENDS_PLANNER_ANNEALING_H_
#define TENON_BACKENDS_PLANNER_ANNEALING_H_

#include <cstdint>

#include "backends/planner/random.h"
#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

struct AnnealingSchedule {
  double start_temperature = 1;  // of the natural logarithm of the local cost
  double end_temperature = 0.05;
  int64_t sweeps = 100;   // of as many proposals as the tree has pairs
  bool keep_best = true;  // leave the best tree that was met, not the last one
};

// Anneals the tree. Stops early when `stop` says so.
void Anneal(const StepPrice& price, const AnnealingSchedule& schedule, Random& random,
            const Stop& stop, Tree& tree);

struct TemperingSchedule {
  double hottest = 1;  // as start_temperature
  double coldest = 0.05;
  int replicas = 6;     // >= 2: one tree per temperature, in geometric steps
  int64_t rounds = 20;  // exchanges between neighbours
  int64_t sweeps = 10;  // of every replica in a round
};

// Parallel tempering (Swendsen and Wang 1986): trees of neighbouring temperatures are exchanged by
// the logarithm of their costs. Leaves the best tree that was met.
void Temper(const StepPrice& price, const TemperingSchedule& schedule, Random& random,
            const Stop& stop, Tree& tree);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_ANNEALING_H_
