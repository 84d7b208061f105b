#include "backends/measurement/neighbor_dissimilarity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backends/core/error.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlockRows = 16;

int64_t Blocks(int64_t n) { return (n + kBlockRows - 1) / kBlockRows; }

// The symmetrised neighbour graph: ascending adjacent rows of every row.
class Graph {
 public:
  Graph(int64_t n, int64_t k, const IndexTable& neighbors) : begin_(n + 1), degree_(n) {
    for (int64_t i = 0; i < n; ++i) {
      degree_[i] += static_cast<int32_t>(k);
      for (int64_t r = 0; r < k; ++r) ++degree_[neighbors.Row(i)[r]];
    }
    for (int64_t i = 0; i < n; ++i) begin_[i + 1] = begin_[i] + degree_[i];
    adjacent_.resize(begin_[n]);
    std::fill(degree_.begin(), degree_.end(), 0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t r = 0; r < k; ++r) {
        const int32_t j = neighbors.Row(i)[r];
        adjacent_[begin_[i] + degree_[i]++] = j;
        adjacent_[begin_[j] + degree_[j]++] = static_cast<int32_t>(i);
      }
    }
  }

  // Rows that are neighbours of each other have entered twice. Has to be done once.
  absl::Status SortAndUnite(const Parallel& parallel) {
    const int64_t n = static_cast<int64_t>(degree_.size());
    return parallel.ForEach(Blocks(n), [&](int64_t block, int) {
      for (int64_t i = block * kBlockRows; i < std::min(n, (block + 1) * kBlockRows); ++i) {
        int32_t* first = &adjacent_[begin_[i]];
        std::sort(first, first + degree_[i]);
        degree_[i] = static_cast<int32_t>(std::unique(first, first + degree_[i]) - first);
      }
    });
  }

  std::span<const int32_t> Adjacent(int64_t i) const {
    return {&adjacent_[begin_[i]], static_cast<size_t>(degree_[i])};
  }

 private:
  std::vector<int64_t> begin_;
  std::vector<int32_t> degree_, adjacent_;
};

// Calls visit(j) for every path of two edges from i to a row j > i.
template <typename Visit>
void WalkTwice(const Graph& graph, int64_t i, const Visit& visit) {
  for (const int32_t middle : graph.Adjacent(i)) {
    const auto ends = graph.Adjacent(middle);
    for (size_t p = ends.size(); p > 0 && ends[p - 1] > i; --p) visit(ends[p - 1]);
  }
}

// Sums of squares over pairs i < j.
struct Squares {
  __int128 positive = 0, negative = 0;
};

// `counts` has n zeros and has them again afterwards.
Squares RowSquares(const Graph& original, const Graph& embedded, int64_t i,
                   std::vector<int32_t>& counts) {
  WalkTwice(original, i, [&](int32_t j) { ++counts[j]; });
  WalkTwice(embedded, i, [&](int32_t j) { --counts[j]; });
  Squares squares;
  const auto take = [&](int32_t j) {
    const int64_t difference = counts[j];
    counts[j] = 0;
    (difference > 0 ? squares.positive : squares.negative) += difference * difference;
  };
  WalkTwice(original, i, take);
  WalkTwice(embedded, i, take);
  return squares;
}

}  // namespace

absl::StatusOr<double> NeighborDissimilarity(int64_t n, int64_t k, const IndexTable& original,
                                             const IndexTable& embedded, const Parallel& parallel) {
  Graph original_graph(n, k, original), embedded_graph(n, k, embedded);
  TENON_RETURN_IF_ERROR(original_graph.SortAndUnite(parallel));
  TENON_RETURN_IF_ERROR(embedded_graph.SortAndUnite(parallel));
  std::vector<std::vector<int32_t>> counts(parallel.threads());
  std::vector<Squares> sums(parallel.threads());
  TENON_RETURN_IF_ERROR(parallel.ForEach(Blocks(n), [&](int64_t block, int slot) {
    counts[slot].resize(n);
    for (int64_t i = block * kBlockRows; i < std::min(n, (block + 1) * kBlockRows); ++i) {
      const Squares squares = RowSquares(original_graph, embedded_graph, i, counts[slot]);
      sums[slot].positive += squares.positive;
      sums[slot].negative += squares.negative;
    }
  }));
  Squares total;  // integers: their order doesn't matter
  for (const Squares& sum : sums) {
    total.positive += sum.positive;
    total.negative += sum.negative;
  }
  // Every pair counts in both orders.
  const double larger = 2.0 * static_cast<double>(std::max(total.positive, total.negative));
  return std::sqrt(larger) / static_cast<double>(k);
}

int64_t NeighborDissimilarityBytes(int64_t n, int64_t k, int threads) {
  const int64_t graph = 2 * n * k * int64_t{4} + n * (8 + 4);
  return 2 * graph + threads * n * int64_t{4};
}

}  // namespace tenon::measurement
