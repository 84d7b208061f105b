#include "backends/cpu/pair_order.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backends/core/error.h"
#include "backends/cpu/isotonic.h"
#include "backends/measurement/summation.h"

namespace tenon::cpu {
namespace {

using measurement::CompensatedSum;
using measurement::OrderedPairStatistics;
using measurement::PairOrderHeader;

// What one thread sums while it visits ties. Integers: their order does not matter.
struct alignas(64) RankSums {
  __int128 moment = 0, comoment = 0;
  double least = std::numeric_limits<double>::infinity(), largest = 0;
  int64_t groups = 0;

  // `count` of the records of one distance that take the positions [first, last).
  __int128 Take(double distance, int64_t count, int64_t first, int64_t last, int64_t pairs) {
    const __int128 deviation = first + 1 + last - (pairs + 1);
    moment += count * deviation * deviation;
    least = std::min(least, distance);
    largest = std::max(largest, distance);
    return deviation;
  }
};

RankSums Total(const std::vector<RankSums>& sums) {
  RankSums total;
  for (const RankSums& sum : sums) {
    total.moment += sum.moment;
    total.comoment += sum.comoment;
    total.least = std::min(total.least, sum.least);
    total.largest = std::max(total.largest, sum.largest);
  }
  return total;
}

// Where a bucket is in the order, and its last word of group starts.
struct alignas(64) PositionCursor {
  int64_t next = 0;
  int64_t word = 0;
  uint64_t bits = 0;

  // The position of the next record of the group that starts at `first`: a key with more records
  // than are sorted at once comes in parts.
  int64_t Begin(int64_t first, uint64_t* group_starts) {
    if (next > first) return next;
    if (first / 64 != word) Flush(group_starts);
    word = first / 64;
    bits |= uint64_t{1} << (first % 64);
    return first;
  }
  void Flush(uint64_t* group_starts) {
    // Buckets share words at their ends.
    if (bits != 0) __atomic_fetch_or(group_starts + word, bits, __ATOMIC_RELAXED);
    bits = 0;
  }
};

bool StartsGroup(const PairOrderView& order, int64_t position) {
  return order.group_starts[position / 64] >> (position % 64) & 1;
}

// Blocks on top of values that have been read already: never more of them than those.
class PackedStack {
 public:
  PackedStack(double* means, uint32_t* counts) : means_(means), counts_(counts) {}
  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  FitBlock At(int64_t b) const { return {means_[b], int64_t{counts_[b]}}; }
  FitBlock Top() const { return At(size_ - 1); }
  void Pop() { --size_; }
  void Push(FitBlock block) {
    means_[size_] = block.mean;
    counts_[size_++] = static_cast<uint32_t>(block.count);
  }

 private:
  double* means_;
  uint32_t* counts_;
  int64_t size_ = 0;
};

// A part of the sequence, fitted by itself.
struct FitPart {
  int64_t first = 0, last = 0;  // positions
  int64_t blocks = 0;
  CompensatedSum residual, squares;
  double least = std::numeric_limits<double>::infinity(), largest = 0;
};

void FitOnePart(const PairOrderView& order, double* values, uint32_t* counts, FitPart& part) {
  constexpr int64_t kPlain = 256;  // groups summed without compensation, which would take longest
  PackedStack stack(values + part.first, counts + part.first);
  double squares = 0, residual = 0;
  int64_t plain = 0;
  for (int64_t first = part.first; first < part.last;) {
    int64_t last = first + 1;
    while (last < part.last && !StartsGroup(order, last)) ++last;
    // Sorts the group: its places in the order depend on threads, sums of it must not.
    const FitGroup group = GroupOf({values + first, static_cast<size_t>(last - first)});
    for (int64_t p = first; p < last; ++p) {
      squares += values[p] * values[p];
      part.least = std::min(part.least, values[p]);
      part.largest = std::max(part.largest, values[p]);
    }
    residual += group.squared_deviations;
    PushBlock(group.block, stack, residual);
    plain += last - first;
    if (plain >= kPlain || last == part.last) {
      part.squares.Add(std::exchange(squares, 0));
      part.residual.Add(std::exchange(residual, 0));
      plain = 0;
    }
    first = last;
  }
  part.blocks = stack.size();
}

}  // namespace

PairOrderView PairOrderView::Of(const tenon_resource& resource, int64_t pairs) {
  PairOrderView view;
  view.pairs = pairs;
  view.header = static_cast<PairOrderHeader*>(resource.data);
  auto* numbers = reinterpret_cast<uint32_t*>(view.header + 1);
  if (resource.key.parameter == measurement::kRankOrder) {
    view.twice_ranks = numbers;
  } else {
    view.group_starts = reinterpret_cast<uint64_t*>(numbers);
    view.positions = reinterpret_cast<uint32_t*>(view.group_starts + (pairs + 63) / 64);
  }
  return view;
}

absl::Status FinishPairOrders(PairBuckets<uint32_t>& records, const Parallel& parallel,
                              std::span<const PairOrderView> orders) {
  if (orders.empty()) return absl::OkStatus();
  const int64_t pairs = orders[0].pairs;
  PairOrderView all;  // of each array one that is wanted
  for (const PairOrderView& order : orders) {
    if (order.twice_ranks != nullptr) all.twice_ranks = order.twice_ranks;
    if (order.positions != nullptr) {
      all.positions = order.positions;
      all.group_starts = order.group_starts;
      std::fill_n(all.group_starts, (pairs + 63) / 64, 0);
    }
  }
  std::vector<RankSums> sums(parallel.threads());
  std::vector<PositionCursor> cursors(records.buckets());
  TENON_RETURN_IF_ERROR(
      records.VisitTies(parallel, [&](int slot, int64_t bucket, const PairRecord<uint32_t>* ties,
                                      int64_t count, int64_t first, int64_t last) {
        sums[slot].Take(DistanceOfKey(ties[0].key), count, first, last, pairs);
        if (all.twice_ranks != nullptr) {
          const auto twice_rank = static_cast<uint32_t>(first + 1 + last);
          for (int64_t t = 0; t < count; ++t) all.twice_ranks[ties[t].payload] = twice_rank;
        }
        if (all.positions == nullptr) return;
        int64_t position = cursors[bucket].Begin(first, all.group_starts);
        for (int64_t t = 0; t < count; ++t) {
          all.positions[ties[t].payload] = static_cast<uint32_t>(position++);
        }
        cursors[bucket].next = position;
      }));
  for (PositionCursor& cursor : cursors) cursor.Flush(all.group_starts);
  const RankSums total = Total(sums);
  for (const PairOrderView& order : orders) {
    *order.header = {total.least, total.largest, measurement::ToWide(total.moment)};
    // A second resource of one kind is a copy.
    if (order.twice_ranks != nullptr && order.twice_ranks != all.twice_ranks) {
      std::copy_n(all.twice_ranks, pairs, order.twice_ranks);
    }
    if (order.positions != nullptr && order.positions != all.positions) {
      std::copy_n(all.positions, pairs, order.positions);
      std::copy_n(all.group_starts, (pairs + 63) / 64, order.group_starts);
    }
  }
  return absl::OkStatus();
}

template <typename Payload>
absl::Status CorrelateRanks(PairBuckets<Payload>& records, int64_t pairs, const Parallel& parallel,
                            OrderedPairStatistics& statistics) {
  std::vector<RankSums> sums(parallel.threads());
  TENON_RETURN_IF_ERROR(
      records.VisitTies(parallel, [&](int slot, int64_t, const PairRecord<Payload>* ties,
                                      int64_t count, int64_t first, int64_t last) {
        const __int128 deviation =
            sums[slot].Take(DistanceOfKey(ties[0].key), count, first, last, pairs);
        int64_t original = -count * (pairs + 1);
        for (int64_t t = 0; t < count; ++t) original += static_cast<int64_t>(ties[t].payload);
        sums[slot].comoment += deviation * original;
      }));
  const RankSums total = Total(sums);
  statistics.min_embedded = total.least;
  statistics.max_embedded = total.largest;
  statistics.rank_moment = measurement::ToWide(total.moment);
  statistics.rank_comoment = measurement::ToWide(total.comoment);
  return absl::OkStatus();
}

template absl::Status CorrelateRanks(PairBuckets<uint32_t>&, int64_t, const Parallel&,
                                     OrderedPairStatistics&);
template absl::Status CorrelateRanks(PairBuckets<double>&, int64_t, const Parallel&,
                                     OrderedPairStatistics&);

int64_t OrderedValues::Bytes(int64_t pairs) {
  return pairs * static_cast<int64_t>(sizeof(double) + sizeof(uint32_t));
}

absl::StatusOr<OrderedValues> OrderedValues::Create(const PairOrderView& order) {
  OrderedValues values;
  values.order_ = order;
  TENON_ASSIGN_OR_RETURN(values.values_, Buffer::Allocate(order.pairs * int64_t{sizeof(double)}));
  TENON_ASSIGN_OR_RETURN(values.counts_, Buffer::Allocate(order.pairs * int64_t{sizeof(uint32_t)}));
  return values;
}

absl::Status OrderedValues::Fit(const Parallel& parallel, OrderedPairStatistics& statistics) {
  constexpr int64_t kParts = 256;  // a number that no thread count changes
  double* values = values_.as<double>();
  uint32_t* counts = counts_.as<uint32_t>();
  std::vector<FitPart> parts(kParts);
  for (int64_t part = 0, first = 0; part < kParts; ++part) {
    int64_t last = std::max(first, order_.pairs * (part + 1) / kParts);
    while (last < order_.pairs && !StartsGroup(order_, last)) ++last;
    parts[part].first = first;
    parts[part].last = first = last;
  }
  TENON_RETURN_IF_ERROR(parallel.ForEach(
      kParts, [&](int64_t part, int) { FitOnePart(order_, values, counts, parts[part]); }));
  PackedStack stack(values, counts);
  CompensatedSum squares, residual;
  statistics.min_embedded = std::numeric_limits<double>::infinity();
  statistics.max_embedded = 0;
  for (const FitPart& part : parts) {
    TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    const PackedStack blocks(values + part.first, counts + part.first);
    for (int64_t b = 0; b < part.blocks; ++b) {
      double cost = 0;
      PushBlock(blocks.At(b), stack, cost);
      residual.Add(cost);
    }
    squares.Add(part.squares.Value());
    residual.Add(part.residual.Value());
    statistics.min_embedded = std::min(statistics.min_embedded, part.least);
    statistics.max_embedded = std::max(statistics.max_embedded, part.largest);
  }
  statistics.sum_embedded_squared = squares.Value();
  statistics.isotonic_residual = residual.Value();
  statistics.isotonic_blocks = stack.size();
  return absl::OkStatus();
}

}  // namespace tenon::cpu
