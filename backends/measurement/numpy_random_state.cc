#include "backends/measurement/numpy_random_state.h"

#include <bit>
#include <limits>

namespace tenon::measurement {

NumpyRandomState::NumpyRandomState(uint32_t seed) {
  words_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
  }
}

void NumpyRandomState::Refill() {
  constexpr int kOffset = 397;
  for (int i = 0; i < kWords; ++i) {
    const uint32_t joined = (words_[i] & 0x80000000u) | (words_[(i + 1) % kWords] & 0x7fffffffu);
    const uint32_t twist = (joined & 1) != 0 ? 0x9908b0dfu : 0u;
    words_[i] = words_[(i + kOffset) % kWords] ^ (joined >> 1) ^ twist;
  }
  next_ = 0;
}

uint32_t NumpyRandomState::Next32() {
  if (next_ == kWords) Refill();
  uint32_t word = words_[next_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

int64_t NumpyRandomState::Below(int64_t h) {
  const auto largest = static_cast<uint64_t>(h - 1);
  if (largest == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(largest);
  // Ranges that fit in 32 bits take one word a draw, larger ones two, the high half first.
  const bool wide = largest > std::numeric_limits<uint32_t>::max();
  for (;;) {
    uint64_t word = Next32();
    if (wide) word = word << 32 | Next32();
    if ((word & mask) <= largest) return static_cast<int64_t>(word & mask);
  }
}

double NumpyRandomState::Uniform() {
  const uint32_t high = Next32() >> 5;
  const uint32_t low = Next32() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

}  // namespace tenon::measurement
