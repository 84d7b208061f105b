// Random numbers by counter: a draw depends only on seed, stream and position.

#ifndef TENON_BACKENDS_MEASUREMENT_COUNTER_RANDOM_H_
#define TENON_BACKENDS_MEASUREMENT_COUNTER_RANDOM_H_

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace tenon::measurement {

// One block of Philox 4x32-10 (Salmon et al.: Parallel random numbers: as easy as 1, 2, 3, SC
// 2011): four words that look independent for every counter and key, which have their least
// significant word first.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The draws of one stream, in order. The key is the seed; the counter has the block number in its
// lower and the stream in its upper 64 bits; a block gives two draws, of words 0, 1 and 2, 3, the
// first word being the lower half. Costs nothing to construct, streams of one seed are
// independent. Not thread-safe.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint64_t Next();

  // [0, 1) with 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // [0, h), h >= 1, every value equally likely (Lemire: Fast random integer generation in an
  // interval, ACM TOMACS 29, 2019).
  int64_t Below(int64_t h);

  // Every order equally likely.
  template <typename T>
  void Shuffle(std::span<T> values) {
    for (int64_t i = static_cast<int64_t>(values.size()) - 1; i > 0; --i) {
      std::swap(values[i], values[Below(i + 1)]);
    }
  }

 private:
  uint64_t seed_, stream_, block_ = 0;
  uint64_t second_ = 0;  // the other draw of the last block
  bool has_second_ = false;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_COUNTER_RANDOM_H_
