// Latencies in bounded memory.

#ifndef TENON_CLIENT_CPP_TOOL_BENCH_HISTOGRAM_H_
#define TENON_CLIENT_CPP_TOOL_BENCH_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::tool {

// Counts of nanoseconds in buckets whose width grows with the value: what it tells is at most 1/128
// above what was recorded, however many values there are (at most 58 KiB). Not thread-safe.
class LatencyHistogram {
 public:
  // Negative values count as 0.
  void Record(int64_t nanoseconds);
  void Merge(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  // Exact; 0 when nothing was recorded.
  int64_t max() const { return max_; }
  double Mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  // The smallest recorded value that at least `percent` % of all values do not exceed (nearest
  // rank), rounded up to the end of its bucket; percent in [0, 100]. 0 when nothing was recorded.
  int64_t Percentile(double percent) const;

 private:
  std::vector<int64_t> counts_;  // as long as the largest value needs
  int64_t count_ = 0, max_ = 0;
  double sum_ = 0;
};

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_BENCH_HISTOGRAM_H_
