#include "backends/cpu/resource_request.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/core/strings.h"

namespace tenon::cpu {
namespace {

absl::Status CheckMatrix(const tenon_matrix& points, std::string_view name, bool for_building) {
  const std::string label(name);
  if (points.rows < 2 || points.rows > std::numeric_limits<int32_t>::max()) {
    return Error(Reason::kTooFewRows,
                 absl::StrCat("the ", label, " space has ", points.rows,
                              " rows, at least 2 and at most 2147483647 are needed"))
        .Meta("rows", points.rows);
  }
  if (points.dtype != TENON_DTYPE_FLOAT64 && points.dtype != TENON_DTYPE_FLOAT32) {
    return Error(Reason::kUnsupportedDtype, absl::StrCat("the points of the ", label,
                                                         " space are neither float64 nor float32"));
  }
  const int64_t least = points.geodesic != 0 ? 2 : 1;
  if (points.columns < least) {
    return Error(Reason::kShapeMismatch, absl::StrCat("the ", label, " space has ", points.columns,
                                                      " columns, at least ", least, " are needed"))
        .Meta("columns", points.columns);
  }
  if (for_building && points.data == nullptr) {
    return Error(Reason::kBadParameter,
                 absl::StrCat("the points of the ", label, " space are missing"));
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const tenon_resource& output, int64_t rows, bool for_building) {
  TENON_ASSIGN_OR_RETURN(const int64_t bytes, measurement::ResourceBytes(output.key, rows));
  if (!for_building || (output.data != nullptr && output.bytes == bytes)) return absl::OkStatus();
  return Error(Reason::kShapeMismatch,
               absl::StrCat("resource '", ToAbsl(measurement::KindName(output.key.kind)),
                            "' needs ", bytes, " bytes, its memory has ", output.bytes))
      .Meta("expected_bytes", bytes)
      .Meta("actual_bytes", output.bytes);
}

void AddOneSpaceOutput(const tenon_resource& output, SpaceOutputs& space) {
  space.needed = true;
  switch (output.key.kind) {
    case TENON_RESOURCE_KNN:
      space.neighbors.push_back(output);
      space.largest_k = std::max(space.largest_k, output.key.k);
      break;
    case TENON_RESOURCE_DENSITY:
      space.densities.push_back(output);
      break;
    default:
      space.condensed.push_back(output);
  }
}

// Puts an output whose key was checked where it belongs.
void AddOutput(const tenon_resource& output, ResourceWork& work) {
  switch (output.key.kind) {
    case TENON_RESOURCE_SELECTED_RANKS:
      work.selected_ranks.push_back(output);
      work.ranks_k = std::max(work.ranks_k, output.key.k);
      work.embedded.needed = true;
      break;
    case TENON_RESOURCE_RANK_TABLE:
      work.rank_tables.push_back(output);
      work.original.needed = true;
      break;
    case TENON_RESOURCE_PAIR_STATISTICS:
      work.pair_statistics.push_back(output);
      work.embedded.needed = true;
      break;
    case TENON_RESOURCE_PAIR_ORDER:
      work.pair_orders.push_back(output);
      work.original.needed = true;
      break;
    case TENON_RESOURCE_ORDERED_PAIR_STATISTICS:
      (output.key.parameter == measurement::kIsotonicFit ? work.isotonic_fits
                                                         : work.rank_correlations)
          .push_back(output);
      work.embedded.needed = true;
      break;
    default:
      AddOneSpaceOutput(
          output, output.key.space == TENON_RESOURCE_ORIGINAL ? work.original : work.embedded);
  }
}

// Plans are made before the memory is there.
void FindAvailable(const tenon_resource_request& request, bool for_building, ResourceWork& work) {
  for (int32_t r = 0; r < request.n_available; ++r) {
    const tenon_resource& resource = request.available[r];
    if (resource.key.space != TENON_RESOURCE_ORIGINAL) continue;
    if (for_building && resource.data == nullptr) continue;
    const auto bytes = measurement::ResourceBytes(resource.key, work.rows);
    if (!bytes.ok() || *bytes != resource.bytes) continue;
    if (resource.key.kind == TENON_RESOURCE_PAIR_ORDER) {
      (resource.key.parameter == measurement::kRankOrder ? work.available_ranks
                                                         : work.available_positions) = &resource;
    }
    if (resource.key.kind == TENON_RESOURCE_RANK_TABLE) work.available_table = &resource;
    if (resource.key.kind == TENON_RESOURCE_CONDENSED) work.available_condensed = &resource;
    if (resource.key.kind == TENON_RESOURCE_KNN && resource.key.k >= work.ranks_k) {
      work.available_neighbors = &resource;
    }
  }
}

}  // namespace

absl::StatusOr<ResourceWork> CheckRequest(const tenon_resource_request& request,
                                          bool for_building) {
  if (request.n_outputs < 1) return Error(Reason::kBadParameter, "no resource is asked for");
  ResourceWork work;
  work.rows = std::max(request.original.rows, request.embedded.rows);
  for (int32_t o = 0; o < request.n_outputs; ++o) {
    TENON_RETURN_IF_ERROR(CheckOutput(request.outputs[o], work.rows, for_building));
    AddOutput(request.outputs[o], work);
  }
  FindAvailable(request, for_building, work);
  // Without the neighbours that are looked up in the embedded space, rows are needed all the same.
  if (work.available_neighbors == nullptr) work.available_table = nullptr;
  work.temporary_directory = request.temporary_directory;
  work.temporary_bytes = request.temporary_bytes;
  const bool lacks_order = (!work.rank_correlations.empty() && work.available_ranks == nullptr) ||
                           (!work.isotonic_fits.empty() && work.available_positions == nullptr);
  work.is_external = lacks_order && request.temporary_directory != nullptr;
  if (for_building && lacks_order && !work.is_external) {
    return Error(Reason::kBadParameter, "the pair order of the original space is missing");
  }
  work.original.needed |= work.is_external;
  work.original.needed |= !work.selected_ranks.empty() && work.available_table == nullptr;
  work.original.needed |= !work.pair_statistics.empty() && work.available_condensed == nullptr;
  work.original.points = request.original;
  work.embedded.points = request.embedded;
  if (work.original.needed) {
    TENON_RETURN_IF_ERROR(CheckMatrix(request.original, "original", for_building));
  }
  if (work.embedded.needed) {
    TENON_RETURN_IF_ERROR(CheckMatrix(request.embedded, "embedded", for_building));
    if (request.embedded.geodesic != 0) {
      return Error(Reason::kBadParameter, "geodesic distances are for the original space only");
    }
  }
  if (work.original.needed && work.embedded.needed &&
      request.original.rows != request.embedded.rows) {
    return Error(Reason::kShapeMismatch,
                 absl::StrCat("the original space has ", request.original.rows,
                              " rows, the embedded one ", request.embedded.rows));
  }
  return work;
}

}  // namespace tenon::cpu
