#include "backends/measurement/neighbor_dissimilarity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backends/core/clones.h"
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

// Calls visit(j) for every path of two edges from i to a row j > i; gives the number of calls.
template <typename Visit>
int64_t WalkTwice(const Graph& graph, int64_t i, const Visit& visit) {
  int64_t steps = 0;
  for (const int32_t middle : graph.Adjacent(i)) {
    const auto ends = graph.Adjacent(middle);
    size_t p = ends.size();
    for (; p > 0 && ends[p - 1] > i; --p) visit(ends[p - 1]);
    steps += static_cast<int64_t>(ends.size() - p);
  }
  return steps;
}

// Sums of squares over pairs i < j.
struct Squares {
  __int128 positive = 0, negative = 0;

  void Add(int64_t of_positive, int64_t of_negative) {
    positive += of_positive;
    negative += of_negative;
  }
};

// Adds the squares of all differences to sums[0] if positive, else to sums[1]; leaves zeros.
TENON_CLONES void TakeAll(int32_t* differences, int64_t count, int64_t sums[2]) {
  int64_t positive = 0, negative = 0;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t above = std::max(differences[j], 0), below = std::min(differences[j], 0);
    positive += above * above;
    negative += below * below;
    differences[j] = 0;
  }
  sums[0] = positive;
  sums[1] = negative;
}

// `differences` has n zeros and has them again afterwards.
Squares RowSquares(const Graph& original, const Graph& embedded, int64_t i,
                   std::vector<int32_t>& differences) {
  constexpr int64_t kScanned = 8;  // entries that are looked at in the time of one step
  int64_t steps = WalkTwice(original, i, [&](int32_t j) { ++differences[j]; });
  steps += WalkTwice(embedded, i, [&](int32_t j) { --differences[j]; });
  const int64_t following = static_cast<int64_t>(differences.size()) - i - 1;
  int64_t sums[2] = {};  // n n^2 at most
  if (following < kScanned * steps) {
    TakeAll(differences.data() + i + 1, following, sums);
  } else {
    const auto take = [&](int32_t j) {
      const int64_t difference = differences[j];
      differences[j] = 0;
      sums[difference > 0 ? 0 : 1] += difference * difference;
    };
    WalkTwice(original, i, take);
    WalkTwice(embedded, i, take);
  }
  Squares squares;
  squares.Add(sums[0], sums[1]);
  return squares;
}

}  // namespace

absl::StatusOr<double> NeighborDissimilarity(int64_t n, int64_t k, const IndexTable& original,
                                             const IndexTable& embedded, const Parallel& parallel) {
  Graph original_graph(n, k, original), embedded_graph(n, k, embedded);
  TENON_RETURN_IF_ERROR(original_graph.SortAndUnite(parallel));
  TENON_RETURN_IF_ERROR(embedded_graph.SortAndUnite(parallel));
  std::vector<std::vector<int32_t>> differences(parallel.threads());
  std::vector<Squares> sums(parallel.threads());
  TENON_RETURN_IF_ERROR(parallel.ForEach(Blocks(n), [&](int64_t block, int slot) {
    differences[slot].resize(n);
    for (int64_t i = block * kBlockRows; i < std::min(n, (block + 1) * kBlockRows); ++i) {
      const Squares squares = RowSquares(original_graph, embedded_graph, i, differences[slot]);
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
