#include "backends/measurement/resource.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/core/strings.h"
#include "backends/core/tensor.h"

namespace tenon::measurement {
namespace {

absl::Status BadKey(const ResourceKey& key, std::string_view what) {
  return Error(Reason::kBadParameter,
               absl::StrCat("resource ", ToAbsl(KindName(key.kind)), " of the ",
                            ToAbsl(SpaceName(key.space)), " space: ", ToAbsl(what)));
}

bool IsOneSpace(const ResourceKey& key) {
  return key.space == TENON_RESOURCE_ORIGINAL || key.space == TENON_RESOURCE_EMBEDDED;
}

absl::Status CheckKey(const ResourceKey& key, int64_t n) {
  const bool has_k = key.kind == TENON_RESOURCE_KNN || key.kind == TENON_RESOURCE_SELECTED_RANKS;
  if (has_k && (key.k < 1 || key.k >= n)) {
    return BadKey(key, absl::StrCat("k = ", key.k, " is not in 1 .. ", n - 1));
  }
  bool space_fits = false;
  switch (key.kind) {
    case TENON_RESOURCE_DENSITY:
      if (!(key.parameter > 0) || !std::isfinite(key.parameter)) {
        return BadKey(key, "sigma is not positive and finite");
      }
      [[fallthrough]];
    case TENON_RESOURCE_KNN:
    case TENON_RESOURCE_CONDENSED:
      space_fits = IsOneSpace(key);
      break;
    case TENON_RESOURCE_RANK_TABLE:
      space_fits = key.space == TENON_RESOURCE_ORIGINAL;
      break;
    case TENON_RESOURCE_PAIR_ORDER:
      if (key.parameter != kRankOrder && key.parameter != kPositionOrder) {
        return BadKey(key, "the parameter names no order");
      }
      space_fits = key.space == TENON_RESOURCE_ORIGINAL;
      break;
    case TENON_RESOURCE_ORDERED_PAIR_STATISTICS:
      if (key.parameter != kRankCorrelation && key.parameter != kIsotonicFit) {
        return BadKey(key, "the parameter names no part");
      }
      [[fallthrough]];
    default:
      space_fits = key.space == TENON_RESOURCE_PAIR;
  }
  return space_fits ? absl::OkStatus() : BadKey(key, "the kind does not exist for this space");
}

}  // namespace

bool SameKey(const ResourceKey& a, const ResourceKey& b) {
  return a.kind == b.kind && a.space == b.space && a.k == b.k && a.parameter == b.parameter;
}

std::string_view KindName(int32_t kind) {
  static constexpr std::string_view kNames[] = {"unknown",
                                                "knn",
                                                "density",
                                                "pair_order",
                                                "condensed",
                                                "pair_statistics",
                                                "ordered_pair_statistics",
                                                "selected_ranks",
                                                "neighbor_statistics",
                                                "topographic",
                                                "rank_table"};
  return kNames[kind >= 1 && kind < static_cast<int32_t>(std::size(kNames)) ? kind : 0];
}

std::string_view SpaceName(int32_t space) {
  static constexpr std::string_view kNames[] = {"unknown", "original", "embedded", "pair"};
  return kNames[space >= 1 && space <= 3 ? space : 0];
}

absl::StatusOr<int64_t> ResourceBytes(const ResourceKey& key, int64_t n) {
  TENON_RETURN_IF_ERROR(CheckKey(key, n));
  if (key.kind == TENON_RESOURCE_PAIR_ORDER && n > kMaxPairOrderRows) {
    return Error(Reason::kExceedsMemoryBudget,
                 absl::StrCat("the order of all pairs of ", n,
                              " rows is not kept in memory, the "
                              "limit is ",
                              kMaxPairOrderRows, " rows; give a temporary budget"))
        .Meta("rows", n)
        .Meta("limit_rows", kMaxPairOrderRows);
  }
  switch (key.kind) {
    case TENON_RESOURCE_KNN:
      return CheckedElementCount(std::vector<int64_t>{n, key.k, int64_t{sizeof(int32_t)}});
    case TENON_RESOURCE_SELECTED_RANKS:
      return CheckedElementCount(std::vector<int64_t>{2, n, key.k, int64_t{sizeof(int32_t)}});
    case TENON_RESOURCE_DENSITY:
      return CheckedElementCount(std::vector<int64_t>{n + 1, int64_t{sizeof(double)}});
    case TENON_RESOURCE_CONDENSED:
      TENON_RETURN_IF_ERROR(CheckedElementCount(std::vector<int64_t>{n, n, 8}).status());
      return PairCount(n) * int64_t{sizeof(double)};
    case TENON_RESOURCE_PAIR_ORDER:
      return int64_t{sizeof(PairOrderHeader)} + PairCount(n) * int64_t{sizeof(uint32_t)} +
             (key.parameter == kPositionOrder ? (PairCount(n) + 63) / 64 * 8 : 0);
    case TENON_RESOURCE_RANK_TABLE:
      if (n > kMaxPairOrderRows) {
        return Error(Reason::kExceedsMemoryBudget,
                     absl::StrCat("ranks of ", n, " rows do not fit in 16 bits"));
      }
      return n * n * int64_t{sizeof(uint16_t)};
    case TENON_RESOURCE_PAIR_STATISTICS:
      return int64_t{sizeof(PairStatistics)};
    case TENON_RESOURCE_ORDERED_PAIR_STATISTICS:
      return int64_t{sizeof(OrderedPairStatistics)};
    default:
      return Error(Reason::kNotImplemented,
                   absl::StrCat("resource '", ToAbsl(KindName(key.kind)), "' has no layout yet"));
  }
}

int64_t TemporaryBytes(const std::vector<ResourceKey>& keys, int64_t n) {
  // Records of two doubles in blocks of 4 KiB, sorted by the original and for ranks then by the
  // embedded distance; the stack of the fit in parts of 512 KiB.
  constexpr int64_t kRecord = 16, kBlock = 4096, kPart = int64_t{512} << 10;
  const int64_t bytes = PairCount(n) * kRecord;
  const int64_t records = (bytes / kBlock + 1) * kBlock, stack = (bytes / kPart + 1) * kPart;
  bool ranks = false, fit = false;
  for (const ResourceKey& key : keys) {
    if (key.kind != TENON_RESOURCE_ORDERED_PAIR_STATISTICS) continue;
    (key.parameter == kIsotonicFit ? fit : ranks) = true;
  }
  if (!ranks && !fit) return 0;
  return records + std::max(ranks ? records : 0, fit ? stack : 0);
}

void MergeKey(const ResourceKey& key, std::vector<ResourceKey>& keys) {
  for (ResourceKey& other : keys) {
    if (other.kind == key.kind && other.space == key.space && other.parameter == key.parameter) {
      other.k = std::max(other.k, key.k);
      return;
    }
  }
  keys.push_back(key);
}

}  // namespace tenon::measurement
