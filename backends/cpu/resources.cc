#include "backends/cpu/resources.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"
#include "backends/cpu/distance.h"
#include "backends/cpu/ordered_pairs.h"
#include "backends/cpu/pair_sums.h"
#include "backends/cpu/resource_request.h"
#include "backends/cpu/row_kernels.h"
#include "backends/cpu/symmetric_pass.h"
#include "backends/measurement/summation.h"

namespace tenon::cpu {
namespace {

using measurement::CompensatedSum;
using measurement::PairStatistics;

int64_t AlignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Candidates of all rows at once take memory that rows one after the other do not.
constexpr int64_t kMostTiledBytes = int64_t{64} << 20;

// How a request is done. The bits of the results do not depend on it.
struct Plan {
  int threads = 1;
  int64_t block_rows = 1;
  bool tiled_neighbors = false;  // of the original space, in a pass of their own
  bool tiled_densities = false;  // of the original space
  int64_t bytes = 0;
};

// Whether all that is wanted of the original distances is neighbours, and they are dear.
bool CanTile(const ResourceWork& work) {
  const SpaceOutputs& space = work.original;
  return !space.neighbors.empty() && space.densities.empty() && space.condensed.empty() &&
         work.selected_ranks.empty() && work.rank_tables.empty() && work.pair_statistics.empty() &&
         work.pair_orders.empty() && !work.is_external && SymmetricTiles::Pays(space.points) &&
         TiledNeighbors::Bytes(work.rows, space.largest_k, 1) <= kMostTiledBytes;
}

// Scratch that does not depend on threads and blocks.
int64_t FixedBytes(const ResourceWork& work, int threads) {
  int64_t bytes = OrderedPairs::Bytes(work, threads);
  if (work.original.needed) bytes += PackedPoints::Bytes(work.original.points);
  if (work.embedded.needed) bytes += PackedPoints::Bytes(work.embedded.points);
  if (!work.pair_statistics.empty()) bytes += work.rows * int64_t{sizeof(PairStatistics)};
  bytes += 2 * work.rows * int64_t{sizeof(double)};  // row maxima
  return bytes;
}

// Scratch of one thread: distance rows of two spaces, neighbour candidates and lists.
struct ThreadScratch {
  double* original;
  double* embedded;
  CandidateScratch candidates;
  RankScratch ranks;
  int32_t* lists;                 // 3 * LargestK
  PairRecord<uint32_t>* records;  // 2 * rows, for rank tables
  int slot;

  static int64_t LargestK(const ResourceWork& work) {
    return std::max({work.original.largest_k, work.embedded.largest_k, work.ranks_k});
  }
  static int64_t RowsBytes(const ResourceWork& work, int64_t block_rows) {
    return block_rows * PaddedRows(work.rows) * int64_t{sizeof(double)};
  }
  static int64_t RecordsBytes(const ResourceWork& work) {
    if (work.rank_tables.empty()) return 0;
    return 2 * work.rows * static_cast<int64_t>(sizeof(PairRecord<uint32_t>));
  }
  static int64_t Bytes(const ResourceWork& work, int64_t block_rows) {
    const int64_t k = LargestK(work);
    const int64_t candidates = CandidateCapacity(k) * int64_t{sizeof(Neighbor) + sizeof(int32_t)};
    return AlignUp(2 * RowsBytes(work, block_rows) + candidates + 4 * k * 8 + 4 * k * 4 +
                   RecordsBytes(work));
  }
  static ThreadScratch At(std::byte* memory, const ResourceWork& work, int64_t block_rows) {
    ThreadScratch scratch;
    const int64_t rows = RowsBytes(work, block_rows);
    scratch.original = reinterpret_cast<double*>(memory);
    scratch.embedded = reinterpret_cast<double*>(memory + rows);
    const int64_t k = LargestK(work), capacity = CandidateCapacity(k);
    scratch.candidates.candidates = reinterpret_cast<Neighbor*>(memory + 2 * rows);
    scratch.ranks.bounds = reinterpret_cast<double*>(scratch.candidates.candidates + capacity);
    scratch.ranks.counts = reinterpret_cast<int64_t*>(scratch.ranks.bounds + 3 * k);
    scratch.candidates.found = reinterpret_cast<int32_t*>(scratch.ranks.counts + k);
    scratch.ranks.order = scratch.candidates.found + capacity;
    scratch.lists = scratch.ranks.order + k;
    scratch.records = reinterpret_cast<PairRecord<uint32_t>*>(scratch.lists + 3 * k);
    return scratch;
  }
};

// Rows of a block: few for narrow points, so that both spaces' rows stay in the second-level cache;
// more for wide ones, so that reading the points is shared.
int64_t PreferredBlockRows(const ResourceWork& work) {
  constexpr int64_t kNarrow = 12, kWide = 96, kWideColumns = 256, kLeastBlocks = 32;
  const int64_t columns = work.original.needed ? work.original.points.columns : 0;
  const int64_t rows = columns >= kWideColumns ? kWide : kNarrow;
  // A cancel is seen between blocks.
  constexpr int64_t kLargestWork = 600'000'000;
  const int64_t row_work = work.rows * (columns + 2 * ThreadScratch::LargestK(work) + 1);
  return std::clamp<int64_t>(std::min(work.rows / kLeastBlocks, kLargestWork / row_work), 1, rows);
}

absl::StatusOr<Plan> MakePlan(const ResourceWork& work, int threads, int64_t available_bytes) {
  constexpr int64_t kSmallBlock = 4;
  Plan plan{std::max(1, threads), PreferredBlockRows(work), 0};
  const auto bytes = [&] {
    int64_t tiled = 0;
    if (plan.tiled_neighbors || plan.tiled_densities) {
      tiled = SymmetricTiles::Bytes(work.rows, plan.threads);
    }
    if (plan.tiled_neighbors) {
      tiled += TiledNeighbors::Bytes(work.rows, work.original.largest_k, plan.threads);
    }
    return tiled + FixedBytes(work, plan.threads) +
           plan.threads * ThreadScratch::Bytes(work, plan.block_rows);
  };
  plan.tiled_neighbors = CanTile(work);
  plan.tiled_densities =
      !work.original.densities.empty() && SymmetricTiles::Pays(work.original.points);
  if (bytes() > available_bytes) plan.tiled_neighbors = false;
  if (bytes() > available_bytes) plan.block_rows = std::min(plan.block_rows, kSmallBlock);
  while (bytes() > available_bytes && plan.threads > 1) --plan.threads;
  while (bytes() > available_bytes && plan.block_rows > 1) --plan.block_rows;
  // Last of all and for one thread, so that it does not depend on threads: sums over tiles have
  // other bits than sums over rows.
  if (bytes() > available_bytes) plan.tiled_densities = false;
  plan.bytes = bytes();
  if (plan.bytes > available_bytes) {
    return Error(Reason::kExceedsMemoryBudget,
                 absl::StrCat("one row at a time needs ", plan.bytes, " bytes of working memory, ",
                              available_bytes, " are available"))
        .Meta("needed_bytes", plan.bytes)
        .Meta("available_bytes", available_bytes);
  }
  return plan;
}

absl::Status CheckTemporary(const ResourceWork& work) {
  const int64_t needed = OrderedPairs::FileBytes(work);
  if (needed <= work.temporary_bytes) return absl::OkStatus();
  return Error(Reason::kExceedsTemporaryBudget,
               absl::StrCat("temporary files need ", needed, " bytes, the budget is ",
                            work.temporary_bytes, " bytes"))
      .Meta("needed_bytes", needed)
      .Meta("budget_bytes", work.temporary_bytes);
}

template <typename T>
void Store(const T& value, const std::vector<tenon_resource>& outputs) {
  for (const tenon_resource& output : outputs) *static_cast<T*>(output.data) = value;
}

// Builds the outputs of one request.
class Builder {
 public:
  Builder(const ResourceWork& work, const Plan& plan, const int32_t* cancel)
      : work_(work), plan_(plan), parallel_(plan.threads, cancel) {}

  // Of temporary files.
  int64_t file_bytes() const { return ordered_.has_value() ? ordered_->file_bytes() : 0; }
  int64_t file_blocks() const { return ordered_.has_value() ? ordered_->file_blocks() : 0; }

  absl::Status Build() {
    TENON_RETURN_IF_ERROR(TakeMemory());
    TENON_RETURN_IF_ERROR(FirstPass());
    TENON_RETURN_IF_ERROR(FinishPairStatistics());
    TENON_RETURN_IF_ERROR(FinishDensities(work_.original, original_, true));
    TENON_RETURN_IF_ERROR(FinishDensities(work_.embedded, embedded_, false));
    return ordered_.has_value() ? ordered_->Finish(parallel_) : absl::OkStatus();
  }

 private:
  // Called for each row with the keys of its distances (null for a space that was not asked for).
  using RowBody =
      std::function<void(int64_t i, double* original, double* embedded, const ThreadScratch&)>;

  struct SpaceState {
    std::optional<PackedPoints> packed;
    std::vector<double*> condensed;  // where all pairs' distances go
    std::vector<double> row_maxima;
  };

  struct Rows {
    bool original, embedded;            // which spaces
    bool full_original, full_embedded;  // all columns, or only those right of the diagonal
  };

  absl::Status TakeMemory();
  absl::Status ForEachRow(const Rows& rows, const RowBody& body);
  absl::Status FirstPass();
  absl::Status TileNeighbors();
  absl::Status TileDensities(double maximum);
  void StoreNeighbors(int64_t i, const SpaceOutputs& space, const int32_t* nearest) const;
  // The original half of the pairs of a row, which may be consumed.
  PairRow OriginalPairs(int64_t i, double* row) const;
  // Consumes the row.
  PairRow RowOfPairs(const SpaceState& state, int64_t i, double* row) const;
  void TakeNeighbors(int64_t i, const SpaceOutputs& space, const SpaceState& state, double* row,
                     const ThreadScratch& scratch, int64_t k, int32_t* nearest) const;
  void TakeRanks(int64_t i, double* original, double* embedded, const ThreadScratch& scratch) const;
  void TakeRankTable(int64_t i, const double* original, const ThreadScratch& scratch) const;
  void TakeRow(int64_t i, const SpaceOutputs& space, SpaceState& state, const double* row) const;
  absl::Status FinishPairStatistics();
  absl::StatusOr<double> ScaledResidual(const PairStatistics& sums);
  absl::Status FinishDensities(const SpaceOutputs& space, const SpaceState& state, bool original);

  const ResourceWork& work_;
  const Plan& plan_;
  const Parallel parallel_;
  Buffer scratch_;
  SpaceState original_, embedded_;
  std::optional<OrderedPairs> ordered_;
  std::vector<PairStatistics> row_sums_;
};

absl::Status Builder::TakeMemory() {
  TENON_ASSIGN_OR_RETURN(
      scratch_, Buffer::Allocate(plan_.threads * ThreadScratch::Bytes(work_, plan_.block_rows)));
  for (auto [space, state] :
       {std::pair{&work_.original, &original_}, std::pair{&work_.embedded, &embedded_}}) {
    if (!space->needed) continue;
    const bool full =
        space == &work_.original ? work_.FullOriginalRows() : work_.FullEmbeddedRows();
    // Pairs are read as distances, neighbours, ranks and densities do with their squares.
    const bool roots = !full && space->densities.empty();
    TENON_ASSIGN_OR_RETURN(state->packed, PackedPoints::Pack(space->points, roots));
    if (!space->densities.empty()) state->row_maxima.resize(work_.rows);
    for (const tenon_resource& output : space->condensed) {
      state->condensed.push_back(static_cast<double*>(output.data));
    }
  }
  if (!work_.pair_statistics.empty()) row_sums_.resize(work_.rows);
  if (OrderedPairs::NeedsOriginal(work_) || OrderedPairs::NeedsEmbedded(work_)) {
    const auto packed = [](const SpaceState& state) {
      return state.packed.has_value() ? &*state.packed : nullptr;
    };
    TENON_ASSIGN_OR_RETURN(
        ordered_, OrderedPairs::Create(work_, packed(original_), packed(embedded_), plan_.threads));
  }
  return absl::OkStatus();
}

absl::Status Builder::ForEachRow(const Rows& rows, const RowBody& body) {
  const int64_t block_rows = plan_.block_rows, stride = PaddedRows(work_.rows);
  const int64_t blocks = (work_.rows + block_rows - 1) / block_rows;
  return parallel_.ForEach(blocks, [&](int64_t block, int slot) {
    ThreadScratch scratch = ThreadScratch::At(
        scratch_.data() + slot * ThreadScratch::Bytes(work_, block_rows), work_, block_rows);
    scratch.slot = slot;
    const int64_t first = block * block_rows;
    const int64_t count = std::min(block_rows, work_.rows - first);
    const int64_t right = std::min(first + 1, work_.rows - 1);
    if (rows.original) {
      original_.packed->KeyRows(first, count, rows.full_original ? 0 : right, scratch.original);
    }
    if (rows.embedded) {
      embedded_.packed->KeyRows(first, count, rows.full_embedded ? 0 : right, scratch.embedded);
    }
    for (int64_t r = 0; r < count; ++r) {
      body(first + r, rows.original ? scratch.original + r * stride : nullptr,
           rows.embedded ? scratch.embedded + r * stride : nullptr, scratch);
    }
  });
}

absl::Status Builder::TileNeighbors() {
  const SpaceOutputs& space = work_.original;
  const PackedPoints& points = *original_.packed;
  TENON_ASSIGN_OR_RETURN(SymmetricTiles tiles,
                         SymmetricTiles::Create(points, work_.rows, plan_.threads));
  TENON_ASSIGN_OR_RETURN(
      TiledNeighbors neighbors,
      TiledNeighbors::Create(points.kind(), work_.rows, space.largest_k, plan_.threads));
  TENON_RETURN_IF_ERROR(tiles.ForEach(
      parallel_, true,
      [&](const SymmetricTiles::Tile& tile, int slot) { neighbors.Take(tile, slot); }));
  constexpr int64_t kRows = 256;
  return parallel_.ForEach((work_.rows + kRows - 1) / kRows, [&](int64_t block, int) {
    std::vector<int32_t> nearest(space.largest_k);
    for (int64_t i = block * kRows; i < std::min(work_.rows, (block + 1) * kRows); ++i) {
      neighbors.Finish(i, nearest.data());
      StoreNeighbors(i, space, nearest.data());
    }
  });
}

absl::Status Builder::TileDensities(double maximum) {
  TENON_ASSIGN_OR_RETURN(SymmetricTiles tiles,
                         SymmetricTiles::Create(*original_.packed, work_.rows, plan_.threads));
  for (const tenon_resource& output : work_.original.densities) {
    std::fill_n(static_cast<double*>(output.data), work_.rows, 0.0);
  }
  return tiles.ForEach(parallel_, false, [&](const SymmetricTiles::Tile& tile, int) {
    for (const tenon_resource& output : work_.original.densities) {
      auto* sums = static_cast<double*>(output.data);
      const double factor = -1.0 / output.key.parameter / maximum / maximum;
      GaussianTile(tile.keys, tile.n_i, tile.n_j, tile.stride, factor, sums + tile.first_i,
                   tile.is_diagonal() ? nullptr : sums + tile.first_j);
    }
  });
}

void Builder::StoreNeighbors(int64_t i, const SpaceOutputs& space, const int32_t* nearest) const {
  for (const tenon_resource& output : space.neighbors) {
    std::copy_n(nearest, output.key.k, static_cast<int32_t*>(output.data) + i * output.key.k);
  }
}

absl::Status Builder::FirstPass() {
  const bool rows_of_original = work_.original.needed && !plan_.tiled_neighbors;
  if (plan_.tiled_neighbors) TENON_RETURN_IF_ERROR(TileNeighbors());
  if (!rows_of_original && !work_.embedded.needed) return absl::OkStatus();
  const Rows rows{rows_of_original, work_.embedded.needed, work_.FullOriginalRows(),
                  work_.FullEmbeddedRows()};
  return ForEachRow(
      rows, [this](int64_t i, double* original, double* embedded, const ThreadScratch& scratch) {
        const int64_t list = ThreadScratch::LargestK(work_);
        const bool own_original = work_.available_neighbors == nullptr;
        if (original != nullptr) {
          TakeNeighbors(i, work_.original, original_, original, scratch,
                        own_original ? work_.ranks_k : 0, scratch.lists);
        }
        TakeNeighbors(i, work_.embedded, embedded_, embedded, scratch, work_.ranks_k,
                      scratch.lists + list);
        if (work_.ranks_k > 0) TakeRanks(i, original, embedded, scratch);
        if (!work_.rank_tables.empty()) TakeRankTable(i, original, scratch);
        if (original != nullptr) TakeRow(i, work_.original, original_, original);
        if (embedded != nullptr) TakeRow(i, work_.embedded, embedded_, embedded);
        if (ordered_.has_value()) ordered_->TakeRow(scratch.slot, i, original, embedded);
        if (!row_sums_.empty()) {
          row_sums_[i] = PairSums(OriginalPairs(i, original), RowOfPairs(embedded_, i, embedded),
                                  work_.rows - i - 1);
        }
      });
}

PairRow Builder::RowOfPairs(const SpaceState& state, int64_t i, double* row) const {
  const KeyKind kind = state.packed->kind();
  // Only double roots are taken on the way.
  if (kind == KeyKind::kSquareSingle) KeysToDistances(kind, row + i + 1, work_.rows - i - 1);
  return {row + i + 1, kind == KeyKind::kSquare};
}

PairRow Builder::OriginalPairs(int64_t i, double* row) const {
  if (work_.available_condensed == nullptr) return RowOfPairs(original_, i, row);
  return {static_cast<const double*>(work_.available_condensed->data) +
              measurement::PairOffset(work_.rows, i),
          false};
}

void Builder::TakeNeighbors(int64_t i, const SpaceOutputs& space, const SpaceState& state,
                            double* row, const ThreadScratch& scratch, int64_t k,
                            int32_t* nearest) const {
  k = std::max(k, space.largest_k);
  if (k == 0) return;
  NearestOfRow(state.packed->kind(), row, work_.rows, i, k, scratch.candidates, nearest);
  StoreNeighbors(i, space, nearest);
}

void Builder::TakeRanks(int64_t i, double* original, double* embedded,
                        const ThreadScratch& scratch) const {
  const int64_t list = ThreadScratch::LargestK(work_), n = work_.rows, k = work_.ranks_k;
  const int32_t* original_nearest = scratch.lists;
  const int32_t* embedded_nearest = scratch.lists + list;
  if (work_.available_neighbors != nullptr) {
    original_nearest = static_cast<const int32_t*>(work_.available_neighbors->data) +
                       i * work_.available_neighbors->key.k;
  }
  int32_t* ranks = scratch.lists + 2 * list;
  const auto store = [&](int64_t half) {
    for (const tenon_resource& output : work_.selected_ranks) {
      const int64_t offset = half * n * output.key.k + i * output.key.k;
      std::copy_n(ranks, output.key.k, static_cast<int32_t*>(output.data) + offset);
    }
  };
  if (work_.available_table != nullptr) {
    const auto* table = static_cast<const uint16_t*>(work_.available_table->data) + i * n;
    for (int64_t r = 0; r < k; ++r) ranks[r] = table[embedded_nearest[r]];
  } else {
    RanksInRow(original_.packed->kind(), original, n, i, embedded_nearest, k, scratch.ranks, ranks);
  }
  store(0);
  RanksInRow(embedded_.packed->kind(), embedded, n, i, original_nearest, k, scratch.ranks, ranks);
  store(1);
}

void Builder::TakeRankTable(int64_t i, const double* original, const ThreadScratch& scratch) const {
  auto* table = static_cast<uint16_t*>(work_.rank_tables.front().data) + i * work_.rows;
  RankAll(original_.packed->kind(), original, work_.rows, i, scratch.records, table);
  for (const tenon_resource& other : work_.rank_tables) {
    auto* copy = static_cast<uint16_t*>(other.data) + i * work_.rows;
    if (copy != table) std::copy_n(table, work_.rows, copy);
  }
}

void Builder::TakeRow(int64_t i, const SpaceOutputs& space, SpaceState& state,
                      const double* row) const {
  const int64_t n = work_.rows;
  for (double* target : state.condensed) {
    double* const distances = target + measurement::PairOffset(n, i);
    std::copy(row + i + 1, row + n, distances);
    KeysToDistances(state.packed->kind(), distances, n - i - 1);
  }
  if (!space.densities.empty()) {
    state.row_maxima[i] = DistanceOf(state.packed->kind(), Maximum(row + i + 1, n - i - 1));
  }
}

absl::Status Builder::FinishPairStatistics() {
  if (work_.pair_statistics.empty()) return absl::OkStatus();
  PairStatistics total;
  CompensatedSum oo, ee, oe, dd;
  for (const PairStatistics& row : row_sums_) {
    MergeMoments(row, total);
    oo.Add(row.sum_original_squared);
    ee.Add(row.sum_embedded_squared);
    oe.Add(row.sum_product);
    dd.Add(row.sum_difference_squared);
  }
  total.sum_original_squared = oo.Value();
  total.sum_embedded_squared = ee.Value();
  total.sum_product = oe.Value();
  total.sum_difference_squared = dd.Value();
  TENON_ASSIGN_OR_RETURN(total.scaled_residual, ScaledResidual(total));
  Store(total, work_.pair_statistics);
  return absl::OkStatus();
}

absl::StatusOr<double> Builder::ScaledResidual(const PairStatistics& sums) {
  if (!(sums.sum_embedded_squared > 0)) return 0.0;
  const double scale = sums.sum_product / sums.sum_embedded_squared;
  const double residual = sums.sum_original_squared - 2 * scale * sums.sum_product +
                          scale * scale * sums.sum_embedded_squared;
  // The expansion above keeps at least half of the digits; nearer to zero it would be noise.
  constexpr double kHalfOfTheDigits = 1.4901161193847656e-08;
  if (residual > kHalfOfTheDigits * sums.sum_original_squared) return residual;
  const Rows rows{work_.available_condensed == nullptr, true, false, false};
  TENON_RETURN_IF_ERROR(ForEachRow(rows, [&](int64_t i, double* original, double* embedded,
                                             const ThreadScratch&) {
    row_sums_[i].scaled_residual = cpu::ScaledResidual(
        OriginalPairs(i, original), RowOfPairs(embedded_, i, embedded), work_.rows - i - 1, scale);
  }));
  CompensatedSum total;
  for (const PairStatistics& row : row_sums_) total.Add(row.scaled_residual);
  return total.Value();
}

absl::Status Builder::FinishDensities(const SpaceOutputs& space, const SpaceState& state,
                                      bool original) {
  if (space.densities.empty()) return absl::OkStatus();
  const int64_t n = work_.rows;
  const double maximum = *std::max_element(state.row_maxima.begin(), state.row_maxima.end());
  if (maximum > 0 && original && plan_.tiled_densities) {
    TENON_RETURN_IF_ERROR(TileDensities(maximum));
  } else if (maximum > 0) {
    const Rows rows{original, !original, true, true};
    TENON_RETURN_IF_ERROR(ForEachRow(
        rows, [&](int64_t i, double* original_row, double* embedded_row, const ThreadScratch&) {
          double* row = original ? original_row : embedded_row;
          if (state.packed->kind() == KeyKind::kDistance) {
            for (int64_t j = 0; j < n; ++j) row[j] *= row[j];
          }
          for (const tenon_resource& output : space.densities) {
            const double factor = -1.0 / output.key.parameter / maximum / maximum;
            static_cast<double*>(output.data)[i] = GaussianSum(row, n, factor);
          }
        }));
  }
  for (const tenon_resource& output : space.densities) {
    double* density = static_cast<double*>(output.data);
    density[n] = maximum;
    if (!(maximum > 0)) {
      std::fill_n(density, n, 0.0);
      continue;
    }
    CompensatedSum total;
    for (int64_t i = 0; i < n; ++i) total.Add(density[i]);
    for (int64_t i = 0; i < n; ++i) density[i] /= total.Value();
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t ResourceKinds() {
  return 1u << TENON_RESOURCE_KNN | 1u << TENON_RESOURCE_DENSITY | 1u << TENON_RESOURCE_PAIR_ORDER |
         1u << TENON_RESOURCE_CONDENSED | 1u << TENON_RESOURCE_PAIR_STATISTICS |
         1u << TENON_RESOURCE_ORDERED_PAIR_STATISTICS | 1u << TENON_RESOURCE_SELECTED_RANKS |
         1u << TENON_RESOURCE_RANK_TABLE;
}

absl::StatusOr<int64_t> ResourceWorkingMemory(const tenon_resource_request& request,
                                              int64_t available_bytes) {
  TENON_ASSIGN_OR_RETURN(const ResourceWork work, CheckRequest(request, false));
  TENON_ASSIGN_OR_RETURN(const Plan plan, MakePlan(work, request.threads, available_bytes));
  return plan.bytes;
}

absl::Status BuildResources(const tenon_resource_request& request,
                            tenon_resource_statistics* statistics) {
  const auto start = std::chrono::steady_clock::now();
  try {
    TENON_ASSIGN_OR_RETURN(const ResourceWork work, CheckRequest(request, true));
    TENON_ASSIGN_OR_RETURN(const Plan plan,
                           MakePlan(work, request.threads, request.working_memory_bytes));
    TENON_RETURN_IF_ERROR(CheckTemporary(work));
    Builder builder(work, plan, request.cancel);
    TENON_RETURN_IF_ERROR(builder.Build());
    *statistics = {};
    statistics->struct_size = sizeof(*statistics);
    statistics->timing_scope = 1;
    statistics->block_rows = plan.block_rows;
    statistics->working_bytes = plan.bytes;
    statistics->temporary_bytes = builder.file_bytes();
    statistics->sorted_runs = builder.file_blocks();
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "the system refused memory for a resource");
  }
  statistics->execution_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return absl::OkStatus();
}

}  // namespace tenon::cpu
