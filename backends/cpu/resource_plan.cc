#include "backends/cpu/resource_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/cpu/distance.h"
#include "backends/cpu/ordered_pairs.h"
#include "backends/cpu/pair_sums.h"
#include "backends/cpu/symmetric_pass.h"
#include "backends/measurement/resource.h"

namespace tenon::cpu {
namespace {

int64_t AlignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Whether all that is wanted of the original distances is neighbours and ranks, and they are dear.
bool CanFilter(const ResourceWork& work) {
  const SpaceOutputs& space = work.original;
  const bool pairs = !work.pair_statistics.empty() && work.available_condensed == nullptr;
  const bool ranks = !work.selected_ranks.empty() && work.available_table == nullptr;
  return (ranks || !space.neighbors.empty()) && space.densities.empty() &&
         space.condensed.empty() && work.rank_tables.empty() && work.pair_orders.empty() &&
         !pairs && !work.is_external && DistanceFilter::Pays(space.points);
}

// Scratch that does not depend on threads and blocks.
int64_t FixedBytes(const ResourceWork& work, const ResourcePlan& plan) {
  int64_t bytes = OrderedPairs::Bytes(work, plan.threads);
  if (work.original.needed) bytes += PackedPoints::Bytes(work.original.points);
  if (work.embedded.needed) bytes += PackedPoints::Bytes(work.embedded.points);
  if (plan.filtered) bytes += DistanceFilter::Bytes(work.original.points);
  if (plan.tiled_densities) bytes += SymmetricTiles::Bytes(work.rows, plan.threads);
  if (!work.pair_statistics.empty()) {
    bytes += work.rows * int64_t{sizeof(measurement::PairStatistics)};
  }
  return bytes + 2 * work.rows * int64_t{sizeof(double)};  // row maxima
}

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

int64_t RowBytes(const ResourceWork& work) {
  return PaddedRows(work.rows) * int64_t{sizeof(double)};
}

// Beside a block, exact or (narrower) filtered, room for one exact row.
int64_t OriginalBytes(const ResourceWork& work, const ResourcePlan& plan) {
  return (plan.block_rows + int64_t{plan.filtered}) * RowBytes(work);
}

}  // namespace

absl::StatusOr<ResourcePlan> PlanResources(const ResourceWork& work, int threads,
                                           int64_t available_bytes) {
  constexpr int64_t kSmallBlock = 4;
  ResourcePlan plan;
  plan.threads = std::max(1, threads);
  plan.block_rows = PreferredBlockRows(work);
  const auto bytes = [&] {
    return FixedBytes(work, plan) + plan.threads * ThreadScratch::Bytes(work, plan);
  };
  plan.filtered = CanFilter(work);
  plan.tiled_densities =
      !work.original.densities.empty() && SymmetricTiles::Pays(work.original.points);
  if (bytes() > available_bytes) plan.filtered = false;
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

int64_t ThreadScratch::LargestK(const ResourceWork& work) {
  return std::max({work.original.largest_k, work.embedded.largest_k, work.ranks_k});
}

int64_t ThreadScratch::Bytes(const ResourceWork& work, const ResourcePlan& plan) {
  const int64_t k = LargestK(work);
  const int64_t candidates = CandidateCapacity(k) * int64_t{sizeof(Neighbor) + sizeof(int32_t)};
  const int64_t records = work.rank_tables.empty()
                              ? 0
                              : 2 * work.rows * static_cast<int64_t>(sizeof(PairRecord<uint32_t>));
  return AlignUp(OriginalBytes(work, plan) + plan.block_rows * RowBytes(work) + candidates +
                 5 * k * 8 + 4 * k * 4 + records);
}

ThreadScratch ThreadScratch::At(std::byte* memory, int slot, const ResourceWork& work,
                                const ResourcePlan& plan) {
  memory += slot * Bytes(work, plan);
  const int64_t original = OriginalBytes(work, plan), k = LargestK(work);
  const int64_t capacity = CandidateCapacity(k);
  ThreadScratch scratch;
  scratch.slot = slot;
  scratch.original = reinterpret_cast<double*>(memory);
  scratch.embedded = reinterpret_cast<double*>(memory + original);
  scratch.exact = reinterpret_cast<double*>(memory + original - RowBytes(work));
  memory += original + plan.block_rows * RowBytes(work);
  scratch.candidates.candidates = reinterpret_cast<Neighbor*>(memory);
  double* numbers = reinterpret_cast<double*>(scratch.candidates.candidates + capacity);
  scratch.ranks.bounds = numbers;
  scratch.ranks.counts = reinterpret_cast<int64_t*>(numbers + 3 * k);
  // Of a row either exact or filtered ranks are taken at a time.
  scratch.filtered_ranks.keys = numbers;
  scratch.filtered_ranks.bounds = reinterpret_cast<float*>(numbers + k);
  scratch.filtered_ranks.tile_counts = reinterpret_cast<int64_t*>(numbers + 2 * k);
  scratch.filtered_ranks.counts = reinterpret_cast<int64_t*>(numbers + 4 * k);
  scratch.candidates.found = reinterpret_cast<int32_t*>(numbers + 5 * k);
  scratch.ranks.order = scratch.candidates.found + capacity;
  scratch.lists = scratch.ranks.order + k;
  scratch.records = reinterpret_cast<PairRecord<uint32_t>*>(scratch.lists + 3 * k);
  return scratch;
}

}  // namespace tenon::cpu
