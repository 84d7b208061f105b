// Checks a resource request and sorts its outputs by what they take from a row of distances.

#ifndef TENON_BACKENDS_CPU_RESOURCE_REQUEST_H_
#define TENON_BACKENDS_CPU_RESOURCE_REQUEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/measurement/resource.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// The outputs that concern one space only. Pointers are the caller's; null in a planning request.
struct SpaceOutputs {
  tenon_matrix points{};
  bool needed = false;  // distances of this space are needed
  std::vector<tenon_resource> neighbors, densities, condensed;
  int64_t largest_k = 0;  // of `neighbors`

  bool FullRows() const { return !neighbors.empty(); }
};

// A checked request.
struct ResourceWork {
  int64_t rows = 0;
  SpaceOutputs original, embedded;
  std::vector<tenon_resource> rank_tables, selected_ranks, pair_statistics, pair_orders,
      rank_correlations, isotonic_fits;
  int64_t ranks_k = 0;                                  // the largest k of `selected_ranks`
  const tenon_resource* available_ranks = nullptr;      // PAIR_ORDER of the original space
  const tenon_resource* available_positions = nullptr;  // the same, kPositionOrder
  const tenon_resource* available_table = nullptr;      // RANK_TABLE, if it has what ranks need
  const tenon_resource* available_condensed = nullptr;  // CONDENSED of the original space
  const tenon_resource* available_neighbors = nullptr;  // KNN of the original space, k >= ranks_k

  const char* temporary_directory = nullptr;  // null: no files
  int64_t temporary_bytes = 0;
  bool is_external = false;  // orders of pairs are made in files

  int64_t pairs() const { return measurement::PairCount(rows); }
  // Whether rows of all columns are read, not only those right of the diagonal.
  bool FullOriginalRows() const {
    return original.FullRows() || !rank_tables.empty() ||
           (!selected_ranks.empty() && available_table == nullptr);
  }
  bool FullEmbeddedRows() const { return embedded.FullRows() || !selected_ranks.empty(); }
};

// Sorts the outputs of `request`. With `for_building` data pointers and sizes are checked too.
// Errors: BAD_PARAMETER (no outputs, bad key, missing matrix or resource), TOO_FEW_ROWS,
// SHAPE_MISMATCH (rows, sizes), UNSUPPORTED_DTYPE, those of ResourceBytes.
absl::StatusOr<ResourceWork> CheckRequest(const tenon_resource_request& request, bool for_building);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_RESOURCE_REQUEST_H_
