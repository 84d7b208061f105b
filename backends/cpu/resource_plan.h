// How a resource request is done: threads, blocks, working memory. The bits of the results do not
// depend on it, except those of densities (tiled_densities).

#ifndef TENON_BACKENDS_CPU_RESOURCE_PLAN_H_
#define TENON_BACKENDS_CPU_RESOURCE_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cpu/filtered_rows.h"
#include "backends/cpu/resource_request.h"
#include "backends/cpu/row_kernels.h"

namespace tenon::cpu {

struct ResourcePlan {
  int threads = 1;
  int64_t block_rows = 1;
  bool filtered = false;         // rows of the original space are approximate where that decides
  bool tiled_densities = false;  // of the original space
  int64_t bytes = 0;             // working memory
};

// EXCEEDS_MEMORY_BUDGET naming what the smallest plan needs.
absl::StatusOr<ResourcePlan> PlanResources(const ResourceWork& work, int threads,
                                           int64_t available_bytes);

// EXCEEDS_TEMPORARY_BUDGET if the files do not fit.
absl::Status CheckTemporary(const ResourceWork& work);

// Scratch of one thread: distance rows of two spaces, neighbour candidates and lists.
struct ThreadScratch {
  double* original;  // or rows of floats
  double* exact;     // one row, with filtered rows
  double* embedded;
  CandidateScratch candidates;
  RankScratch ranks;
  FilteredRankScratch filtered_ranks;
  int32_t* lists;                 // 3 * LargestK
  PairRecord<uint32_t>* records;  // 2 * rows, for rank tables
  int slot;

  static int64_t LargestK(const ResourceWork& work);
  static int64_t Bytes(const ResourceWork& work, const ResourcePlan& plan);
  static ThreadScratch At(std::byte* memory, int slot, const ResourceWork& work,
                          const ResourcePlan& plan);
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_RESOURCE_PLAN_H_
