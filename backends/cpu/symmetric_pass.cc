#include "backends/cpu/symmetric_pass.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backends/core/error.h"
#include "backends/cpu/distance_kernels.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kLargestBlock = 256;  // a tile and its turned copy stay in the second-level cache
constexpr int64_t kSmallestBlock = 64;

int64_t BlockOf(int64_t n) { return std::clamp(PaddedRows(n / 16), kSmallestBlock, kLargestBlock); }

// The pairs of blocks of one round: every block plays every other one once (the circle method).
std::vector<std::pair<int64_t, int64_t>> Round(int64_t blocks, int64_t round) {
  const int64_t seats = blocks + blocks % 2;  // an odd one sits out
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t p = 0; p < seats / 2; ++p) {
    const auto at = [&](int64_t seat) {
      return seat == 0 ? int64_t{0} : 1 + (seat - 1 + round) % (seats - 1);
    };
    const int64_t a = at(p), b = at(seats - 1 - p);
    if (std::max(a, b) < blocks) pairs.emplace_back(std::min(a, b), std::max(a, b));
  }
  return pairs;
}

}  // namespace

bool SymmetricTiles::Pays(const tenon_matrix& points) {
  constexpr int64_t kColumns = 12, kRows = 512;
  return points.geodesic == 0 && points.columns >= kColumns && points.rows >= kRows;
}

int64_t SymmetricTiles::Bytes(int64_t n, int threads) {
  return int64_t{2} * threads * BlockOf(n) * BlockOf(n) * int64_t{sizeof(double)};
}

absl::StatusOr<SymmetricTiles> SymmetricTiles::Create(const PackedPoints& points, int64_t n,
                                                      int threads) {
  SymmetricTiles tiles;
  tiles.points_ = &points;
  tiles.n_ = n;
  tiles.block_ = BlockOf(n);
  TENON_ASSIGN_OR_RETURN(tiles.scratch_, Buffer::Allocate(Bytes(n, threads)));
  return tiles;
}

absl::Status SymmetricTiles::ForEach(const Parallel& parallel, bool turned,
                                     const std::function<void(const Tile&, int slot)>& body) {
  const int64_t blocks = (n_ + block_ - 1) / block_, area = block_ * block_;
  const auto run = [&](int64_t a, int64_t b, int slot) {
    double* keys = scratch_.as<double>() + int64_t{2} * slot * area;
    const Tile tile = {a * block_, std::min(block_, n_ - a * block_),
                       b * block_, std::min(block_, n_ - b * block_),
                       keys,       keys + area,
                       block_};
    points_->KeyTile(tile.first_i, tile.n_i, tile.first_j, PaddedRows(tile.n_j), keys, block_);
    if (turned && !tile.is_diagonal()) Transpose(keys, tile.n_i, tile.n_j, block_, tile.turned);
    body(tile, slot);
  };
  TENON_RETURN_IF_ERROR(
      parallel.ForEach(blocks, [&](int64_t block, int slot) { run(block, block, slot); }));
  const int64_t rounds = blocks + blocks % 2 - 1;
  for (int64_t round = 0; round < rounds; ++round) {
    const auto pairs = Round(blocks, round);
    TENON_RETURN_IF_ERROR(
        parallel.ForEach(static_cast<int64_t>(pairs.size()),
                         [&](int64_t p, int slot) { run(pairs[p].first, pairs[p].second, slot); }));
  }
  return absl::OkStatus();
}

int64_t TiledNeighbors::Bytes(int64_t n, int64_t k, int threads) {
  return n * (Capacity(k) * static_cast<int64_t>(sizeof(Neighbor)) + int64_t{sizeof(Row)}) +
         threads * (Capacity(k) + 64) * int64_t{sizeof(int32_t)};
}

absl::StatusOr<TiledNeighbors> TiledNeighbors::Create(KeyKind kind, int64_t n, int64_t k,
                                                      int threads) {
  TiledNeighbors neighbors;
  neighbors.kind_ = kind;
  neighbors.k_ = k;
  neighbors.rows_.resize(n);
  TENON_ASSIGN_OR_RETURN(
      neighbors.candidates_,
      Buffer::Allocate(n * Capacity(k) * static_cast<int64_t>(sizeof(Neighbor))));
  TENON_ASSIGN_OR_RETURN(neighbors.found_,
                         Buffer::Allocate(threads * (Capacity(k) + 64) * int64_t{sizeof(int32_t)}));
  return neighbors;
}

void TiledNeighbors::Take(const SymmetricTiles::Tile& tile, int slot) {
  int32_t* found = found_.as<int32_t>() + slot * (Capacity(k_) + 64);
  for (int64_t i = 0; i < tile.n_i; ++i) {
    TakeRow(tile.first_i + i, tile.keys + i * tile.stride, tile.first_j, tile.n_j, found);
  }
  if (tile.is_diagonal()) return;
  for (int64_t j = 0; j < tile.n_j; ++j) {
    TakeRow(tile.first_j + j, tile.turned + j * tile.stride, tile.first_i, tile.n_i, found);
  }
}

void TiledNeighbors::TakeRow(int64_t i, const double* keys, int64_t first, int64_t count,
                             int32_t* found) {
  Row& row = rows_[i];
  Neighbor* candidates = candidates_.as<Neighbor>() + i * Capacity(k_);
  const int64_t parts = (4 * k_ + kPanel - 1) / kPanel * kPanel;
  double bound = row.bound;
  if (row.size == 0 && parts <= kMaxMinima && count >= 2 * parts + 1) {
    // In the first tile the k-th smallest of the minima of parts bounds the k-th smallest key; row
    // i itself may be among them.
    double minima[kMaxMinima];
    PartMinima(keys, count, parts, minima);
    std::nth_element(minima, minima + k_, minima + parts);
    bound = LastKeyOf(kind_, minima[k_]);
  }
  // Columns do not come in order, so equal distances are candidates too.
  for (int64_t j = 0; j < count;) {
    int64_t n_found = 0;
    j = FindNotAbove(keys, j, count, bound, Capacity(k_) - 63 - row.size, found, &n_found);
    for (int64_t f = 0; f < n_found; ++f) {
      const auto column = static_cast<int32_t>(first + found[f]);
      if (column == i) continue;
      candidates[row.size++] = {DistanceOf(kind_, keys[found[f]]), column};
    }
    if (row.size < 2 * k_) continue;
    std::nth_element(candidates, candidates + k_ - 1, candidates + row.size);
    row.size = k_;
    bound = LastKeyAt(kind_, candidates[k_ - 1].first);
  }
  row.bound = bound;
}

void TiledNeighbors::Finish(int64_t i, int32_t* nearest) {
  Neighbor* candidates = candidates_.as<Neighbor>() + i * Capacity(k_);
  std::partial_sort(candidates, candidates + k_, candidates + rows_[i].size);
  for (int64_t r = 0; r < k_; ++r) nearest[r] = candidates[r].second;
}

}  // namespace tenon::cpu
