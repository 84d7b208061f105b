#include "client/cpp/tool/bench_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tenon::tool {
namespace {

// Values below 2^8 have a bucket each; every power of two above has 2^7 buckets.
constexpr int kExactBits = 8;
constexpr size_t kExact = size_t{1} << kExactBits;
constexpr size_t kHalf = kExact / 2;

size_t BucketOf(uint64_t value) {
  if (value < kExact) return static_cast<size_t>(value);
  const int shift = std::bit_width(value) - kExactBits;
  return kExact + static_cast<size_t>(shift - 1) * kHalf +
         static_cast<size_t>((value >> shift) - kHalf);
}

// The largest value of a bucket.
int64_t LastOf(size_t bucket) {
  if (bucket < kExact) return static_cast<int64_t>(bucket);
  const size_t shift = (bucket - kExact) / kHalf + 1;
  const uint64_t top = kHalf + (bucket - kExact) % kHalf;
  return static_cast<int64_t>(((top + 1) << shift) - 1);
}

}  // namespace

void LatencyHistogram::Record(int64_t nanoseconds) {
  const int64_t value = std::max<int64_t>(nanoseconds, 0);
  const size_t bucket = BucketOf(static_cast<uint64_t>(value));
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  ++counts_[bucket];
  ++count_;
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  counts_.resize(std::max(counts_.size(), other.counts_.size()));
  for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

int64_t LatencyHistogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(percent / 100 * static_cast<double>(count_));
  const auto rank = std::clamp<int64_t>(static_cast<int64_t>(wanted), 1, count_);
  int64_t seen = 0;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    seen += counts_[bucket];
    if (seen >= rank) return std::min(LastOf(bucket), max_);
  }
  return max_;
}

}  // namespace tenon::tool
