#include "backends/measurement/counter_random.h"

namespace tenon::measurement {
namespace {

uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {High(second) ^ counter[1] ^ key[0], Low(second), High(first) ^ counter[3] ^ key[1],
               Low(first)};
    key[0] += 0x9E3779B9u;  // the golden ratio
    key[1] += 0xBB67AE85u;  // the root of 3, less 1
  }
  return counter;
}

uint64_t CounterRandom::Next() {
  if (has_second_) {
    has_second_ = false;
    return second_;
  }
  const auto words =
      Philox({Low(block_), High(block_), Low(stream_), High(stream_)}, {Low(seed_), High(seed_)});
  ++block_;
  second_ = uint64_t{words[3]} << 32 | words[2];
  has_second_ = true;
  return uint64_t{words[1]} << 32 | words[0];
}

int64_t CounterRandom::Below(int64_t h) {
  const auto count = static_cast<uint64_t>(h);
  auto product = static_cast<unsigned __int128>(Next()) * count;
  if (static_cast<uint64_t>(product) < count) {
    const uint64_t surplus = -count % count;  // 2^64 mod h draws are too many
    while (static_cast<uint64_t>(product) < surplus) {
      product = static_cast<unsigned __int128>(Next()) * count;
    }
  }
  return static_cast<int64_t>(product >> 64);
}

}  // namespace tenon::measurement
