#include "backends/cpu/radix_sort.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "backends/core/error.h"

namespace tenon::cpu {
namespace {

constexpr int kDigitBits = 11;
constexpr int kDigits = (64 + kDigitBits - 1) / kDigitBits;
constexpr int kBuckets = 1 << kDigitBits;
constexpr int64_t kMaxChunks = 64;
constexpr int64_t kMinChunk = 1 << 15;  // records; a smaller chunk costs more in its counts

int Digit(uint64_t key, int digit) { return (key >> (digit * kDigitBits)) & (kBuckets - 1); }

using Counts = std::array<int64_t, kBuckets>;

struct Chunks {
  int64_t count, size;  // size of each, the last one may be shorter
  int64_t Begin(int64_t chunk) const { return chunk * size; }
  int64_t End(int64_t chunk, int64_t records) const {
    return std::min(records, (chunk + 1) * size);
  }
};

Chunks MakeChunks(int64_t records) {
  const int64_t count = std::clamp<int64_t>(records / kMinChunk, 1, kMaxChunks);
  return {count, (records + count - 1) / count};
}

// Turns counts per chunk and bucket into first positions; false if one bucket holds all records.
bool CountsToPositions(std::vector<Counts>& counts, int64_t records) {
  int64_t position = 0;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    const int64_t first = position;
    for (Counts& chunk : counts) position += std::exchange(chunk[bucket], position);
    if (position - first == records) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<RadixRecords> RadixRecords::Allocate(int64_t count) {
  RadixRecords records;
  records.count_ = count;
  for (int copy = 0; copy < 2; ++copy) {
    TENON_ASSIGN_OR_RETURN(records.distances_[copy], Buffer::Allocate(count * 8));
    TENON_ASSIGN_OR_RETURN(records.payloads_[copy], Buffer::Allocate(count * 4));
  }
  return records;
}

absl::Status RadixRecords::Sort(const Parallel& parallel) {
  const Chunks chunks = MakeChunks(count_);
  std::vector<Counts> counts(chunks.count);
  for (int digit = 0; digit < kDigits; ++digit) {
    const uint64_t* keys = distances_[current_].as<uint64_t>();
    const uint32_t* payloads = payloads_[current_].as<uint32_t>();
    TENON_RETURN_IF_ERROR(parallel.ForEach(chunks.count, [&](int64_t chunk, int) {
      counts[chunk].fill(0);
      for (int64_t r = chunks.Begin(chunk); r < chunks.End(chunk, count_); ++r) {
        ++counts[chunk][Digit(keys[r], digit)];
      }
    }));
    if (!CountsToPositions(counts, count_)) continue;
    uint64_t* out_keys = distances_[1 - current_].as<uint64_t>();
    uint32_t* out_payloads = payloads_[1 - current_].as<uint32_t>();
    TENON_RETURN_IF_ERROR(parallel.ForEach(chunks.count, [&](int64_t chunk, int) {
      Counts& positions = counts[chunk];
      for (int64_t r = chunks.Begin(chunk); r < chunks.End(chunk, count_); ++r) {
        const int64_t position = positions[Digit(keys[r], digit)]++;
        out_keys[position] = keys[r];
        out_payloads[position] = payloads[r];
      }
    }));
    current_ = 1 - current_;
  }
  return absl::OkStatus();
}

}  // namespace tenon::cpu
