// A small generator whose numbers are the same on every platform (splitmix64: Steele, Lea, Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014).

#ifndef TENON_BACKENDS_PLANNER_RANDOM_H_
#define TENON_BACKENDS_PLANNER_RANDOM_H_

#include <cmath>
#include <cstdint>

namespace tenon::planner {

class Random {
 public:
  // Streams of one seed are independent.
  Random(uint64_t seed, uint64_t stream) : state_(Mix(seed) ^ Mix(~stream)) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    return Mix(state_);
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // In [low, high), uniform in the logarithm; both are positive.
  double LogUniform(double low, double high) { return low * std::pow(high / low, Uniform()); }
  // In [0, count).
  int Below(int count) {
    return static_cast<int>((Next() >> 32) * static_cast<uint64_t>(count) >> 32);
  }
  // Of the standard Gumbel distribution.
  double Gumbel() { return -std::log(-std::log(Uniform() + 0x1p-54)); }

 private:
  static uint64_t Mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint64_t state_;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_RANDOM_H_
