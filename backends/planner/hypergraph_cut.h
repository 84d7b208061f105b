// Multilevel bisection of a hypergraph.

#ifndef TENON_BACKENDS_PLANNER_HYPERGRAPH_CUT_H_
#define TENON_BACKENDS_PLANNER_HYPERGRAPH_CUT_H_

#include <vector>

#include "backends/planner/random.h"

namespace tenon::planner {

// Vertices and nets are numbered from 0. The pins of net e are pins[net_begin[e]] ..
// pins[net_begin[e + 1] - 1], ascending and distinct, two or more.
struct Hypergraph {
  std::vector<int> weight;   // per vertex, >= 1
  std::vector<double> pull;  // per vertex, >= 0: what it costs on side 0
  std::vector<int> net_begin = {0};
  std::vector<int> pins;
  std::vector<double> net_weight;  // > 0: what a net costs that has pins on both sides

  int vertices() const { return static_cast<int>(weight.size()); }
  int nets() const { return static_cast<int>(net_weight.size()); }
};

// The side, 0 or 1, of every vertex of a cut of small cost where each side has at most
// (1 + imbalance) / 2 of the weight, or as little more as the vertices allow. Both sides have
// vertices; there are two at least.
std::vector<int> CutInTwo(const Hypergraph& graph, double imbalance, Random& random);

// The connected component of every vertex, numbered from 0 by the first vertex.
std::vector<int> ComponentsOf(const Hypergraph& graph);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_HYPERGRAPH_CUT_H_
