#include "backends/measurement/numpy_generator.h"

#include <array>
#include <bit>
#include <cstddef>

namespace tenon::measurement {
namespace {

using Pool = std::array<uint32_t, 4>;

uint32_t FoldUpperHalf(uint32_t word) { return word ^ word >> 16; }

// The hash of SeedSequence: its multiplier changes with every word.
class Hash {
 public:
  Hash(uint32_t initial, uint32_t factor) : multiplier_(initial), factor_(factor) {}

  uint32_t operator()(uint32_t word) {
    word ^= multiplier_;
    multiplier_ *= factor_;
    return FoldUpperHalf(word * multiplier_);
  }

 private:
  uint32_t multiplier_;
  const uint32_t factor_;
};

// SeedSequence(seed): every word of the pool depends on every word of the seed.
Pool PoolOf(uint64_t seed) {
  Hash hash(0x43b0d7e5u, 0x931e8875u);
  Pool pool = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  for (uint32_t& word : pool) word = hash(word);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      pool[to] = FoldUpperHalf(0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from]));
    }
  }
  return pool;
}

}  // namespace

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  const Pool pool = PoolOf(seed);
  Hash hash(0x8b51f9ddu, 0x58f38dedu);
  std::array<uint64_t, 4> words;
  for (std::size_t w = 0; w < words.size(); ++w) {
    const uint64_t low = hash(pool[2 * w % pool.size()]);
    words[w] = uint64_t{hash(pool[(2 * w + 1) % pool.size()])} << 32 | low;
  }
  increment_ = (Wide{words[2]} << 64 | words[3]) << 1 | 1;
  Step();
  state_ += Wide{words[0]} << 64 | words[1];
  Step();
}

void NumpyGenerator::Step() {
  constexpr Wide kMultiplier = Wide{2549297995355413924u} << 64 | 4865540595714422341u;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyGenerator::Next64() {
  Step();
  const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

uint32_t NumpyGenerator::Next32() {
  if (has_upper_half_) {
    has_upper_half_ = false;
    return upper_half_;
  }
  const uint64_t draw = Next64();
  upper_half_ = static_cast<uint32_t>(draw >> 32);
  has_upper_half_ = true;
  return static_cast<uint32_t>(draw);
}

int64_t NumpyGenerator::Below(int64_t h) {
  if (h == 1) return 0;
  const auto count = static_cast<uint64_t>(h);
  const uint64_t surplus = (uint64_t{1} << 32) % count;  // so many draws are too many
  uint64_t product = Next32() * count;
  while (static_cast<uint32_t>(product) < surplus) product = Next32() * count;
  return static_cast<int64_t>(product >> 32);
}

}  // namespace tenon::measurement
