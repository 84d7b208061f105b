#include "backends/measurement/kmeans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/clones.h"
#include "backends/core/error.h"
#include "backends/measurement/counter_random.h"

namespace tenon::measurement {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kTile = 32;  // points that go through the centres together
// Multiplications that are worth a block of their own.
constexpr int64_t kBlockWork = int64_t{1} << 18;
constexpr int64_t kLeastSumRows = 4096;

// Rows of a block: enough work for a thread, little enough to stop soon.
int64_t BlockRows(int64_t columns, int64_t clusters) {
  return std::max<int64_t>(kTile, kBlockWork / columns / clusters);
}

// Rows whose sums by cluster are formed together: no more partial sums than points.
int64_t SumRows(int64_t clusters) { return std::max(clusters, kLeastSumRows); }

int64_t Pieces(int64_t n, int64_t rows) { return (n + rows - 1) / rows; }

// tile[c][l] = column c of row l, 0 beyond `rows`.
void LoadTile(const double* points, int64_t rows, int64_t columns, double* tile) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t l = 0; l < kTile; ++l) {
      tile[c * kTile + l] = l < rows ? points[l * columns + c] : 0.0;
    }
  }
}

// Squared distances of the points of a tile to one centre.
[[gnu::always_inline]] inline void SquaredDistances(const double* __restrict tile, int64_t columns,
                                                    const double* __restrict center,
                                                    double* __restrict squares) {
  double sums[kTile] = {};
  for (int64_t c = 0; c < columns; ++c) {
    const double middle = center[c];
    for (int64_t l = 0; l < kTile; ++l) {
      const double difference = tile[c * kTile + l] - middle;
      sums[l] += difference * difference;
    }
  }
  for (int64_t l = 0; l < kTile; ++l) squares[l] = sums[l];
}

// The first of the nearest centres of each point of a tile, and its squared distance.
TENON_CLONES void NearestCenters(const double* __restrict tile, int64_t columns,
                                 const double* __restrict centers, int64_t clusters,
                                 double* __restrict nearest_square, int64_t* __restrict nearest) {
  double least[kTile];
  int64_t best[kTile];
  for (int64_t l = 0; l < kTile; ++l) least[l] = kInfinity;
  for (int64_t l = 0; l < kTile; ++l) best[l] = 0;
  for (int64_t k = 0; k < clusters; ++k) {
    double squares[kTile];
    SquaredDistances(tile, columns, centers + k * columns, squares);
    for (int64_t l = 0; l < kTile; ++l) {
      best[l] = squares[l] < least[l] ? k : best[l];
      least[l] = squares[l] < least[l] ? squares[l] : least[l];
    }
  }
  for (int64_t l = 0; l < kTile; ++l) nearest_square[l] = least[l];
  for (int64_t l = 0; l < kTile; ++l) nearest[l] = best[l];
}

// Lowers `squares` to the squared distances to `center` where those are less.
TENON_CLONES void LowerToCenter(const double* __restrict tile, int64_t columns,
                                const double* __restrict center, double* __restrict squares) {
  double distances[kTile];
  SquaredDistances(tile, columns, center, distances);
  for (int64_t l = 0; l < kTile; ++l) {
    squares[l] = distances[l] < squares[l] ? distances[l] : squares[l];
  }
}

// One data set and the scratch of its runs.
class Clustering {
 public:
  Clustering(const double* points, int64_t n, int64_t columns, const KMeansOptions& options,
             const Parallel& parallel)
      : points_(points),
        n_(n),
        columns_(columns),
        clusters_(options.clusters),
        options_(options),
        parallel_(parallel),
        block_rows_(BlockRows(columns, clusters_)),
        blocks_(Pieces(n, block_rows_)),
        sum_rows_(SumRows(clusters_)),
        sum_blocks_(Pieces(n, sum_rows_)),
        labels_(n),
        squares_(n),
        centers_(clusters_ * columns),
        counts_(clusters_),
        block_counts_(sum_blocks_ * clusters_),
        block_sums_(sum_blocks_ * clusters_ * columns),
        block_total_(blocks_) {}

  absl::StatusOr<KMeansResult> Run(int64_t run);

 private:
  const double* Row(int64_t i) const { return points_ + i * columns_; }
  double* Center(int64_t k) { return centers_.data() + k * columns_; }
  void SetCenter(int64_t k, int64_t row) {
    std::copy_n(Row(row), columns_, centers_.begin() + k * columns_);
  }
  double BlockTotal() const {
    return std::accumulate(block_total_.begin(), block_total_.end(), 0.0);
  }

  // body(piece, first row, end row)
  template <typename Body>
  absl::Status ForEachPiece(int64_t rows, const Body& body) const {
    return parallel_.ForEach(Pieces(n_, rows), [&](int64_t piece, int) {
      body(piece, piece * rows, std::min(n_, (piece + 1) * rows));
    });
  }
  template <typename Body>
  absl::Status ForEachBlock(const Body& body) const {
    return ForEachPiece(block_rows_, body);
  }

  absl::Status StartAtRandomRows(CounterRandom& random);
  absl::Status StartPlusPlus(CounterRandom& random);
  int64_t DrawBySquares(double total, CounterRandom& random) const;
  absl::StatusOr<int64_t> BestCandidate(const std::vector<int64_t>& candidates);
  absl::Status LowerSquares(int64_t row);
  absl::StatusOr<double> ShiftThatEnds() const;
  absl::Status Assign(bool& changed);
  absl::Status SumClusters();
  double MoveCenters(bool& changed);
  bool RefillEmpty(std::vector<double>& sums);

  const double* const points_;
  const int64_t n_, columns_, clusters_;
  const KMeansOptions& options_;
  const Parallel& parallel_;
  const int64_t block_rows_, blocks_, sum_rows_, sum_blocks_;
  std::vector<int32_t> labels_;
  std::vector<double> squares_;  // squared distance of each point to its nearest centre
  std::vector<double> centers_;
  std::vector<int64_t> counts_;        // points of each cluster
  std::vector<int64_t> block_counts_;  // [piece][cluster]
  std::vector<double> block_sums_;     // [piece][cluster][column]
  std::vector<double> block_total_;    // of squares_
};

// ---- First centres ---------------------------------------------------------------------------

// Distinct rows, every choice equally likely (Floyd's algorithm).
absl::Status Clustering::StartAtRandomRows(CounterRandom& random) {
  std::unordered_set<int64_t> chosen;
  for (int64_t k = 0; k < clusters_; ++k) {
    const int64_t last = n_ - clusters_ + k;
    int64_t row = random.Below(last + 1);
    if (!chosen.insert(row).second) chosen.insert(row = last);
    SetCenter(k, row);
  }
  return parallel_.CheckCancelled();
}

absl::Status Clustering::StartPlusPlus(CounterRandom& random) {
  const auto trials = 2 + static_cast<int64_t>(std::log(static_cast<double>(clusters_)));
  std::fill(squares_.begin(), squares_.end(), kInfinity);
  int64_t row = random.Below(n_);
  for (int64_t k = 0; k < clusters_; ++k) {
    SetCenter(k, row);
    if (k + 1 == clusters_) break;
    TENON_RETURN_IF_ERROR(LowerSquares(row));
    const double total = BlockTotal();
    std::vector<int64_t> candidates;
    for (int64_t t = 0; t < trials; ++t) candidates.push_back(DrawBySquares(total, random));
    TENON_ASSIGN_OR_RETURN(row, BestCandidate(candidates));
  }
  return absl::OkStatus();
}

// A row with a probability proportional to its square.
int64_t Clustering::DrawBySquares(double total, CounterRandom& random) const {
  if (!(total > 0) || !std::isfinite(total)) return random.Below(n_);
  double target = random.Uniform() * total;
  int64_t block = 0;
  while (block + 1 < blocks_ && target >= block_total_[block]) target -= block_total_[block++];
  const int64_t end = std::min(n_, (block + 1) * block_rows_);
  int64_t drawn = block * block_rows_;  // the last one with a square, should rounding pass the end
  double sum = 0;
  for (int64_t i = block * block_rows_; i < end; ++i) {
    if (squares_[i] > 0) drawn = i;
    sum += squares_[i];
    if (sum > target) break;
  }
  return drawn;
}

// The candidate that leaves the least sum of squares, the first of equals.
absl::StatusOr<int64_t> Clustering::BestCandidate(const std::vector<int64_t>& candidates) {
  const auto trials = static_cast<int64_t>(candidates.size());
  std::vector<double> sums(blocks_ * trials);
  TENON_RETURN_IF_ERROR(ForEachBlock([&](int64_t block, int64_t first, int64_t end) {
    std::vector<double> tile(kTile * columns_);
    for (int64_t i = first; i < end; i += kTile) {
      const int64_t rows = std::min(kTile, end - i);
      LoadTile(Row(i), rows, columns_, tile.data());
      for (int64_t t = 0; t < trials; ++t) {
        double squares[kTile] = {};
        std::copy_n(squares_.begin() + i, rows, squares);
        LowerToCenter(tile.data(), columns_, Row(candidates[t]), squares);
        double& sum = sums[block * trials + t];
        for (int64_t l = 0; l < rows; ++l) sum += squares[l];
      }
    }
  }));
  for (int64_t block = 1; block < blocks_; ++block) {
    for (int64_t t = 0; t < trials; ++t) sums[t] += sums[block * trials + t];
  }
  return candidates[std::min_element(sums.begin(), sums.begin() + trials) - sums.begin()];
}

// Takes `row` as a further centre.
absl::Status Clustering::LowerSquares(int64_t row) {
  return ForEachBlock([&](int64_t block, int64_t first, int64_t end) {
    std::vector<double> tile(kTile * columns_);
    double total = 0;
    for (int64_t i = first; i < end; i += kTile) {
      const int64_t rows = std::min(kTile, end - i);
      LoadTile(Row(i), rows, columns_, tile.data());
      double squares[kTile] = {};
      std::copy_n(squares_.begin() + i, rows, squares);
      LowerToCenter(tile.data(), columns_, Row(row), squares);
      std::copy_n(squares, rows, squares_.begin() + i);
      for (int64_t l = 0; l < rows; ++l) total += squares[l];
    }
    block_total_[block] = total;
  });
}

// ---- Lloyd's iteration -----------------------------------------------------------------------

// The squared shift of the centres at which a run ends.
absl::StatusOr<double> Clustering::ShiftThatEnds() const {
  if (options_.tolerance == 0) return 0.0;
  const auto count = static_cast<double>(n_);
  std::vector<double> means(columns_), squares(columns_), partial(blocks_ * columns_);
  const auto add_blocks = [&](std::vector<double>& sums) {
    for (int64_t p = 0; p < blocks_ * columns_; ++p) sums[p % columns_] += partial[p];
    std::fill(partial.begin(), partial.end(), 0.0);
  };
  TENON_RETURN_IF_ERROR(ForEachBlock([&](int64_t block, int64_t first, int64_t end) {
    double* sums = partial.data() + block * columns_;
    for (int64_t i = first; i < end; ++i) {
      for (int64_t c = 0; c < columns_; ++c) sums[c] += Row(i)[c];
    }
  }));
  add_blocks(means);
  for (double& mean : means) mean /= count;
  TENON_RETURN_IF_ERROR(ForEachBlock([&](int64_t block, int64_t first, int64_t end) {
    double* sums = partial.data() + block * columns_;
    for (int64_t i = first; i < end; ++i) {
      for (int64_t c = 0; c < columns_; ++c) {
        const double deviation = Row(i)[c] - means[c];
        sums[c] += deviation * deviation;
      }
    }
  }));
  add_blocks(squares);
  const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  return options_.tolerance * (sum / count / static_cast<double>(columns_));
}

// Gives each point its nearest centre.
absl::Status Clustering::Assign(bool& changed) {
  std::vector<char> block_changed(blocks_);
  TENON_RETURN_IF_ERROR(ForEachBlock([&](int64_t block, int64_t first, int64_t end) {
    std::vector<double> tile(kTile * columns_);
    double total = 0, squares[kTile];
    int64_t nearest[kTile];
    for (int64_t i = first; i < end; i += kTile) {
      const int64_t rows = std::min(kTile, end - i);
      LoadTile(Row(i), rows, columns_, tile.data());
      NearestCenters(tile.data(), columns_, centers_.data(), clusters_, squares, nearest);
      for (int64_t l = 0; l < rows; ++l) {
        if (labels_[i + l] != nearest[l]) block_changed[block] = 1;
        labels_[i + l] = static_cast<int32_t>(nearest[l]);
        squares_[i + l] = squares[l];
        total += squares[l];
      }
    }
    block_total_[block] = total;
  }));
  changed = std::count(block_changed.begin(), block_changed.end(), 1) > 0;
  return absl::OkStatus();
}

// Counts and sums of the points of each cluster, by pieces of all rows.
absl::Status Clustering::SumClusters() {
  return ForEachPiece(sum_rows_, [&](int64_t piece, int64_t first, int64_t end) {
    int64_t* counts = block_counts_.data() + piece * clusters_;
    double* sums = block_sums_.data() + piece * clusters_ * columns_;
    std::fill_n(counts, clusters_, 0);
    std::fill_n(sums, clusters_ * columns_, 0.0);
    for (int64_t i = first; i < end; ++i) {
      ++counts[labels_[i]];
      double* const sum = sums + labels_[i] * columns_;
      for (int64_t c = 0; c < columns_; ++c) sum[c] += Row(i)[c];
    }
  });
}

// Moves every centre to the mean of its points; returns the sum of squared shifts. Sets `changed`
// if points went to empty clusters.
double Clustering::MoveCenters(bool& changed) {
  std::vector<double> sums(clusters_ * columns_);
  std::fill(counts_.begin(), counts_.end(), 0);
  for (int64_t block = 0; block < sum_blocks_; ++block) {
    for (int64_t k = 0; k < clusters_; ++k) counts_[k] += block_counts_[block * clusters_ + k];
    const double* partial = block_sums_.data() + block * clusters_ * columns_;
    for (int64_t p = 0; p < clusters_ * columns_; ++p) sums[p] += partial[p];
  }
  if (RefillEmpty(sums)) changed = true;
  double shift = 0;
  for (int64_t k = 0; k < clusters_; ++k) {
    if (counts_[k] == 0) continue;  // stays where it is
    for (int64_t c = 0; c < columns_; ++c) {
      const double next = sums[k * columns_ + c] / static_cast<double>(counts_[k]);
      const double difference = next - Center(k)[c];
      shift += difference * difference;
      Center(k)[c] = next;
    }
  }
  return shift;
}

// Gives every empty cluster one of the points that are farthest from their centres. Without points
// off their centres clusters stay empty: there are fewer distinct points than clusters. True if any
// point moved.
bool Clustering::RefillEmpty(std::vector<double>& sums) {
  const int64_t empty = std::count(counts_.begin(), counts_.end(), 0);
  if (empty == 0) return false;
  std::vector<int32_t> farthest(n_);
  std::iota(farthest.begin(), farthest.end(), 0);
  std::sort(farthest.begin(), farthest.end(), [&](int32_t a, int32_t b) {
    return squares_[a] != squares_[b] ? squares_[a] > squares_[b] : a < b;
  });
  size_t next = 0;
  for (int64_t k = 0; k < clusters_; ++k) {
    if (counts_[k] > 0) continue;
    // A point that is alone in its cluster would leave that one empty.
    while (next < farthest.size() && counts_[labels_[farthest[next]]] < 2) ++next;
    if (next == farthest.size() || !(squares_[farthest[next]] > 0)) break;
    const int64_t row = farthest[next++], from = labels_[row];
    --counts_[from];
    counts_[k] = 1;
    for (int64_t c = 0; c < columns_; ++c) {
      sums[from * columns_ + c] -= Row(row)[c];
      sums[k * columns_ + c] = Row(row)[c];
    }
  }
  return next > 0;
}

absl::StatusOr<KMeansResult> Clustering::Run(int64_t run) {
  CounterRandom random(options_.seed, static_cast<uint64_t>(run));
  TENON_RETURN_IF_ERROR(options_.plus_plus ? StartPlusPlus(random) : StartAtRandomRows(random));
  TENON_ASSIGN_OR_RETURN(const double shift_that_ends, ShiftThatEnds());
  std::fill(labels_.begin(), labels_.end(), -1);
  int64_t iteration = 0;
  bool changed = true;
  while (iteration < options_.max_iterations) {
    ++iteration;
    TENON_RETURN_IF_ERROR(Assign(changed));
    TENON_RETURN_IF_ERROR(SumClusters());
    const double shift = MoveCenters(changed);
    if (!changed || shift <= shift_that_ends) break;
  }
  // The last move may have brought other centres nearer.
  if (changed) TENON_RETURN_IF_ERROR(Assign(changed));
  const double inertia = BlockTotal();
  return KMeansResult{labels_, std::isfinite(inertia) ? inertia : kInfinity, iteration};
}

}  // namespace

absl::StatusOr<KMeansResult> KMeans(const double* points, int64_t n, int64_t columns,
                                    const KMeansOptions& options, const Parallel& parallel) {
  if (options.clusters < 1 || options.clusters > n || options.n_init < 1 ||
      options.max_iterations < 1 || !(options.tolerance >= 0)) {
    return Error(Reason::kBadParameter,
                 absl::StrCat("k-means of ", n, " points into ", options.clusters, " clusters, ",
                              options.n_init, " runs of at most ", options.max_iterations,
                              " iterations, tolerance ", options.tolerance));
  }
  Clustering clustering(points, n, columns, options, parallel);
  KMeansResult best;
  for (int64_t run = 0; run < options.n_init; ++run) {
    TENON_ASSIGN_OR_RETURN(KMeansResult result, clustering.Run(run));
    if (run == 0 || result.inertia < best.inertia) best = std::move(result);
  }
  return best;
}

int64_t KMeansWorkingBytes(int64_t n, int64_t columns, int64_t clusters) {
  const int64_t word = sizeof(double), trials = 64;
  const int64_t sums = (Pieces(n, SumRows(clusters)) + 2) * clusters * (columns + 1);
  const int64_t blocks = Pieces(n, BlockRows(columns, clusters)) * (columns + trials);
  return (sums + blocks + n) * word + n * 3 * int64_t{sizeof(int32_t)};
}

}  // namespace tenon::measurement
