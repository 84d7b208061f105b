// Random walks over neighbours, which visit what looks like a cluster of a space.

#ifndef TENON_BACKENDS_MEASUREMENT_CLUSTER_WALK_H_
#define TENON_BACKENDS_MEASUREMENT_CLUSTER_WALK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/counter_random.h"
#include "backends/measurement/numpy_random_state.h"
#include "backends/measurement/python_set.h"
#include "backends/measurement/shared_neighbors.h"

namespace tenon::measurement {

// A set of rows that iterates in ascending order. Keeps its n bits between uses.
class RowSet {
 public:
  explicit RowSet(int64_t n) : seen_(n) {}
  void Insert(int32_t row) {
    if (seen_[row]) return;
    seen_[row] = true;
    rows_.push_back(row);
  }
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  std::vector<int32_t> Values() const {
    std::vector<int32_t> sorted = rows_;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }
  void Clear() {
    for (const int32_t row : rows_) seen_[row] = false;
    rows_.clear();
  }

 private:
  std::vector<bool> seen_;
  std::vector<int32_t> rows_;
};

// Walks from a row drawn at random until one reaches a second row, and returns the rows that it
// reached; the order is ascending with CounterRandom and that of a PythonSet with NumpyRandomState.
// A walk visits rows first come, first served: each neighbour of a visited row is drawn with its
// similarity as the probability, and every drawn one is visited in its turn, again if it was
// before. The walk ends before the row that follows `visits` drawn ones. Rows without a similar
// neighbour are not started from, others up to 1000 times in a row. The result is empty if
// max(100, 10 n) starts were in vain. CLIENT_CANCELLED.
absl::StatusOr<std::vector<int32_t>> WalkCluster(const SharedNeighbors& space, int64_t visits,
                                                 const Parallel& parallel, CounterRandom& random,
                                                 RowSet& members);
absl::StatusOr<std::vector<int32_t>> WalkCluster(const SharedNeighbors& space, int64_t visits,
                                                 const Parallel& parallel,
                                                 NumpyRandomState& random);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_CLUSTER_WALK_H_
