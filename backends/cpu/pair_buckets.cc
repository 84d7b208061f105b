#include "backends/cpu/pair_buckets.h"

#include <array>
#include <cmath>

namespace tenon::cpu {
namespace {

constexpr int64_t kMaxBuckets = 1024;  // each has a cache line open per thread
constexpr int64_t kMaxSpilledBuckets = 16384;
constexpr int64_t kBucketRecords = 4096;
constexpr int64_t kSlack = 3;  // a bucket that is so much larger than their mean is sorted at once
constexpr int64_t kCells = 16384;     // of a map
constexpr int64_t kSortCells = 8192;  // of a bucket

// As many bits less that `range` falls into `cells` cells.
int ShiftFor(uint64_t range, int64_t cells) {
  int shift = 0;
  while (range >> shift >= static_cast<uint64_t>(cells)) ++shift;
  return shift;
}

template <typename Record>
void SortFew(Record* records, int64_t count) {
  constexpr int64_t kInsertion = 32;
  if (count > kInsertion) {
    std::sort(records, records + count,
              [](const Record& a, const Record& b) { return a.key < b.key; });
    return;
  }
  for (int64_t r = 1; r < count; ++r) {
    const Record record = records[r];
    int64_t to = r;
    for (; to > 0 && records[to - 1].key > record.key; --to) records[to] = records[to - 1];
    records[to] = record;
  }
}

}  // namespace

BucketMap BucketMap::OfSample(std::span<uint64_t> sample, int64_t buckets) {
  BucketMap map;
  if (sample.empty() || buckets <= 1) return map;
  // The ends of a sample may be far from its mass; a thousandth goes into the outer buckets.
  const auto size = static_cast<int64_t>(sample.size());
  const int64_t margin = size / 1000;
  std::nth_element(sample.begin(), sample.begin() + margin, sample.end());
  map.low_ = sample[margin];
  std::nth_element(sample.begin(), sample.end() - 1 - margin, sample.end());
  const uint64_t high = sample[size - 1 - margin];
  map.shift_ = ShiftFor(high - map.low_, kCells);
  const auto cell = [&](uint64_t key) -> uint64_t {
    return key <= map.low_ ? 0 : std::min<uint64_t>((key - map.low_) >> map.shift_, kCells - 1);
  };
  std::vector<int64_t> counts(kCells);
  for (const uint64_t key : sample) ++counts[cell(key)];
  map.table_.assign(kCells, 0);
  int64_t before = 0;
  int32_t bucket = -1;
  int64_t last_share = -1;
  for (int64_t c = 0; c < kCells; ++c) {
    // The share of the sample before a cell decides its bucket; empty buckets get no number.
    const int64_t share = std::min(before * buckets / size, buckets - 1);
    if (share != last_share) ++bucket;
    last_share = share;
    map.table_[c] = bucket;
    before += counts[c];
  }
  map.buckets_ = bucket + 1;
  return map;
}

template <typename Payload>
PairRecord<Payload>* SortRecords(PairRecord<Payload>* records, PairRecord<Payload>* scratch,
                                 int64_t count) {
  if (count <= 1) return records;
  uint64_t low = records[0].key, high = low;
  for (int64_t r = 1; r < count; ++r) {
    const uint64_t key = records[r].key;
    low = std::min(low, key);
    high = std::max(high, key);
  }
  if (low == high) return records;
  const auto cells = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)) / 4);
  const int shift = ShiftFor(high - low, std::clamp<int64_t>(cells, 1, kSortCells));
  std::array<uint32_t, kSortCells + 1> starts;
  const auto used = static_cast<int64_t>((high - low) >> shift) + 1;
  std::fill_n(starts.begin(), used + 1, 0);
  for (int64_t r = 0; r < count; ++r) ++starts[((records[r].key - low) >> shift) + 1];
  for (int64_t c = 0; c < used; ++c) starts[c + 1] += starts[c];
  for (int64_t r = 0; r < count; ++r) {
    scratch[starts[(records[r].key - low) >> shift]++] = records[r];
  }
  // Each start has moved to the start of the next cell.
  int64_t begin = 0;
  for (int64_t c = 0; c < used; ++c) {
    const int64_t end = starts[c];
    if (end - begin > 1) SortFew(scratch + begin, end - begin);
    begin = end;
  }
  return scratch;
}

template <typename Payload>
int64_t PairBuckets<Payload>::BucketsFor(int64_t records, bool spill) {
  if (!spill) return std::clamp<int64_t>(records / kBucketRecords, 1, kMaxBuckets);
  const double sorted_bytes = 2.0 * kSlack * sizeof(Record) * static_cast<double>(records);
  return std::clamp<int64_t>(static_cast<int64_t>(std::sqrt(sorted_bytes / kBlockBytes)), 1,
                             kMaxSpilledBuckets);
}

template <typename Payload>
int64_t PairBuckets<Payload>::SortedAtOnce(const Options& options) {
  // Shares are of a sample; a bucket may well be twice as large.
  constexpr int64_t kLeast = 4096;
  return std::min(options.records, kSlack * (options.records / options.buckets) + kLeast);
}

template <typename Payload>
int64_t PairBuckets<Payload>::Blocks(const Options& options) {
  const int64_t current = options.slots * options.buckets;
  return options.spill ? current : current + options.records / kBlockRecords;
}

template <typename Payload>
int64_t PairBuckets<Payload>::Bytes(const Options& options) {
  const int64_t chains = options.slots * options.buckets;
  const auto record = static_cast<int64_t>(sizeof(Record));
  const int64_t sorting = int64_t{2} * options.slots * SortedAtOnce(options) * record;
  const int64_t ids = 2 * (options.records / kBlockRecords) * int64_t{sizeof(int32_t)};
  return Blocks(options) * kBlockBytes + sorting + options.slots * kBlockBytes + ids +
         chains * static_cast<int64_t>(sizeof(Tail) + sizeof(std::vector<int32_t>) + 64);
}

template <typename Payload>
int64_t PairBuckets<Payload>::FileBytes(const Options& options) {
  return options.spill ? (options.records / kBlockRecords + 1) * kBlockBytes : 0;
}

template <typename Payload>
absl::StatusOr<PairBuckets<Payload>> PairBuckets<Payload>::Create(const Options& options,
                                                                  const BucketMap& map,
                                                                  SpillFile* file) {
  PairBuckets buckets;
  buckets.options_ = options;
  buckets.map_ = map;
  buckets.file_ = file;
  const auto record = static_cast<int64_t>(sizeof(Record));
  TENON_ASSIGN_OR_RETURN(buckets.blocks_, Buffer::Allocate(Blocks(options) * kBlockBytes));
  TENON_ASSIGN_OR_RETURN(buckets.sorting_, Buffer::Allocate(int64_t{2} * options.slots *
                                                            SortedAtOnce(options) * record));
  if (options.spill) {
    TENON_ASSIGN_OR_RETURN(buckets.reading_, Buffer::Allocate(options.slots * kBlockBytes));
  }
  buckets.tails_.resize(options.slots * buckets.map_.buckets());
  buckets.chains_.resize(buckets.tails_.size());
  return buckets;
}

template <typename Payload>
void PairBuckets<Payload>::Extend(int64_t chain) {
  Tail& tail = tails_[chain];
  std::vector<int32_t>& ids = chains_[chain];
  if (options_.spill && tail.next != nullptr) {
    // The current block goes to the file and is filled anew.
    Record* block = tail.end - kBlockRecords;
    ids.push_back(file_->Write(block));
    tail.next = block;
    return;
  }
  const int64_t block = __atomic_fetch_add(&next_block_, 1, __ATOMIC_RELAXED);
  if (!options_.spill) ids.push_back(static_cast<int32_t>(block));
  tail = {Block(block), Block(block) + kBlockRecords};
}

template <typename Payload>
int64_t PairBuckets<Payload>::CountOf(int64_t bucket) const {
  int64_t count = 0;
  for (int owner = 0; owner < options_.slots; ++owner) {
    const int64_t chain = owner * map_.buckets() + bucket;
    const Tail& tail = tails_[chain];
    if (tail.next == nullptr) continue;
    const auto full = static_cast<int64_t>(chains_[chain].size()) - (options_.spill ? 0 : 1);
    count += full * kBlockRecords + (tail.next - tail.end) + kBlockRecords;
  }
  return count;
}

template PairRecord<uint32_t>* SortRecords(PairRecord<uint32_t>*, PairRecord<uint32_t>*, int64_t);
template PairRecord<double>* SortRecords(PairRecord<double>*, PairRecord<double>*, int64_t);
template class PairBuckets<uint32_t>;
template class PairBuckets<double>;

}  // namespace tenon::cpu
