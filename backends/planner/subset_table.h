// The best tree over a few tensors, by dynamic programming over all subsets.

#ifndef TENON_BACKENDS_PLANNER_SUBSET_TABLE_H_
#define TENON_BACKENDS_PLANNER_SUBSET_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "backends/planner/objective.h"
#include "backends/planner/search_network.h"
#include "backends/planner/stop.h"

namespace tenon::planner {

// Reusable memory; not thread-safe.
class SubsetTable {
 public:
  static constexpr int kMostTensors = 20;

  explicit SubsetTable(const SearchNetwork& network) : network_(network) {}

  // The least cost of a tree over `tensors` (1 .. kMostTensors sets of legs) whose result has the
  // legs `result`. Trees that cost `below` or more are not wanted: infinity if there are
  // no others, or if `stop` said so. Time grows as 3^n: 50 ms for 16 tensors, seconds for 20.
  // `levels` are those of the tensors (none: all 0).
  double Solve(const std::vector<const Word*>& tensors, const Word* result, const StepPrice& price,
               double below, const Stop& stop = Stop(), const std::vector<int>& levels = {});

  // The pairs of the last Solve, in SSA form over its tensors: the best if it beat `below`, else
  // some.
  std::vector<std::pair<int, int>> Pairs() const;

 private:
  struct Group {
    int first_word, last_word;
    const double* powers;
  };
  struct Entry {
    double cost, size, root;  // root: the square root of the size
    uint32_t split;           // one side of the best pair
    int level;
  };

  void Compress(const std::vector<const Word*>& tensors, const Word* result);
  void FillSizes(int n, const std::vector<int>& levels);
  template <bool kGraph>
  void FillSubset(uint32_t subset, const StepPrice& price, double below);
  double SizeOfUnion(const Word* a, const Word* b) const;
  int Emit(uint32_t subset, std::vector<std::pair<int, int>>& pairs) const;

  const SearchNetwork& network_;
  int n_ = 0, words_ = 0;
  std::vector<Group> groups_;
  std::vector<int> local_of_leg_;
  std::vector<Word> union_, legs_, leaf_, result_;
  std::vector<Entry> entries_;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_SUBSET_TABLE_H_
