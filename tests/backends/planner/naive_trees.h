// The best of all contraction trees of a small network, by sets and definitions.

#ifndef TENON_TESTS_BACKENDS_PLANNER_NAIVE_TREES_H_
#define TENON_TESTS_BACKENDS_PLANNER_NAIVE_TREES_H_

#include <cstdint>
#include <set>
#include <vector>

#include "backends/contraction/expression.h"

namespace tenon::testing {

using Legs = std::set<int>;

struct NaiveNetwork {
  std::vector<Legs> tensors;
  Legs output;
  std::vector<int64_t> sizes;
};

// Without private indices and repeats.
NaiveNetwork NaiveOf(const contraction::Expression& expression);

double NaiveSize(const NaiveNetwork& network, const Legs& legs);

// What is left of two tensors when they are joined: what others or the output hold.
Legs NaiveResult(const NaiveNetwork& network, int a, int b);

// The same network after the pair: its result stands at the end.
NaiveNetwork NaiveJoin(const NaiveNetwork& network, int a, int b);

// The least total of multiply-adds, and the least size of the largest tensor (operands counted),
// over all trees; each by its own tree.
struct NaiveBest {
  double flops, largest;
};
NaiveBest BestTree(const NaiveNetwork& network);

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_PLANNER_NAIVE_TREES_H_
