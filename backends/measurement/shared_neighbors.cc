#include "backends/measurement/shared_neighbors.h"

#include <algorithm>
#include <numeric>

#include "backends/core/error.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlockRows = 32;

int64_t Blocks(int64_t n) { return (n + kBlockRows - 1) / kBlockRows; }

// Calls body(i, slot) for every row.
template <typename Body>
absl::Status ForEachRow(int64_t n, const Parallel& parallel, const Body& body) {
  return parallel.ForEach(Blocks(n), [&](int64_t block, int slot) {
    const int64_t last = std::min(n, (block + 1) * kBlockRows);
    for (int64_t i = block * kBlockRows; i < last; ++i) body(i, slot);
  });
}

}  // namespace

void GroupsOfNeighbors::Reset(const NeighborLists& lists, std::span<const int32_t> rows) {
  offsets_.assign(lists.n + 1, 0);
  for (const int32_t row : rows) {
    const int32_t* neighbors = lists.table.Row(row);
    for (int64_t r = 0; r < lists.k; ++r) ++offsets_[neighbors[r] + 1];
  }
  std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
  ends_.assign(offsets_.begin(), offsets_.end() - 1);
  groups_.resize(offsets_.back());
  weights_.resize(offsets_.back());
}

void GroupsOfNeighbors::ResetToRows(const NeighborLists& lists, std::span<const int32_t> rows) {
  Reset(lists, rows);
  for (size_t g = 0; g < rows.size(); ++g) {
    const int32_t* neighbors = lists.table.Row(rows[g]);
    for (int64_t r = 0; r < lists.k; ++r) {
      Append(neighbors[r], static_cast<int32_t>(g), lists.Weight(r));
    }
  }
}

absl::StatusOr<SharedNeighbors> ShareNeighbors(const NeighborLists& lists,
                                               const Parallel& parallel) {
  const int64_t n = lists.n, k = lists.k;
  SharedNeighbors shared;
  shared.lists = lists;
  std::vector<int32_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  shared.rows.ResetToRows(lists, all);
  shared.neighbors.resize(n * k);
  std::vector<SparseSums> scratch(parallel.threads());
  std::vector<double> largest(parallel.threads());
  TENON_RETURN_IF_ERROR(ForEachRow(n, parallel, [&](int64_t i, int slot) {
    SparseSums& sums = scratch[slot];
    sums.Resize(n);
    AddRow(lists, i, shared.rows, sums);
    const int32_t* neighbors = lists.table.Row(i);
    for (int64_t r = 0; r < k; ++r) shared.neighbors[i * k + r] = sums.At(neighbors[r]);
    for (const int32_t j : sums.touched()) {
      if (j != i) largest[slot] = std::max(largest[slot], sums.At(j));
    }
    sums.Clear();
  }));
  const double found = *std::max_element(largest.begin(), largest.end());
  if (found > 0) shared.largest = found;
  for (double& product : shared.neighbors) product /= shared.largest;
  return shared;
}

bool AnyNeighborIsSimilar(const NeighborLists& lists) {
  std::vector<int64_t> seen(lists.n, -1);  // the last row that had this one as a neighbour
  for (int64_t i = 0; i < lists.n; ++i) {
    const int32_t* neighbors = lists.table.Row(i);
    for (int64_t r = 0; r < lists.k; ++r) seen[neighbors[r]] = i;
    for (int64_t r = 0; r < lists.k; ++r) {
      const int32_t* others = lists.table.Row(neighbors[r]);
      if (std::any_of(others, others + lists.k, [&](int32_t x) { return seen[x] == i; })) {
        return true;
      }
    }
  }
  return false;
}

absl::StatusOr<DifferenceRange> RangeOfDifferences(const SharedNeighbors& first,
                                                   const SharedNeighbors& second, double alpha,
                                                   const Parallel& parallel) {
  const int64_t n = first.lists.n;
  std::vector<SparseSums> first_sums(parallel.threads()), second_sums(parallel.threads());
  std::vector<DifferenceRange> ranges(parallel.threads());
  TENON_RETURN_IF_ERROR(ForEachRow(n, parallel, [&](int64_t i, int slot) {
    SparseSums &a = first_sums[slot], &b = second_sums[slot];
    a.Resize(n);
    b.Resize(n);
    const auto next = static_cast<int32_t>(i + 1);  // every pair once
    AddRow(first.lists, i, first.rows, a, next);
    AddRow(second.lists, i, second.rows, b, next);
    DifferenceRange& range = ranges[slot];
    const auto take = [&](int32_t j) {
      const double difference =
          first.Dissimilarity(a.At(j), 1, alpha) - second.Dissimilarity(b.At(j), 1, alpha);
      range.least = std::min(range.least, difference);
      range.largest = std::max(range.largest, difference);
    };
    for (const int32_t j : a.touched()) take(j);
    for (const int32_t j : b.touched()) {
      if (a.At(j) == 0) take(j);
    }
    a.Clear();
    b.Clear();
  }));
  DifferenceRange result;
  for (const DifferenceRange& range : ranges) {
    result.least = std::min(result.least, range.least);
    result.largest = std::max(result.largest, range.largest);
  }
  return result;
}

}  // namespace tenon::measurement
