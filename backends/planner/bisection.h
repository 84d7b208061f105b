// Trees by recursive bisection of the network.

#ifndef TENON_BACKENDS_PLANNER_BISECTION_H_
#define TENON_BACKENDS_PLANNER_BISECTION_H_

#include "backends/planner/random.h"
#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

struct BisectionChoice {
  // A side has at most (1 + imbalance) / 2 of the tensors; 0 .. 0.9.
  double imbalance = 0.2;
  // How much a leg that leads out of the set that is cut draws its tensors to one side, as a part
  // of what a cut leg counts; 0 .. 1. 0 makes the steps cheap that join the two sides, 1 makes one
  // of the sides small.
  double outside_pull = 0;
  // Every set is cut so many times, at this imbalance and pull and at smaller ones, and the cut
  // that promises the cheapest tree is kept; time grows with it.
  int cuts = 2;
  // Sets of so many tensors or fewer get their best tree; 2 .. 12, work grows as 3^cutoff.
  int cutoff = 8;
  StepPrice price;  // of the trees below the cutoff
};

// A choice at random, for a trial; the price is `price`.
BisectionChoice RandomBisectionChoice(const StepPrice& price, Random& random);

// The root joins the two sides of a cut through few legs (by the logarithms of their sizes), and so
// on in each side. Cuts are found by hypergraph bisection in several levels: tensors that share
// heavy legs are merged, the coarse hypergraph is cut by growing a side from a seed, and the cut is
// refined by moves while it is made finer again (Karypis, Kumar et al., "Multilevel hypergraph
// partitioning", DAC 1997; Fiduccia and Mattheyses, DAC 1982; for contraction trees Gray and
// Kourtis, Quantum 5, 410, 2021). A leg on several tensors is one hyperedge. Once `stop` says so
// the rest of the tree is made without care.
Pairs Bisect(const SearchNetwork& network, const BisectionChoice& choice, Random& random,
             const Stop& stop);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_BISECTION_H_
