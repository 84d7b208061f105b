// The generators of random numbers: published test vectors, and draws recorded from NumPy 2.4.6.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "backends/measurement/counter_random.h"
#include "backends/measurement/numpy_random_state.h"

namespace tenon::measurement {
namespace {

TEST(NumpyRandomState, HasTheWordsOfTheMersenneTwister) {
  NumpyRandomState state(5489);  // the default seed of std::mt19937 starts the same recurrence
  for (const uint32_t word : {3499211612u, 581869302u, 3890346734u, 3586334585u}) {
    EXPECT_EQ(state.Next32(), word);
  }
  NumpyRandomState zero(0);
  std::vector<uint32_t> words(2000);
  for (uint32_t& word : words) word = zero.Next32();
  EXPECT_EQ(words[0], 2357136044u);
  EXPECT_EQ(words[1], 2546248239u);
  EXPECT_EQ(words[623], 3791854820u);
  EXPECT_EQ(words[624], 341544762u);
  EXPECT_EQ(words[1999], 3856691381u);
  NumpyRandomState largest(std::numeric_limits<uint32_t>::max());
  for (const uint32_t word : {419326371u, 479346978u, 3918654476u}) {
    EXPECT_EQ(largest.Next32(), word);
  }
}

// RandomState(5): eight of randint(0, 200), two of random(), then randint of wider ranges.
TEST(NumpyRandomState, DrawsLikeNumPy) {
  NumpyRandomState state(5);
  for (const int64_t value : {99, 189, 118, 144, 73, 8, 190, 155}) {
    EXPECT_EQ(state.Below(200), value);
  }
  EXPECT_EQ(state.Uniform(), 0.3541380429150014);
  EXPECT_EQ(state.Uniform(), 0.48663799685836207);
  EXPECT_EQ(state.Below(1), 0);
  EXPECT_EQ(state.Below((int64_t{1} << 31) - 1), 2108059852);
  EXPECT_EQ(state.Below(int64_t{1} << 32), 806256527);
  EXPECT_EQ(state.Below((int64_t{1} << 40) + 7), 485678085557);
  EXPECT_EQ(state.Below(std::numeric_limits<int64_t>::max()), 2757029700492225616);
  EXPECT_EQ(state.Uniform(), 0.8194727930524142);
}

TEST(NumpyRandomState, DrawsNothingForOneValue) {
  NumpyRandomState drawn(3), fresh(3);
  EXPECT_EQ(drawn.Below(1), 0);
  EXPECT_EQ(drawn.Next32(), fresh.Next32());
}

TEST(NumpyRandomState, ShufflesLikeNumPy) {
  NumpyRandomState state(7);
  std::vector<int64_t> values(12);
  std::iota(values.begin(), values.end(), 0);
  state.Shuffle<int64_t>(values);
  EXPECT_EQ(values, (std::vector<int64_t>{7, 10, 2, 5, 0, 1, 11, 8, 3, 6, 9, 4}));
  std::vector<int8_t> bytes = {0, 1, 2, 3, 4, 5};
  state.Shuffle<int8_t>(bytes);
  EXPECT_EQ(bytes, (std::vector<int8_t>{1, 4, 5, 3, 0, 2}));
  state.Shuffle<int8_t>({});
  EXPECT_EQ(state.Uniform(), 0.8688014582078086);
}

using Words = std::array<uint32_t, 4>;

// kat_vectors of Random123, lines "philox 4 32 10".
TEST(Philox, HasThePublishedTestVectors) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, IsAddressedBySeedStreamAndPosition) {
  const uint64_t seed = 0x0123456789abcdef, stream = 0xfedcba9876543210;
  CounterRandom random(seed, stream);
  for (uint32_t block = 0; block < 5; ++block) {
    const Words words = Philox({block, 0, 0x76543210, 0xfedcba98}, {0x89abcdef, 0x01234567});
    EXPECT_EQ(random.Next(), uint64_t{words[1]} << 32 | words[0]);
    EXPECT_EQ(random.Next(), uint64_t{words[3]} << 32 | words[2]);
  }
}

TEST(CounterRandom, HasNoDrawTwiceAmongNearSeedsAndStreams) {
  std::set<uint64_t> draws;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t stream = 0; stream < 10; ++stream) {
      CounterRandom random(seed, stream);
      for (int i = 0; i < 100; ++i) draws.insert(random.Next());
    }
  }
  EXPECT_EQ(draws.size(), 10000u);
}

TEST(CounterRandom, TakesUniformsFromTheUpperBits) {
  CounterRandom uniform(1, 2), words(1, 2);
  double sum = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform.Uniform();
    EXPECT_EQ(u, std::ldexp(static_cast<double>(words.Next() >> 11), -53));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 / std::sqrt(12.0 * kDraws));
}

// Pearson's statistic of `counts` against equal shares stays below its 99.9 % point, which lies
// below dof + 4.5 sqrt(dof) + 8 for the degrees of freedom here.
void ExpectEqualShares(const std::vector<int64_t>& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const double share = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (const int64_t count : counts) {
    const double difference = static_cast<double>(count) - share;
    statistic += difference * difference / share;
  }
  const auto freedom = static_cast<double>(counts.size() - 1);
  EXPECT_LT(statistic, freedom + 4.5 * std::sqrt(freedom) + 8);
}

TEST(CounterRandom, DrawsEveryValueEquallyOften) {
  CounterRandom random(11, 0);
  for (const int64_t h : {1, 2, 3, 7, 64, 1000}) {
    SCOPED_TRACE(h);
    std::vector<int64_t> counts(h);
    for (int64_t i = 0; i < 200 * h; ++i) {
      const int64_t value = random.Below(h);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, h);
      ++counts[value];
    }
    ExpectEqualShares(counts);
  }
}

// A range of 3/4 of all 63 bits: without rejection its values would not be equally likely.
TEST(CounterRandom, DrawsEquallyFromWideRanges) {
  constexpr int64_t kThird = int64_t{1} << 61;
  CounterRandom random(12, 0);
  std::vector<int64_t> counts(3);
  for (int i = 0; i < 30000; ++i) ++counts[random.Below(3 * kThird) / kThird];
  ExpectEqualShares(counts);
}

TEST(CounterRandom, ShufflesToEveryOrderEquallyOften) {
  CounterRandom random(13, 0);
  std::vector<int64_t> counts(24);
  for (int i = 0; i < 24000; ++i) {
    std::array<int, 4> order = {0, 1, 2, 3};
    random.Shuffle<int>(order);
    int64_t number = 0;
    for (size_t a = 0; a < order.size(); ++a) {
      const auto smaller = std::count_if(order.begin() + static_cast<int64_t>(a), order.end(),
                                         [&](int later) { return later < order[a]; });
      number = number * static_cast<int64_t>(order.size() - a) + smaller;
    }
    ++counts.at(number);
  }
  ExpectEqualShares(counts);
}

}  // namespace
}  // namespace tenon::measurement
