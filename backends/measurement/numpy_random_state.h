// The legacy random generator of NumPy, draw for draw.

#ifndef TENON_BACKENDS_MEASUREMENT_NUMPY_RANDOM_STATE_H_
#define TENON_BACKENDS_MEASUREMENT_NUMPY_RANDOM_STATE_H_

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace tenon::measurement {

// numpy.random.RandomState(seed): MT19937 (Matsumoto and Nishimura: Mersenne twister, ACM TOMACS 8,
// 1998), started by Knuth's linear recurrence. Not thread-safe.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint32_t seed);

  uint32_t Next32();

  // randint(0, h), h >= 1: masked draws until one is small enough; h = 1 draws nothing.
  int64_t Below(int64_t h);

  // random(): [0, 1) with 53 bits, from two draws.
  double Uniform();

  // shuffle(): every order equally likely.
  template <typename T>
  void Shuffle(std::span<T> values) {
    for (int64_t i = static_cast<int64_t>(values.size()) - 1; i > 0; --i) {
      std::swap(values[i], values[Below(i + 1)]);
    }
  }

 private:
  static constexpr int kWords = 624;

  void Refill();

  std::array<uint32_t, kWords> words_;
  int next_ = kWords;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_NUMPY_RANDOM_STATE_H_
