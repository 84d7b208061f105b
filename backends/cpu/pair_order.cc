#include "backends/cpu/pair_order.h"

#include <algorithm>

#include "backends/core/error.h"
#include "backends/core/tensor.h"
#include "backends/measurement/summation.h"

namespace tenon::cpu {
namespace {

using measurement::CompensatedSum;
using measurement::OrderedPairStatistics;
using measurement::PairOrderHeader;

constexpr int64_t kPrefetch = 32;
constexpr int64_t kCancelInterval = 1 << 20;  // pairs of a serial scan between two looks

// The end of the run of equal distances that starts at `first`.
int64_t EndOfTies(const double* distances, int64_t first, int64_t count) {
  int64_t last = first + 1;
  while (last < count && distances[last] == distances[first]) ++last;
  return last;
}

// Calls visit(first, last) for each run of equal sorted distances.
template <typename Visit>
absl::Status ForEachTie(const double* distances, int64_t count, const Parallel& parallel,
                        const Visit& visit) {
  int64_t next_check = kCancelInterval;
  for (int64_t first = 0; first < count;) {
    const int64_t last = EndOfTies(distances, first, count);
    visit(first, last);
    first = last;
    if (first < next_check) continue;
    TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    next_check = first + kCancelInterval;
  }
  return absl::OkStatus();
}

// Blocks of equal fitted value: sum and number of the distances in each.
struct FitBlock {
  double sum;
  int64_t count;
  double Mean() const { return sum / static_cast<double>(count); }
};

// Pool adjacent violators: merges from the back while a block's mean is above its successor's.
int64_t PushBlock(FitBlock block, FitBlock* blocks, int64_t size) {
  while (size > 0 && blocks[size - 1].Mean() > block.Mean()) {
    --size;
    block.sum = blocks[size].sum + block.sum;
    block.count += blocks[size].count;
  }
  blocks[size] = block;
  return size + 1;
}

}  // namespace

PairOrderView PairOrderView::Of(void* data, int64_t pairs) {
  auto* header = static_cast<PairOrderHeader*>(data);
  auto* order = reinterpret_cast<uint32_t*>(header + 1);
  return {pairs, header, order, order + pairs};
}

absl::Status BuildPairOrder(RadixRecords& records, const Parallel& parallel,
                            const PairOrderView& order) {
  const int64_t count = records.count();
  for (int64_t p = 0; p < count; ++p) records.payloads()[p] = static_cast<uint32_t>(p);
  TENON_RETURN_IF_ERROR(records.Sort(parallel));
  const double* distances = records.distances();
  const uint32_t* pairs = records.payloads();
  __int128 moment = 0;
  TENON_RETURN_IF_ERROR(ForEachTie(distances, count, parallel, [&](int64_t first, int64_t last) {
    const int64_t twice_rank = first + 1 + last;
    for (int64_t p = first; p < last; ++p) {
      order.order[p] = pairs[p];
      order.twice_ranks[pairs[p]] = static_cast<uint32_t>(twice_rank);
    }
    const __int128 deviation = twice_rank - (count + 1);
    moment += (last - first) * deviation * deviation;
  }));
  *order.header = {distances[0], distances[count - 1], measurement::ToWide(moment)};
  return absl::OkStatus();
}

absl::Status CorrelateRanks(RadixRecords& records, const Parallel& parallel,
                            const PairOrderView& original, OrderedPairStatistics& statistics) {
  const int64_t count = records.count();
  std::copy_n(original.twice_ranks, count, records.payloads());
  TENON_RETURN_IF_ERROR(records.Sort(parallel));
  const double* distances = records.distances();
  const uint32_t* original_ranks = records.payloads();
  __int128 moment = 0, comoment = 0;
  TENON_RETURN_IF_ERROR(ForEachTie(distances, count, parallel, [&](int64_t first, int64_t last) {
    const __int128 deviation = first + 1 + last - (count + 1);
    int64_t sum = -(last - first) * (count + 1);
    for (int64_t p = first; p < last; ++p) sum += original_ranks[p];
    moment += (last - first) * deviation * deviation;
    comoment += deviation * sum;
  }));
  statistics.min_embedded = distances[0];
  statistics.max_embedded = distances[count - 1];
  statistics.rank_moment = measurement::ToWide(moment);
  statistics.rank_comoment = measurement::ToWide(comoment);
  return absl::OkStatus();
}

absl::Status FitIsotonic(const double* embedded, const Parallel& parallel,
                         const PairOrderView& original, OrderedPairStatistics& statistics) {
  const int64_t count = original.pairs;
  TENON_ASSIGN_OR_RETURN(Buffer sorted_buffer, Buffer::Allocate(count * 8));
  TENON_ASSIGN_OR_RETURN(Buffer block_buffer, Buffer::Allocate(count * int64_t{sizeof(FitBlock)}));
  double* sorted = sorted_buffer.as<double>();
  FitBlock* blocks = block_buffer.as<FitBlock>();
  int64_t n_blocks = 0;
  double minimum = embedded[0], maximum = 0;
  for (int64_t first = 0; first < count;) {
    const uint32_t rank = original.twice_ranks[original.order[first]];
    // Twice the average rank of positions [first, last) is first + 1 + last.
    const int64_t last = int64_t{rank} - first - 1;
    if (first / kCancelInterval != last / kCancelInterval) {
      TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    }
    double sum = 0;
    for (int64_t p = first; p < last; ++p) {
      // Pairs come in an order that no cache foresees.
      const uint32_t ahead = original.order[std::min(p + kPrefetch, count - 1)];
      __builtin_prefetch(embedded + ahead);
      __builtin_prefetch(original.twice_ranks + ahead);
      sorted[p] = embedded[original.order[p]];
      sum += sorted[p];
      minimum = std::min(minimum, sorted[p]);
      maximum = std::max(maximum, sorted[p]);
    }
    n_blocks = PushBlock({sum, last - first}, blocks, n_blocks);
    first = last;
  }
  CompensatedSum squares, residual;
  int64_t p = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const double fit = blocks[b].Mean();
    for (const int64_t last = p + blocks[b].count; p < last; ++p) {
      squares.Add(sorted[p] * sorted[p]);
      residual.Add((sorted[p] - fit) * (sorted[p] - fit));
    }
  }
  statistics.min_embedded = minimum;
  statistics.max_embedded = maximum;
  statistics.sum_embedded_squared = squares.Value();
  statistics.isotonic_residual = residual.Value();
  return absl::OkStatus();
}

}  // namespace tenon::cpu
