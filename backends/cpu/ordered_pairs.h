// The orders of pairs of one request: what rows give to them, and what is made of them.
//
// In memory, the order of the original space is a resource that projections look ranks or positions
// up in. In files, pairs are sorted by both distances for each projection, and memory does not grow
// with their number.

#ifndef TENON_BACKENDS_CPU_ORDERED_PAIRS_H_
#define TENON_BACKENDS_CPU_ORDERED_PAIRS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"
#include "backends/cpu/distance.h"
#include "backends/cpu/pair_buckets.h"
#include "backends/cpu/pair_order.h"
#include "backends/cpu/resource_request.h"
#include "backends/cpu/spill_file.h"

namespace tenon::cpu {

class OrderedPairs {
 public:
  // Whether rows of a space are needed.
  static bool NeedsOriginal(const ResourceWork& work) {
    return !work.pair_orders.empty() || work.is_external;
  }
  static bool NeedsEmbedded(const ResourceWork& work) {
    return !work.rank_correlations.empty() || !work.isotonic_fits.empty();
  }
  // Scratch in memory, and of files.
  static int64_t Bytes(const ResourceWork& work, int threads);
  static int64_t FileBytes(const ResourceWork& work);

  // Looks at a few rows of the points to divide distances into buckets. `work` outlives this; the
  // points of a space that is not needed are null.
  static absl::StatusOr<OrderedPairs> Create(const ResourceWork& work, const PackedPoints* original,
                                             const PackedPoints* embedded, int threads);

  // Takes the pairs (i, j), j > i, from rows of keys, null where a space is not needed. Calls with
  // different slots may run at once.
  void TakeRow(int slot, int64_t i, const double* original, const double* embedded);

  // Fills the outputs, once all rows were taken.
  absl::Status Finish(const Parallel& parallel);

  // Of files, at most at once.
  int64_t file_bytes() const { return file_bytes_; }
  int64_t file_blocks() const { return file_blocks_; }

 private:
  static PairBuckets<uint32_t>::Options RankRecords(const ResourceWork& work, int threads);
  static PairBuckets<double>::Options SpilledRecords(const ResourceWork& work, int threads);

  absl::Status CreateInMemory(const ResourceWork& work, const PackedPoints* original,
                              const PackedPoints* embedded, int threads);
  absl::Status CreateExternal(const ResourceWork& work, const PackedPoints* original,
                              const PackedPoints* embedded, int threads);
  const double* Distances(int slot, int64_t i, KeyKind kind, const double* keys, int half);
  void TakeInMemory(int slot, int64_t i, const double* original, const double* embedded);
  absl::Status FinishInMemory(const Parallel& parallel);
  absl::Status FinishExternal(const Parallel& parallel);
  absl::Status RankExternally(const Parallel& parallel,
                              measurement::OrderedPairStatistics& statistics);
  absl::Status FitExternally(const Parallel& parallel,
                             measurement::OrderedPairStatistics& statistics);
  void Store(const measurement::OrderedPairStatistics& statistics,
             const std::vector<tenon_resource>& outputs) const;

  const ResourceWork* work_ = nullptr;
  KeyKind original_kind_ = KeyKind::kSquare, embedded_kind_ = KeyKind::kSquare;
  Buffer rows_;  // two rows of distances per slot
  // In memory.
  std::optional<PairBuckets<uint32_t>> original_, embedded_;
  std::optional<OrderedValues> values_;
  PairOrderView ranks_, positions_;
  // In files: records by original distance, then by embedded distance.
  std::unique_ptr<SpillFile> file_, second_file_;
  std::optional<PairBuckets<double>> by_original_, by_embedded_;
  int64_t file_bytes_ = 0, file_blocks_ = 0;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_ORDERED_PAIRS_H_
