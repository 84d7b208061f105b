#include "backends/cpu/resources.h"

#include <algorithm>
#include <atomic>
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
#include "backends/cpu/distance_filter.h"
#include "backends/cpu/filtered_rows.h"
#include "backends/cpu/ordered_pairs.h"
#include "backends/cpu/pair_sums.h"
#include "backends/cpu/resource_plan.h"
#include "backends/cpu/resource_request.h"
#include "backends/cpu/row_kernels.h"
#include "backends/cpu/symmetric_pass.h"
#include "backends/measurement/summation.h"

namespace tenon::cpu {
namespace {

using measurement::CompensatedSum;
using measurement::PairStatistics;

template <typename T>
void Store(const T& value, const std::vector<tenon_resource>& outputs) {
  for (const tenon_resource& output : outputs) *static_cast<T*>(output.data) = value;
}

// Builds the outputs of one request.
class Builder {
 public:
  Builder(const ResourceWork& work, const ResourcePlan& plan, const int32_t* cancel)
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
  // The keys of the distances of row i (null for a space that was not asked for).
  struct Row {
    int64_t i;
    double* original;
    float* filtered;  // in the place of the original keys, until they are asked for
    double* embedded;
  };
  using RowBody = std::function<void(Row& row, const ThreadScratch&)>;

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
  absl::Status TileDensities(double maximum);
  void StoreNeighbors(int64_t i, const SpaceOutputs& space, const int32_t* nearest) const;
  // The original half of the pairs of a row, which may be consumed.
  PairRow OriginalPairs(int64_t i, double* row) const;
  // Consumes the row.
  PairRow RowOfPairs(const SpaceState& state, int64_t i, double* row) const;
  void TakeNeighbors(int64_t i, const SpaceOutputs& space, const SpaceState& state, double* row,
                     const ThreadScratch& scratch, int64_t k, int32_t* nearest) const;
  bool FilterPays(int64_t rows_before) const;
  double* ExactOriginal(Row& row, const ThreadScratch& scratch) const;
  void TakeOriginalNeighbors(Row& row, const ThreadScratch& scratch) const;
  void TakeOriginalRanks(Row& row, const int32_t* targets, const ThreadScratch& scratch,
                         int32_t* ranks) const;
  void TakeRanks(Row& row, const ThreadScratch& scratch) const;
  void TakeRankTable(int64_t i, const double* original, const ThreadScratch& scratch) const;
  void TakeRow(int64_t i, const SpaceOutputs& space, SpaceState& state, const double* row) const;
  absl::Status FinishPairStatistics();
  absl::StatusOr<double> ScaledResidual(const PairStatistics& sums);
  absl::Status FinishDensities(const SpaceOutputs& space, const SpaceState& state, bool original);

  const ResourceWork& work_;
  const ResourcePlan& plan_;
  const Parallel parallel_;
  Buffer scratch_;
  SpaceState original_, embedded_;
  std::optional<DistanceFilter> filter_;
  mutable std::atomic<int64_t> undecided_ = 0;  // filtered rows
  std::optional<OrderedPairs> ordered_;
  std::vector<PairStatistics> row_sums_;
};

absl::Status Builder::TakeMemory() {
  TENON_ASSIGN_OR_RETURN(scratch_,
                         Buffer::Allocate(plan_.threads * ThreadScratch::Bytes(work_, plan_)));
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
  if (plan_.filtered) {
    TENON_ASSIGN_OR_RETURN(filter_, DistanceFilter::Create(work_.original.points));
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
    const ThreadScratch scratch = ThreadScratch::At(scratch_.data(), slot, work_, plan_);
    const int64_t first = block * block_rows;
    const int64_t count = std::min(block_rows, work_.rows - first);
    const int64_t right = std::min(first + 1, work_.rows - 1);
    const bool filtered = rows.original && FilterPays(first);
    auto* values = reinterpret_cast<float*>(scratch.original);
    if (filtered) {
      filter_->Rows(first, count, values);
    } else if (rows.original) {
      original_.packed->KeyRows(first, count, rows.full_original ? 0 : right, scratch.original);
    }
    if (rows.embedded) {
      embedded_.packed->KeyRows(first, count, rows.full_embedded ? 0 : right, scratch.embedded);
    }
    for (int64_t r = 0; r < count; ++r) {
      Row row{first + r, nullptr, nullptr, nullptr};
      if (filtered) row.filtered = values + r * DistanceFilter::Stride(work_.rows);
      if (rows.original && !filtered) row.original = scratch.original + r * stride;
      if (rows.embedded) row.embedded = scratch.embedded + r * stride;
      body(row, scratch);
    }
  });
}

// Rows that are undecided are computed twice.
bool Builder::FilterPays(int64_t rows_before) const {
  constexpr int64_t kAtLeast = 64, kPart = 8;
  return filter_.has_value() && undecided_ * kPart <= rows_before + kAtLeast;
}

double* Builder::ExactOriginal(Row& row, const ThreadScratch& scratch) const {
  if (row.original == nullptr) {
    original_.packed->KeyRows(row.i, 1, 0, scratch.exact);
    row.original = scratch.exact;
    ++undecided_;
  }
  return row.original;
}

// A power of four that squares of distances are multiplied with, exactly, where that of the largest
// one is no ordinary number or its inverse is none.
double SquareScale(double maximum) { return maximum < 1e-140 ? 0x1p1000 : 1.0; }

double GaussianFactor(double sigma, double maximum) {
  const double scaled = maximum * std::sqrt(SquareScale(maximum));
  return -1.0 / sigma / scaled / scaled;
}

void ScaleSquares(double maximum, double* squares, int64_t count) {
  const double scale = SquareScale(maximum);
  for (int64_t j = 0; j < count && scale != 1; ++j) squares[j] *= scale;
}

absl::Status Builder::TileDensities(double maximum) {
  TENON_ASSIGN_OR_RETURN(SymmetricTiles tiles,
                         SymmetricTiles::Create(*original_.packed, work_.rows, plan_.threads));
  for (const tenon_resource& output : work_.original.densities) {
    std::fill_n(static_cast<double*>(output.data), work_.rows, 0.0);
  }
  return tiles.ForEach(parallel_, [&](const SymmetricTiles::Tile& tile, int) {
    for (int64_t i = 0; i < tile.n_i; ++i) {
      ScaleSquares(maximum, tile.keys + i * tile.stride, tile.n_j);
    }
    for (const tenon_resource& output : work_.original.densities) {
      auto* sums = static_cast<double*>(output.data);
      const double factor = GaussianFactor(output.key.parameter, maximum);
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
  if (!work_.original.needed && !work_.embedded.needed) return absl::OkStatus();
  const Rows rows{work_.original.needed, work_.embedded.needed, work_.FullOriginalRows(),
                  work_.FullEmbeddedRows()};
  return ForEachRow(rows, [this](Row& row, const ThreadScratch& scratch) {
    const int64_t i = row.i;
    TakeOriginalNeighbors(row, scratch);
    TakeNeighbors(i, work_.embedded, embedded_, row.embedded, scratch, work_.ranks_k,
                  scratch.lists + ThreadScratch::LargestK(work_));
    if (work_.ranks_k > 0) TakeRanks(row, scratch);
    if (!work_.rank_tables.empty()) TakeRankTable(i, row.original, scratch);
    if (row.original != nullptr) TakeRow(i, work_.original, original_, row.original);
    if (row.embedded != nullptr) TakeRow(i, work_.embedded, embedded_, row.embedded);
    if (ordered_.has_value()) ordered_->TakeRow(scratch.slot, i, row.original, row.embedded);
    if (!row_sums_.empty()) {
      row_sums_[i] = PairSums(OriginalPairs(i, row.original),
                              RowOfPairs(embedded_, i, row.embedded), work_.rows - i - 1);
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

void Builder::TakeOriginalNeighbors(Row& row, const ThreadScratch& scratch) const {
  const SpaceOutputs& space = work_.original;
  const int64_t for_ranks = work_.available_neighbors == nullptr ? work_.ranks_k : 0;
  const int64_t k = std::max(for_ranks, space.largest_k);
  if (!space.needed || k == 0) return;
  if (row.filtered != nullptr && NearestOfFilteredRow({*filter_, row.i, row.filtered, work_.rows},
                                                      k, scratch.candidates, scratch.lists)) {
    return StoreNeighbors(row.i, space, scratch.lists);
  }
  TakeNeighbors(row.i, space, original_, ExactOriginal(row, scratch), scratch, k, scratch.lists);
}

void Builder::TakeOriginalRanks(Row& row, const int32_t* targets, const ThreadScratch& scratch,
                                int32_t* ranks) const {
  const int64_t n = work_.rows, k = work_.ranks_k;
  if (work_.available_table != nullptr) {
    const auto* table = static_cast<const uint16_t*>(work_.available_table->data) + row.i * n;
    for (int64_t r = 0; r < k; ++r) ranks[r] = table[targets[r]];
    return;
  }
  if (row.original == nullptr && RanksInFilteredRow({*filter_, row.i, row.filtered, n}, targets, k,
                                                    scratch.filtered_ranks, ranks)) {
    return;
  }
  RanksInRow(original_.packed->kind(), ExactOriginal(row, scratch), n, row.i, targets, k,
             scratch.ranks, ranks);
}

void Builder::TakeRanks(Row& row, const ThreadScratch& scratch) const {
  const int64_t list = ThreadScratch::LargestK(work_), n = work_.rows, k = work_.ranks_k;
  const int64_t i = row.i;
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
  TakeOriginalRanks(row, embedded_nearest, scratch, ranks);
  store(0);
  RanksInRow(embedded_.packed->kind(), row.embedded, n, i, original_nearest, k, scratch.ranks,
             ranks);
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
  TENON_RETURN_IF_ERROR(ForEachRow(rows, [&](Row& row, const ThreadScratch&) {
    row_sums_[row.i].scaled_residual = cpu::ScaledResidual(
        OriginalPairs(row.i, row.original), RowOfPairs(embedded_, row.i, row.embedded),
        work_.rows - row.i - 1, scale);
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
    TENON_RETURN_IF_ERROR(ForEachRow(rows, [&](Row& row, const ThreadScratch&) {
      double* squares = original ? row.original : row.embedded;
      if (state.packed->kind() == KeyKind::kDistance) {
        for (int64_t j = 0; j < n; ++j) squares[j] *= squares[j];
      }
      ScaleSquares(maximum, squares, n);
      for (const tenon_resource& output : space.densities) {
        const double factor = GaussianFactor(output.key.parameter, maximum);
        static_cast<double*>(output.data)[row.i] = GaussianSum(squares, n, factor);
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
  TENON_ASSIGN_OR_RETURN(const ResourcePlan plan,
                         PlanResources(work, request.threads, available_bytes));
  return plan.bytes;
}

absl::Status BuildResources(const tenon_resource_request& request,
                            tenon_resource_statistics* statistics) {
  const auto start = std::chrono::steady_clock::now();
  try {
    TENON_ASSIGN_OR_RETURN(const ResourceWork work, CheckRequest(request, true));
    TENON_ASSIGN_OR_RETURN(const ResourcePlan plan,
                           PlanResources(work, request.threads, request.working_memory_bytes));
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
