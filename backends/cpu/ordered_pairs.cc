#include "backends/cpu/ordered_pairs.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "backends/core/error.h"
#include "backends/cpu/isotonic.h"
#include "backends/cpu/spilled_stack.h"
#include "backends/measurement/summation.h"

namespace tenon::cpu {
namespace {

using measurement::CompensatedSum;
using measurement::OrderedPairStatistics;
using measurement::PairOrderHeader;

// Distances of a sample for each bucket, and most rows that they are taken from.
constexpr int64_t kSamplesPerBucket = 64, kSampledRows = 32;
constexpr int64_t kSpillBlock = 4096;

// Keys of the distances of some rows to all others.
absl::StatusOr<BucketMap> MapOf(const PackedPoints& points, int64_t n, int64_t buckets) {
  if (buckets <= 1) return BucketMap();
  const int64_t rows =
      std::clamp<int64_t>(buckets * kSamplesPerBucket / n, 1, std::min(n, kSampledRows));
  TENON_ASSIGN_OR_RETURN(Buffer row, Buffer::Allocate(PaddedRows(n) * int64_t{sizeof(double)}));
  std::vector<uint64_t> sample;
  sample.reserve(rows * (n - 1));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = (2 * r + 1) * n / (2 * rows);
    points.KeyRows(i, 1, 0, row.as<double>());
    KeysToDistances(points.kind(), row.as<double>(), n);
    for (int64_t j = 0; j < n; ++j) {
      if (j != i) sample.push_back(KeyOfDistance(row.as<double>()[j]));
    }
  }
  return BucketMap::OfSample(sample, buckets);
}

int64_t SampleBytes(int64_t n) { return std::min(n, kSampledRows) * n * int64_t{sizeof(uint64_t)}; }

}  // namespace

PairBuckets<uint32_t>::Options OrderedPairs::RankRecords(const ResourceWork& work, int threads) {
  return {work.pairs(), threads, PairBuckets<uint32_t>::BucketsFor(work.pairs(), false), false};
}

PairBuckets<double>::Options OrderedPairs::SpilledRecords(const ResourceWork& work, int threads) {
  return {work.pairs(), threads, PairBuckets<double>::BucketsFor(work.pairs(), true), true};
}

int64_t OrderedPairs::Bytes(const ResourceWork& work, int threads) {
  if (!NeedsOriginal(work) && !NeedsEmbedded(work)) return 0;
  int64_t bytes = int64_t{2} * threads * PaddedRows(work.rows) * int64_t{sizeof(double)};
  bytes += SampleBytes(work.rows);
  if (work.is_external) {
    const int64_t stages = work.rank_correlations.empty() ? 1 : 2;
    return bytes + stages * PairBuckets<double>::Bytes(SpilledRecords(work, threads)) +
           SpilledStack::kBytes;
  }
  const int64_t records = PairBuckets<uint32_t>::Bytes(RankRecords(work, threads));
  if (!work.pair_orders.empty()) bytes += records;
  if (!work.rank_correlations.empty()) bytes += records;
  if (!work.isotonic_fits.empty()) bytes += OrderedValues::Bytes(work.pairs());
  return bytes;
}

int64_t OrderedPairs::FileBytes(const ResourceWork& work) {
  if (!work.is_external) return 0;
  const int64_t records = PairBuckets<double>::FileBytes(SpilledRecords(work, 1));
  return records + std::max(work.rank_correlations.empty() ? 0 : records,
                            work.isotonic_fits.empty() ? 0 : SpilledStack::FileBytes(work.pairs()));
}

absl::StatusOr<OrderedPairs> OrderedPairs::Create(const ResourceWork& work,
                                                  const PackedPoints* original,
                                                  const PackedPoints* embedded, int threads) {
  OrderedPairs pairs;
  pairs.work_ = &work;
  if (original != nullptr) pairs.original_kind_ = original->kind();
  if (embedded != nullptr) pairs.embedded_kind_ = embedded->kind();
  TENON_ASSIGN_OR_RETURN(
      pairs.rows_,
      Buffer::Allocate(int64_t{2} * threads * PaddedRows(work.rows) * int64_t{sizeof(double)}));
  TENON_RETURN_IF_ERROR(work.is_external ? pairs.CreateExternal(work, original, embedded, threads)
                                         : pairs.CreateInMemory(work, original, embedded, threads));
  return pairs;
}

absl::Status OrderedPairs::CreateInMemory(const ResourceWork& work, const PackedPoints* original,
                                          const PackedPoints* embedded, int threads) {
  const auto options = RankRecords(work, threads);
  if (!work.pair_orders.empty()) {
    TENON_ASSIGN_OR_RETURN(BucketMap map, MapOf(*original, work.rows, options.buckets));
    TENON_ASSIGN_OR_RETURN(original_, PairBuckets<uint32_t>::Create(options, map, nullptr));
  }
  if (!work.rank_correlations.empty()) {
    ranks_ = PairOrderView::Of(*work.available_ranks, work.pairs());
    TENON_ASSIGN_OR_RETURN(BucketMap map, MapOf(*embedded, work.rows, options.buckets));
    TENON_ASSIGN_OR_RETURN(embedded_, PairBuckets<uint32_t>::Create(options, map, nullptr));
  }
  if (!work.isotonic_fits.empty()) {
    positions_ = PairOrderView::Of(*work.available_positions, work.pairs());
    TENON_ASSIGN_OR_RETURN(values_, OrderedValues::Create(positions_));
  }
  return absl::OkStatus();
}

absl::Status OrderedPairs::CreateExternal(const ResourceWork& work, const PackedPoints* original,
                                          const PackedPoints* embedded, int threads) {
  const auto options = SpilledRecords(work, threads);
  const int64_t most = PairBuckets<double>::FileBytes(options);
  const std::string folder = work.temporary_directory;
  TENON_ASSIGN_OR_RETURN(file_, SpillFile::Open(folder, kSpillBlock, most));
  TENON_ASSIGN_OR_RETURN(BucketMap map, MapOf(*original, work.rows, options.buckets));
  TENON_ASSIGN_OR_RETURN(by_original_, PairBuckets<double>::Create(options, map, file_.get()));
  if (work.rank_correlations.empty()) return absl::OkStatus();
  TENON_ASSIGN_OR_RETURN(second_file_, SpillFile::Open(folder, kSpillBlock, most));
  TENON_ASSIGN_OR_RETURN(map, MapOf(*embedded, work.rows, options.buckets));
  TENON_ASSIGN_OR_RETURN(by_embedded_,
                         PairBuckets<double>::Create(options, map, second_file_.get()));
  return absl::OkStatus();
}

const double* OrderedPairs::Distances(int slot, int64_t i, KeyKind kind, const double* keys,
                                      int half) {
  const int64_t count = work_->rows - i - 1;
  double* row = rows_.as<double>() + (int64_t{2} * slot + half) * PaddedRows(work_->rows);
  std::copy_n(keys + i + 1, count, row);
  KeysToDistances(kind, row, count);
  return row;
}

void OrderedPairs::TakeRow(int slot, int64_t i, const double* original, const double* embedded) {
  if (!by_original_.has_value()) return TakeInMemory(slot, i, original, embedded);
  const double* o = Distances(slot, i, original_kind_, original, 0);
  const double* e = Distances(slot, i, embedded_kind_, embedded, 1);
  const int64_t count = work_->rows - i - 1;
  for (int64_t j = 0; j < count; ++j) by_original_->Add(slot, KeyOfDistance(o[j]), e[j]);
}

void OrderedPairs::TakeInMemory(int slot, int64_t i, const double* original,
                                const double* embedded) {
  const int64_t count = work_->rows - i - 1;
  const int64_t first = measurement::PairOffset(work_->rows, i);
  if (original_.has_value()) {
    const double* o = Distances(slot, i, original_kind_, original, 0);
    for (int64_t j = 0; j < count; ++j) {
      original_->Add(slot, KeyOfDistance(o[j]), static_cast<uint32_t>(first + j));
    }
  }
  if (!embedded_.has_value() && !values_.has_value()) return;
  const double* e = Distances(slot, i, embedded_kind_, embedded, 1);
  if (embedded_.has_value()) {
    const uint32_t* ranks = ranks_.twice_ranks + first;
    for (int64_t j = 0; j < count; ++j) embedded_->Add(slot, KeyOfDistance(e[j]), ranks[j]);
  }
  if (values_.has_value()) {
    for (int64_t j = 0; j < count; ++j) values_->Set(first + j, e[j]);
  }
}

void OrderedPairs::Store(const OrderedPairStatistics& statistics,
                         const std::vector<tenon_resource>& outputs) const {
  for (const tenon_resource& output : outputs) {
    *static_cast<OrderedPairStatistics*>(output.data) = statistics;
  }
}

absl::Status OrderedPairs::Finish(const Parallel& parallel) {
  return by_original_.has_value() ? FinishExternal(parallel) : FinishInMemory(parallel);
}

absl::Status OrderedPairs::FinishInMemory(const Parallel& parallel) {
  if (original_.has_value()) {
    std::vector<PairOrderView> orders;
    for (const tenon_resource& output : work_->pair_orders) {
      orders.push_back(PairOrderView::Of(output, work_->pairs()));
    }
    TENON_RETURN_IF_ERROR(FinishPairOrders(*original_, parallel, orders));
  }
  const auto original_side = [](const PairOrderHeader& header) {
    OrderedPairStatistics statistics;
    statistics.min_original = header.min_distance;
    statistics.max_original = header.max_distance;
    statistics.original_rank_moment = header.rank_moment;
    return statistics;
  };
  if (embedded_.has_value()) {
    OrderedPairStatistics statistics = original_side(*ranks_.header);
    TENON_RETURN_IF_ERROR(CorrelateRanks(*embedded_, work_->pairs(), parallel, statistics));
    Store(statistics, work_->rank_correlations);
  }
  if (values_.has_value()) {
    OrderedPairStatistics statistics = original_side(*positions_.header);
    TENON_RETURN_IF_ERROR(values_->Fit(parallel, statistics));
    Store(statistics, work_->isotonic_fits);
  }
  return absl::OkStatus();
}

absl::Status OrderedPairs::FinishExternal(const Parallel& parallel) {
  // A full disk shows at a write; reading what was not written would only say that it is not there.
  TENON_RETURN_IF_ERROR(file_->status());
  if (!work_->isotonic_fits.empty()) {
    OrderedPairStatistics statistics;
    TENON_RETURN_IF_ERROR(FitExternally(parallel, statistics));
    Store(statistics, work_->isotonic_fits);
  }
  if (!work_->rank_correlations.empty()) {
    OrderedPairStatistics statistics;
    TENON_RETURN_IF_ERROR(RankExternally(parallel, statistics));
    Store(statistics, work_->rank_correlations);
  }
  return absl::OkStatus();
}

absl::Status OrderedPairs::RankExternally(const Parallel& parallel,
                                          OrderedPairStatistics& statistics) {
  struct alignas(64) Original {
    __int128 moment = 0;
    double least = std::numeric_limits<double>::infinity(), largest = 0;
  };
  const int64_t pairs = work_->pairs();
  std::vector<Original> sums(parallel.threads());
  TENON_RETURN_IF_ERROR(
      by_original_->VisitTies(parallel, [&](int slot, int64_t, const PairRecord<double>* ties,
                                            int64_t count, int64_t first, int64_t last) {
        const int64_t twice_rank = first + 1 + last;
        const __int128 deviation = twice_rank - (pairs + 1);
        const double distance = DistanceOfKey(ties[0].key);
        sums[slot].moment += count * deviation * deviation;
        sums[slot].least = std::min(sums[slot].least, distance);
        sums[slot].largest = std::max(sums[slot].largest, distance);
        for (int64_t t = 0; t < count; ++t) {
          by_embedded_->Add(slot, KeyOfDistance(ties[t].payload), static_cast<double>(twice_rank));
        }
      }));
  Original total;
  for (const Original& sum : sums) {
    total.moment += sum.moment;
    total.least = std::min(total.least, sum.least);
    total.largest = std::max(total.largest, sum.largest);
  }
  statistics.min_original = total.least;
  statistics.max_original = total.largest;
  statistics.original_rank_moment = measurement::ToWide(total.moment);
  TENON_RETURN_IF_ERROR(second_file_->status());
  file_bytes_ = std::max(file_bytes_, file_->bytes() + second_file_->bytes());
  file_blocks_ = (file_->bytes() + second_file_->bytes()) / kSpillBlock;
  return CorrelateRanks(*by_embedded_, pairs, parallel, statistics);
}

// One thread: the fit goes through the order from one end to the other.
absl::Status OrderedPairs::FitExternally(const Parallel& parallel,
                                         OrderedPairStatistics& statistics) {
  TENON_ASSIGN_OR_RETURN(SpilledStack stack,
                         SpilledStack::Create(work_->temporary_directory, work_->pairs()));
  CompensatedSum squares, residual;
  std::vector<double> values;
  FitGroup huge;  // of more records than come at once
  statistics.min_original = statistics.min_embedded = std::numeric_limits<double>::infinity();
  statistics.max_original = statistics.max_embedded = 0;
  TENON_RETURN_IF_ERROR(
      by_original_->VisitTies(parallel.Limited(1), [&](int, int64_t, const PairRecord<double>* ties,
                                                       int64_t count, int64_t first, int64_t last) {
        const double original = DistanceOfKey(ties[0].key);
        statistics.min_original = std::min(statistics.min_original, original);
        statistics.max_original = std::max(statistics.max_original, original);
        values.clear();
        for (int64_t t = 0; t < count; ++t) values.push_back(ties[t].payload);
        FitGroup group = GroupOf(values);  // sorts them
        for (const double value : values) {
          squares.Add(value * value);
          statistics.min_embedded = std::min(statistics.min_embedded, value);
          statistics.max_embedded = std::max(statistics.max_embedded, value);
        }
        double cost = group.squared_deviations;
        if (count < last - first) {
          cost += MergeGroup(group.block, huge.block);
          group.block = huge.block;
        }
        residual.Add(cost);
        if (group.block.count < last - first) return;
        huge = {};
        cost = 0;
        PushBlock(group.block, stack, cost);
        residual.Add(cost);
      }));
  TENON_RETURN_IF_ERROR(stack.status());
  file_bytes_ = std::max(file_bytes_, file_->bytes() + stack.file_bytes());
  file_blocks_ = file_->bytes() / kSpillBlock;
  statistics.sum_embedded_squared = squares.Value();
  statistics.isotonic_residual = residual.Value();
  statistics.isotonic_blocks = stack.size();
  return absl::OkStatus();
}

}  // namespace tenon::cpu
