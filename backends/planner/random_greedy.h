// Greedy trees with random preferences.

#ifndef TENON_BACKENDS_PLANNER_RANDOM_GREEDY_H_
#define TENON_BACKENDS_PLANNER_RANDOM_GREEDY_H_

#include "backends/planner/random.h"
#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

// Joins the pair of tensors that share a leg with the least
//   sign(x) log|x| - temperature * g,   x = |C| - weight * (|A| + |B|),
// with g from the standard Gumbel distribution, so that pairs are drawn by Boltzmann weights; then
// what is left, smallest first. (Gray and Kourtis, Quantum 5, 410, 2021.)
struct GreedyChoice {
  double weight = 1;
  double temperature = 0;
};
// When `stop` says so, all that is left is joined smallest first.
Pairs RandomGreedy(const SearchNetwork& network, const GreedyChoice& choice, Random& random,
                   const Stop& stop = Stop());

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_RANDOM_GREEDY_H_
