#include "backends/cpu/symmetric_pass.h"

#include <algorithm>
#include <utility>

#include "backends/core/error.h"
#include "backends/cpu/distance_kernels.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kLargestBlock = 256;  // a tile stays in the second-level cache
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
  return threads * BlockOf(n) * BlockOf(n) * int64_t{sizeof(double)};
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

absl::Status SymmetricTiles::ForEach(const Parallel& parallel,
                                     const std::function<void(const Tile&, int slot)>& body) {
  const int64_t blocks = (n_ + block_ - 1) / block_, area = block_ * block_;
  const auto run = [&](int64_t a, int64_t b, int slot) {
    double* keys = scratch_.as<double>() + slot * area;
    const Tile tile = {a * block_, std::min(block_, n_ - a * block_),
                       b * block_, std::min(block_, n_ - b * block_),
                       keys,       block_};
    points_->KeyTile(tile.first_i, tile.n_i, tile.first_j, PaddedRows(tile.n_j), keys, block_);
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

}  // namespace tenon::cpu
