// Measurement resources: what measures share, and how its bytes are laid out.
//
// n is the number of rows, P = n(n-1)/2 the number of pairs i < j in row-major ("condensed")
// order: pair (i, j) has the number i(2n-i-1)/2 + j-i-1. Everything is in the host's byte order.
//
//   kind                     bytes
//   KNN                      int32[n][k]: the k nearest neighbours of each row by (distance, row
//                            index), the row itself excluded by its index
//   DENSITY                  double[n]: Gaussian densities, their sum is 1; then one double: the
//                            largest distance. If that is 0 all densities are 0.
//   CONDENSED                double[P]: distances
//   PAIR_ORDER               PairOrderHeader; then by the key's parameter
//                            kRankOrder: uint32[P]: twice the average rank (from 1) of each pair,
//                            in pair order kPositionOrder: uint64[ceil(P / 64)]: bit q tells
//                            whether the pair at position q has a larger distance than that before
//                            it; uint32[P]: the position of each pair in an order by distance, in
//                            pair order
//   PAIR_STATISTICS          PairStatistics
//   ORDERED_PAIR_STATISTICS  OrderedPairStatistics; the key's parameter says which part is filled.
//                            Needs PAIR_ORDER of the original space among the available resources
//                            (kRankCorrelation: kRankOrder, kIsotonicFit: kPositionOrder), or a
//                            folder for temporary files.
//   SELECTED_RANKS           int32[n][k]: rank in the original space of each row's k embedded
//                            neighbours; then int32[n][k]: rank in the embedded space of its k
//                            original neighbours. Ranks count from 1, the row itself has rank 0.
//   RANK_TABLE               uint16[n][n], n <= 65536: the rank of each row as seen from each; the
//                            row itself has rank 0
//   others                   not laid out yet
//
// A rank at most k means "also among the k neighbours there", so memberships need no table.

#ifndef TENON_BACKENDS_MEASUREMENT_RESOURCE_H_
#define TENON_BACKENDS_MEASUREMENT_RESOURCE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/plugin/abi.h"

namespace tenon::measurement {

using ResourceKey = tenon_resource_key;

// Signed 128-bit integer in two's complement: an exact sum over pairs of products of ranks.
struct WideInteger {
  uint64_t low = 0;
  int64_t high = 0;
};

inline WideInteger ToWide(__int128 value) {
  return {static_cast<uint64_t>(value), static_cast<int64_t>(value >> 64)};
}
inline double ToDouble(WideInteger value) {
  return static_cast<double>((static_cast<__int128>(value.high) << 64) |
                             static_cast<__int128>(value.low));
}

// Sums over all pairs; o is the distance in the original, e in the embedded space.
struct PairStatistics {
  double count = 0;
  double sum_original_squared = 0;    // sum of o^2
  double sum_embedded_squared = 0;    // sum of e^2
  double sum_product = 0;             // sum of o e
  double sum_difference_squared = 0;  // sum of (o - e)^2
  double scaled_residual = 0;  // sum of (o - a e)^2, a = sum_product / sum_embedded_squared; 0 if
                               // all e are 0
  double mean_original = 0, mean_embedded = 0;
  double moment_original = 0, moment_embedded = 0;  // sums of squared deviations from the means
  double comoment = 0;                              // sum of products of deviations
  double min_original = 0, max_original = 0, min_embedded = 0, max_embedded = 0;
};

// Rank deviations below are 2 rank - (P + 1): exact integers, twice the deviation from the mean.
struct PairOrderHeader {
  double min_distance = 0, max_distance = 0;
  WideInteger rank_moment;  // sum of squared rank deviations
};

struct OrderedPairStatistics {
  double min_original = 0, max_original = 0;
  WideInteger original_rank_moment;
  double min_embedded = 0, max_embedded = 0;
  WideInteger rank_moment;          // part kRankCorrelation: of the embedded distances
  WideInteger rank_comoment;        // part kRankCorrelation: sum of products of deviations
  double sum_embedded_squared = 0;  // part kIsotonicFit
  double isotonic_residual = 0;  // part kIsotonicFit: sum of (e - fit)^2 of the non-decreasing fit
                                 // of e over groups of equal o
  int64_t isotonic_blocks = 0;   // part kIsotonicFit: runs of equal fitted value
};

// Parameters of ORDERED_PAIR_STATISTICS.
inline constexpr double kRankCorrelation = 1;
inline constexpr double kIsotonicFit = 2;

// Parameters of PAIR_ORDER.
inline constexpr double kRankOrder = 1;
inline constexpr double kPositionOrder = 2;

// Pair orders count in 32 bits: twice a rank has to fit.
inline constexpr int64_t kMaxPairOrderRows = 65536;

inline int64_t PairCount(int64_t n) { return n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n; }
inline int64_t PairOffset(int64_t n, int64_t i) { return i * n - i * (i + 1) / 2; }  // of (i, i+1)

bool SameKey(const ResourceKey& a, const ResourceKey& b);

// "knn", "density", ... and "original", "embedded", "pair".
std::string_view KindName(int32_t kind);
std::string_view SpaceName(int32_t space);

// Bytes of a resource for n rows (n >= 2). BAD_PARAMETER: no such kind, space, k or parameter;
// NOT_IMPLEMENTED: a kind without a layout, or a pair order of more than kMaxPairOrderRows rows;
// OVERFLOW.
absl::StatusOr<int64_t> ResourceBytes(const ResourceKey& key, int64_t n);

// Files that orders of pairs for these ORDERED_PAIR_STATISTICS may take when they are not made in
// memory, for n rows.
int64_t TemporaryBytes(const std::vector<ResourceKey>& keys, int64_t n);

// Adds `key` unless an equal one is there. Keys that differ only in k become one with the largest
// k, because neighbour lists of a smaller k are prefixes.
void MergeKey(const ResourceKey& key, std::vector<ResourceKey>& keys);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_RESOURCE_H_
