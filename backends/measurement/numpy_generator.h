// The random generator of NumPy's default_rng, draw for draw.

#ifndef TENON_BACKENDS_MEASUREMENT_NUMPY_GENERATOR_H_
#define TENON_BACKENDS_MEASUREMENT_NUMPY_GENERATOR_H_

#include <cstdint>

namespace tenon::measurement {

// numpy.random.default_rng(seed): PCG64 (O'Neill: PCG, HMC-CS-2014-0905), seeded through
// SeedSequence, a hash of the seed into 256 bits. Not thread-safe.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed);

  uint64_t Next64();

  // integers(0, h), 1 <= h <= 2^32: Lemire's method on 32-bit draws, which are the halves of
  // 64-bit ones, the lower first; the upper waits for the next call. h = 1 draws nothing.
  int64_t Below(int64_t h);

 private:
  using Wide = unsigned __int128;

  void Step();
  uint32_t Next32();

  Wide state_ = 0, increment_ = 0;
  uint32_t upper_half_ = 0;
  bool has_upper_half_ = false;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_NUMPY_GENERATOR_H_
