// Pointwise steadiness and cohesiveness. Two single rows have the same distortion in every walk,
// so it is enough to know in how many walks both are single; only pairs with a larger cluster are
// kept.

#include <algorithm>
#include <bit>

#include "backends/core/error.h"
#include "backends/measurement/cluster_distortion.h"

namespace tenon::measurement {
namespace {

// In which walks a row is a cluster of its own.
class SingleRows {
 public:
  SingleRows(int64_t n, std::span<const WalkDistortion> walks)
      : words_((walks.size() + 63) / 64), bits_(n * words_) {
    for (size_t w = 0; w < walks.size(); ++w) {
      const Clusters& clusters = walks[w].clusters;
      for (int64_t c = 0; c < clusters.count(); ++c) {
        if (clusters.Size(c) != 1) continue;
        bits_[clusters.Rows(c)[0] * words_ + w / 64] |= uint64_t{1} << w % 64;
      }
    }
  }
  int64_t CountBoth(int64_t i, int64_t j) const {
    int64_t count = 0;
    for (size_t word = 0; word < words_; ++word) {
      const uint64_t both = bits_[i * words_ + word] & bits_[j * words_ + word];
      if (both != 0) count += std::popcount(both);  // rare, and costs a call on old processors
    }
    return count;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

// The kept pairs of every cluster of one walk, from both sides.
struct PairsOfClusters {
  struct Entry {
    int32_t other;
    double value;
  };
  std::vector<int64_t> offsets;
  std::vector<Entry> entries;

  explicit PairsOfClusters(const WalkDistortion& walk) : offsets(walk.clusters.count() + 1) {
    for (const auto& pair : walk.pairs) {
      ++offsets[pair.first];
      ++offsets[pair.second];
    }
    int64_t end = 0;
    for (int64_t& offset : offsets) offset = end += offset;
    entries.resize(end);
    for (size_t p = walk.pairs.size(); p-- > 0;) {  // from behind, so that entries stand in order
      const auto& pair = walk.pairs[p];
      entries[--offsets[pair.first]] = {pair.second, pair.value};
      entries[--offsets[pair.second]] = {pair.first, pair.value};
    }
  }
};

// Which clusters of which walks a row is in.
struct RowClusters {
  struct Place {
    int32_t walk, cluster;
  };
  std::vector<int64_t> offsets;
  std::vector<Place> places;

  RowClusters(int64_t n, std::span<const WalkDistortion> walks) : offsets(n + 1) {
    for (const WalkDistortion& walk : walks) {
      for (const int32_t row : walk.clusters.AllRows()) ++offsets[row];
    }
    int64_t end = 0;
    for (int64_t& offset : offsets) offset = end += offset;
    places.resize(end);
    for (size_t w = walks.size(); w-- > 0;) {
      const Clusters& clusters = walks[w].clusters;
      for (int64_t c = 0; c < clusters.count(); ++c) {
        for (const int32_t row : clusters.Rows(c)) {
          places[--offsets[row]] = {static_cast<int32_t>(w), static_cast<int32_t>(c)};
        }
      }
    }
  }
};

// Sums by the other row for one row.
class RowScratch {
 public:
  std::array<SparseSums, 2> products;

  void Resize(int64_t n) {
    for (SparseSums& sums : products) sums.Resize(n);
    means_.resize(n);
  }
  void Add(int32_t row, double value, int64_t count) {
    if (means_[row].count == 0) touched_.push_back(row);
    means_[row].sum += value * static_cast<double>(count);
    means_[row].count += count;
  }
  // The sum of the means over all other rows. Everything is empty then.
  double TakeMeans() {
    double sum = 0;
    for (const int32_t row : touched_) {
      sum += means_[row].sum / static_cast<double>(means_[row].count);
      means_[row] = {};
    }
    touched_.clear();
    return sum;
  }

 private:
  struct Mean {
    double sum = 0;
    int64_t count = 0;
  };
  std::vector<Mean> means_;
  std::vector<int32_t> touched_;
};

class LocalSums {
 public:
  LocalSums(const std::array<SharedNeighbors, 2>& spaces, const Comparison& comparison,
            std::span<const WalkDistortion> walks)
      : spaces_(spaces),
        comparison_(comparison),
        walks_(walks),
        singles_(spaces[0].lists.n, walks),
        rows_(spaces[0].lists.n, walks) {
    pairs_.reserve(walks.size());
    for (const WalkDistortion& walk : walks) pairs_.emplace_back(walk);
  }

  double Of(int64_t i, RowScratch& scratch) const {
    if (singles_.CountBoth(i, i) > 0) AddAllSingles(i, scratch);
    for (int64_t p = rows_.offsets[i]; p < rows_.offsets[i + 1]; ++p) {
      AddClusters(rows_.places[p], scratch);
    }
    return scratch.TakeMeans();
  }

 private:
  void AddAllSingles(int64_t i, RowScratch& scratch) const {
    for (const int space : {0, 1}) {
      AddRow(spaces_[space].lists, i, spaces_[space].rows, scratch.products[space]);
    }
    for (const int32_t j : scratch.products[0].touched()) AddSingles(i, j, scratch);
    for (const int32_t j : scratch.products[1].touched()) {
      if (scratch.products[0].At(j) == 0) AddSingles(i, j, scratch);
    }
    for (SparseSums& products : scratch.products) products.Clear();
  }

  void AddSingles(int64_t i, int32_t j, RowScratch& scratch) const {
    if (i == j) return;
    const int64_t count = singles_.CountBoth(i, j);
    if (count == 0) return;
    const double difference =
        comparison_.Difference(spaces_, {scratch.products[0].At(j), scratch.products[1].At(j)}, 1);
    if (difference > 0) scratch.Add(j, difference / comparison_.scale, count);
  }

  void AddClusters(const RowClusters::Place& place, RowScratch& scratch) const {
    const PairsOfClusters& pairs = pairs_[place.walk];
    for (int64_t e = pairs.offsets[place.cluster]; e < pairs.offsets[place.cluster + 1]; ++e) {
      const auto& [other, value] = pairs.entries[e];
      for (const int32_t j : walks_[place.walk].clusters.Rows(other)) scratch.Add(j, value, 1);
    }
  }

  const std::array<SharedNeighbors, 2>& spaces_;
  const Comparison& comparison_;
  std::span<const WalkDistortion> walks_;
  SingleRows singles_;
  RowClusters rows_;
  std::vector<PairsOfClusters> pairs_;
};

}  // namespace

absl::StatusOr<std::vector<double>> LocalDistortions(const std::array<SharedNeighbors, 2>& spaces,
                                                     const Comparison& comparison,
                                                     std::span<const WalkDistortion> walks,
                                                     const Parallel& parallel) {
  const int64_t n = spaces[0].lists.n;
  const LocalSums sums(spaces, comparison, walks);
  std::vector<double> local(n);
  std::vector<RowScratch> scratch(parallel.threads());
  TENON_RETURN_IF_ERROR(parallel.ForEach(n, [&](int64_t i, int slot) {
    RowScratch& own = scratch[slot];
    own.Resize(n);
    local[i] = sums.Of(i, own);
  }));
  const double largest = *std::max_element(local.begin(), local.end());
  if (largest > 0) {
    for (double& value : local) value /= largest;
  }
  return local;
}

}  // namespace tenon::measurement
