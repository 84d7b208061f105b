// Shared-neighbour similarities of one space, row by row instead of as an n x n matrix.
//
// Row i has the weight k + 1 - r for its neighbour number r = 0..k-1 (k + 1 for the nearest, 2 for
// the last) and 0 for every other row. The similarity of two different rows is the scalar product
// of their weights, W_ij; divided by the largest one of the space it lies in [0, 1]. The
// dissimilarity is 1 / (similarity + alpha) (Jeon et al.: Measuring and explaining the
// inter-cluster reliability of multidimensional projections, IEEE TVCG 28, 2022). Products are
// integers and held as doubles, exact below 2^53.

#ifndef TENON_BACKENDS_MEASUREMENT_SHARED_NEIGHBORS_H_
#define TENON_BACKENDS_MEASUREMENT_SHARED_NEIGHBORS_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/metric_input.h"

namespace tenon::measurement {

// The neighbours of n rows. The table is not owned.
struct NeighborLists {
  IndexTable table = {};
  int64_t n = 0, k = 0;
  double Weight(int64_t r) const { return static_cast<double>(k + 1 - r); }
};

// Which groups have row x among their neighbours, with which weight. Not thread-safe while it
// grows.
class GroupsOfNeighbors {
 public:
  // Empty, with room for the neighbours of `rows`.
  void Reset(const NeighborLists& lists, std::span<const int32_t> rows);
  // With one group for every one of `rows`, numbered by position.
  void ResetToRows(const NeighborLists& lists, std::span<const int32_t> rows);
  void Append(int64_t x, int32_t group, double weight) {
    groups_[ends_[x]] = group;
    weights_[ends_[x]++] = weight;
  }

  std::span<const int32_t> Groups(int64_t x) const {
    return {groups_.data() + offsets_[x], groups_.data() + ends_[x]};
  }
  std::span<const double> Weights(int64_t x) const {
    return {weights_.data() + offsets_[x], weights_.data() + ends_[x]};
  }

  // For `rows` rows with k neighbours each in a space of n rows.
  static int64_t Bytes(int64_t n, int64_t k, int64_t rows) {
    return 2 * (n + 1) * int64_t{sizeof(int64_t)} +
           rows * k * int64_t{sizeof(int32_t) + sizeof(double)};
  }

 private:
  std::vector<int64_t> offsets_, ends_;
  std::vector<int32_t> groups_;
  std::vector<double> weights_;
};

// Sums by index of which few are not zero. All terms are positive.
class SparseSums {
 public:
  // Makes room for indices in [0, size). All sums must be zero.
  void Resize(int64_t size) {
    values_.resize(size);
    touched_.resize(size + 1);
  }
  // Adds weight * weights[e] to index indices[e] for every e.
  void Add(std::span<const int32_t> indices, std::span<const double> weights, double weight) {
    double* const values = values_.data();
    int32_t* const touched = touched_.data();
    int64_t count = count_;
    for (size_t e = 0; e < indices.size(); ++e) {
      double& value = values[indices[e]];
      touched[count] = indices[e];  // counts only if the index is new; a branch would be slower
      count += value == 0 ? 1 : 0;
      value += weight * weights[e];
    }
    count_ = count;
  }
  void Add(int32_t index, double term) { Add({&index, 1}, {&term, 1}, 1); }
  double At(int32_t index) const { return values_[index]; }
  // The indices with sums, in the order of their first terms.
  std::span<const int32_t> touched() const { return {touched_.data(), touched_.data() + count_}; }
  void Clear() {
    for (const int32_t index : touched()) values_[index] = 0;
    count_ = 0;
  }
  static int64_t Bytes(int64_t size) { return size * int64_t{sizeof(double) + sizeof(int32_t)}; }

 private:
  std::vector<double> values_;
  std::vector<int32_t> touched_;
  int64_t count_ = 0;
};

// Adds the products of row `row` with every group numbered `first` or higher; one of them is the
// row's own if it is there. Groups must have been appended in ascending order.
inline void AddRow(const NeighborLists& lists, int64_t row, const GroupsOfNeighbors& groups,
                   SparseSums& sums, int32_t first = 0) {
  const int32_t* neighbors = lists.table.Row(row);
  for (int64_t r = 0; r < lists.k; ++r) {
    std::span<const int32_t> numbers = groups.Groups(neighbors[r]);
    std::span<const double> weights = groups.Weights(neighbors[r]);
    if (first > 0) {
      const auto skipped =
          std::lower_bound(numbers.begin(), numbers.end(), first) - numbers.begin();
      numbers = numbers.subspan(skipped);
      weights = weights.subspan(skipped);
    }
    sums.Add(numbers, weights, lists.Weight(r));
  }
}

// The similarities of one space. Thread-safe.
struct SharedNeighbors {
  NeighborLists lists;
  GroupsOfNeighbors rows;         // every row is a group
  double largest = 1;             // largest product; 1 if all are zero
  std::vector<double> neighbors;  // n x k: similarity of row i to its neighbour r

  // 1 / (mean similarity + alpha) of `pairs` pairs with this sum of products.
  double Dissimilarity(double sum, double pairs, double alpha) const {
    return 1.0 / (sum / largest / pairs + alpha);
  }
  static int64_t Bytes(int64_t n, int64_t k) {
    return GroupsOfNeighbors::Bytes(n, k, n) + n * k * int64_t{sizeof(double)};
  }
};

// CLIENT_CANCELLED, EXCEEDS_MEMORY_BUDGET. Takes SparseSums::Bytes(n) for every thread.
absl::StatusOr<SharedNeighbors> ShareNeighbors(const NeighborLists& lists,
                                               const Parallel& parallel);

// Whether any row has a similar row among its neighbours.
bool AnyNeighborIsSimilar(const NeighborLists& lists);

// Least and largest difference of the dissimilarities of a pair, first minus second space, over
// the pairs that share neighbours in one of them; {0, 0} at least. Same errors; twice the memory.
struct DifferenceRange {
  double least = 0, largest = 0;
};
absl::StatusOr<DifferenceRange> RangeOfDifferences(const SharedNeighbors& first,
                                                   const SharedNeighbors& second, double alpha,
                                                   const Parallel& parallel);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SHARED_NEIGHBORS_H_
