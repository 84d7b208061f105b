// Records of pairs sorted by a key through buckets of key ranges: an exact order of any number of
// pairs whose memory is the records themselves, or a file.
//
// Records are added by several threads at once, each in a slot of its own, into buckets by a
// monotone map of the key; then every bucket is sorted by itself, while it is in the second-level
// cache. Buckets that came out too large (many equal or unforeseen keys) are taken in parts.

#ifndef TENON_BACKENDS_CPU_PAIR_BUCKETS_H_
#define TENON_BACKENDS_CPU_PAIR_BUCKETS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/error.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"
#include "backends/cpu/spill_file.h"

namespace tenon::cpu {

// The key of a distance, which is not negative: its bits are ordered as it is.
inline uint64_t KeyOfDistance(double distance) { return std::bit_cast<uint64_t>(distance); }
inline double DistanceOfKey(uint64_t key) { return std::bit_cast<double>(key); }

// A monotone map of keys onto buckets [0, buckets()).
class BucketMap {
 public:
  // Buckets that hold about the same share of a sample, which is reordered; no more than `buckets`.
  static BucketMap OfSample(std::span<uint64_t> sample, int64_t buckets);

  int64_t buckets() const { return buckets_; }
  int32_t Bucket(uint64_t key) const {
    if (key <= low_) return 0;
    const uint64_t cell = (key - low_) >> shift_;
    return table_[std::min<uint64_t>(cell, table_.size() - 1)];
  }

 private:
  uint64_t low_ = 0;
  int shift_ = 0;
  int64_t buckets_ = 1;
  std::vector<int32_t> table_ = {0};
};

template <typename Payload>
struct [[gnu::packed]] PairRecord {
  uint64_t key;
  Payload payload;
};

// Sorts records by key, equal keys in any order. The result is in `records` or in `scratch`, which
// has room for as many.
template <typename Payload>
PairRecord<Payload>* SortRecords(PairRecord<Payload>* records, PairRecord<Payload>* scratch,
                                 int64_t count);

// Instantiated for uint32_t and double payloads.
template <typename Payload>
class PairBuckets {
 public:
  using Record = PairRecord<Payload>;

  struct Options {
    int64_t records = 0;  // that will be added in all
    int slots = 1;        // threads
    int64_t buckets = 1;
    bool spill = false;  // to a file; memory then does not grow with `records`
  };
  // Buckets for so many records: in memory each fits in the second-level cache, with a file their
  // open blocks take as much memory as one that is sorted.
  static int64_t BucketsFor(int64_t records, bool spill);
  static int64_t Bytes(const Options& options);
  // Bytes of the file, at most.
  static int64_t FileBytes(const Options& options);

  // `map` has at most options.buckets. `file` is for spilling and outlives this; may be null else.
  static absl::StatusOr<PairBuckets> Create(const Options& options, const BucketMap& map,
                                            SpillFile* file);

  // Adds one record; calls with different slots may run at once.
  void Add(int slot, uint64_t key, Payload payload) {
    const int64_t chain = slot * map_.buckets() + map_.Bucket(key);
    Tail& tail = tails_[chain];
    if (tail.next == tail.end) Extend(chain);
    *tail.next++ = {key, payload};
  }

  // The records in order of their keys: visit(slot, bucket, records, count, first, last) for
  // `count` records of one key, which take the positions [first, last) of the order; a key that has
  // too many records comes in several calls with the same positions. Within a bucket calls come in
  // order, different buckets may run at once. Fails when cancelled, or when the file did.
  template <typename Visit>
  absl::Status VisitTies(const Parallel& parallel, const Visit& visit);

  int64_t buckets() const { return map_.buckets(); }

 private:
  struct Tail {
    Record* next = nullptr;
    Record* end = nullptr;
  };
  // Keys from `low` to `high`.
  struct Range {
    uint64_t low, high;
  };

  static constexpr int64_t kBlockBytes = 4096;
  static constexpr int64_t kBlockRecords = kBlockBytes / static_cast<int64_t>(sizeof(Record));

  // Most records of a bucket that are sorted at once.
  static int64_t SortedAtOnce(const Options& options);
  static int64_t Blocks(const Options& options);

  void Extend(int64_t chain);
  Record* Block(int64_t block) {
    return reinterpret_cast<Record*>(blocks_.data() + block * kBlockBytes);
  }
  int64_t CountOf(int64_t bucket) const;
  // Calls body(records, count) for all records of a bucket. Fails when cancelled.
  template <typename Body>
  absl::Status ForEachBlock(const Parallel& parallel, int slot, int64_t bucket, const Body& body);
  template <typename Visit>
  absl::Status VisitRange(const Parallel& parallel, int slot, int64_t bucket, Range range,
                          int64_t count, int64_t& position, const Visit& visit);
  template <typename Visit>
  absl::Status VisitParts(const Parallel& parallel, int slot, int64_t bucket, Range range,
                          int64_t& position, const Visit& visit);
  template <typename Visit>
  absl::Status VisitSorted(const Parallel& parallel, int slot, int64_t bucket, Range range,
                           int64_t count, int64_t& position, const Visit& visit);

  Options options_;
  BucketMap map_;
  SpillFile* file_ = nullptr;
  Buffer blocks_, sorting_, reading_;
  int64_t next_block_ = 0;                    // of blocks_
  std::vector<Tail> tails_;                   // per slot and bucket
  std::vector<std::vector<int32_t>> chains_;  // full blocks, then the current one
};

// ---- Implementation of the templates ---------------------------------------------------------

template <typename Payload>
template <typename Body>
absl::Status PairBuckets<Payload>::ForEachBlock(const Parallel& parallel, int slot, int64_t bucket,
                                                const Body& body) {
  constexpr int64_t kCheck = 1024;  // blocks between two looks
  for (int owner = 0; owner < options_.slots; ++owner) {
    const int64_t chain = owner * map_.buckets() + bucket;
    const std::vector<int32_t>& ids = chains_[chain];
    const int64_t full =
        options_.spill ? static_cast<int64_t>(ids.size()) : static_cast<int64_t>(ids.size()) - 1;
    for (int64_t b = 0; b < full; ++b) {
      if (b % kCheck == kCheck - 1) TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
      const Record* records = Block(ids[b]);
      if (options_.spill) {
        Record* read = reinterpret_cast<Record*>(reading_.data() + slot * kBlockBytes);
        TENON_RETURN_IF_ERROR(file_->Read(ids[b], read));
        records = read;
      }
      body(records, kBlockRecords);
    }
    const Tail& tail = tails_[chain];
    if (tail.next != nullptr) body(tail.end - kBlockRecords, tail.next - tail.end + kBlockRecords);
  }
  return absl::OkStatus();
}

template <typename Payload>
template <typename Visit>
absl::Status PairBuckets<Payload>::VisitSorted(const Parallel& parallel, int slot, int64_t bucket,
                                               Range range, int64_t count, int64_t& position,
                                               const Visit& visit) {
  const int64_t capacity = SortedAtOnce(options_);
  Record* records = reinterpret_cast<Record*>(sorting_.data()) + int64_t{2} * slot * capacity;
  Record* next = records;
  const bool whole = range.low == 0 && range.high == UINT64_MAX;
  TENON_RETURN_IF_ERROR(ForEachBlock(parallel, slot, bucket, [&](const Record* block, int64_t n) {
    if (whole) {
      next = std::copy_n(block, n, next);
      return;
    }
    for (int64_t r = 0; r < n; ++r) {
      if (block[r].key >= range.low && block[r].key <= range.high) *next++ = block[r];
    }
  }));
  const Record* sorted = SortRecords<Payload>(records, records + capacity, count);
  for (int64_t first = 0; first < count;) {
    int64_t last = first + 1;
    while (last < count && sorted[last].key == sorted[first].key) ++last;
    visit(slot, bucket, sorted + first, last - first, position + first, position + last);
    first = last;
  }
  position += count;
  return absl::OkStatus();
}

template <typename Payload>
template <typename Visit>
absl::Status PairBuckets<Payload>::VisitParts(const Parallel& parallel, int slot, int64_t bucket,
                                              Range range, int64_t& position, const Visit& visit) {
  constexpr int kPartBits = 8;
  const int shift =
      std::max(0, static_cast<int>(std::bit_width(range.high - range.low)) - kPartBits);
  std::vector<int64_t> counts(1 << kPartBits);
  TENON_RETURN_IF_ERROR(ForEachBlock(parallel, slot, bucket, [&](const Record* block, int64_t n) {
    for (int64_t r = 0; r < n; ++r) {
      if (block[r].key < range.low || block[r].key > range.high) continue;
      ++counts[(block[r].key - range.low) >> shift];
    }
  }));
  const auto parts = static_cast<int64_t>(counts.size());
  for (int64_t part = 0; part < parts;) {
    // As many parts together as can be sorted at once, or one.
    int64_t last = part + 1, count = counts[part];
    while (last < parts && count + counts[last] <= SortedAtOnce(options_)) count += counts[last++];
    const Range inner = {
        range.low + (static_cast<uint64_t>(part) << shift),
        std::min(range.high, range.low + (static_cast<uint64_t>(last) << shift) - 1)};
    if (count > 0) {
      TENON_RETURN_IF_ERROR(VisitRange(parallel, slot, bucket, inner, count, position, visit));
    }
    part = last;
  }
  return absl::OkStatus();
}

template <typename Payload>
template <typename Visit>
absl::Status PairBuckets<Payload>::VisitRange(const Parallel& parallel, int slot, int64_t bucket,
                                              Range range, int64_t count, int64_t& position,
                                              const Visit& visit) {
  if (count <= SortedAtOnce(options_)) {
    return VisitSorted(parallel, slot, bucket, range, count, position, visit);
  }
  if (range.low < range.high) return VisitParts(parallel, slot, bucket, range, position, visit);
  const int64_t last = position + count;
  TENON_RETURN_IF_ERROR(ForEachBlock(parallel, slot, bucket, [&](const Record* block, int64_t n) {
    for (int64_t r = 0; r < n; ++r) {
      if (block[r].key == range.low) visit(slot, bucket, block + r, 1, position, last);
    }
  }));
  position = last;
  return absl::OkStatus();
}

template <typename Payload>
template <typename Visit>
absl::Status PairBuckets<Payload>::VisitTies(const Parallel& parallel, const Visit& visit) {
  std::vector<int64_t> positions(map_.buckets());
  int64_t position = 0;
  for (int64_t bucket = 0; bucket < map_.buckets(); ++bucket) {
    positions[bucket] = std::exchange(position, position + CountOf(bucket));
  }
  std::vector<absl::Status> failures(options_.slots);
  TENON_RETURN_IF_ERROR(parallel.ForEach(map_.buckets(), [&](int64_t bucket, int slot) {
    const int64_t count = CountOf(bucket);
    if (count == 0 || !failures[slot].ok()) return;
    if (count <= SortedAtOnce(options_)) {
      failures[slot] =
          VisitSorted(parallel, slot, bucket, {0, UINT64_MAX}, count, positions[bucket], visit);
      return;
    }
    Range range = {UINT64_MAX, 0};
    failures[slot] = ForEachBlock(parallel, slot, bucket, [&](const Record* block, int64_t n) {
      for (int64_t r = 0; r < n; ++r) {
        const uint64_t key = block[r].key;
        range = {std::min(range.low, key), std::max(range.high, key)};
      }
    });
    if (failures[slot].ok()) {
      failures[slot] = VisitRange(parallel, slot, bucket, range, count, positions[bucket], visit);
    }
  }));
  for (const absl::Status& failure : failures) TENON_RETURN_IF_ERROR(failure);
  return file_ == nullptr ? absl::OkStatus() : file_->status();
}

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_PAIR_BUCKETS_H_
