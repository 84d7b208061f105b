#include "backends/measurement/numpy_generator.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <vector>

namespace tenon::measurement {
namespace {

// NumPy 2.4.6: numpy.random.PCG64(seed).random_raw(3).
TEST(NumpyGenerator, DrawsTheWordsOfPcg64ForSeedsOfAnyLength) {
  const std::map<uint64_t, std::vector<uint64_t>> expected = {
      {0, {0xa30febcfd9c2825fu, 0x4510bdf882d9d721u, 0xa7d3da94ecde8b8u}},
      {7, {0xa00641a9f1e54a8bu, 0xe5afcdbcaf266a95u, 0xc693565f940af962u}},
      {uint64_t{1} << 32, {0xe3c5ebe285ac1625u, 0x8ea09968fe31dbccu, 0xcd084ff84d8de9beu}},
      {(uint64_t{1} << 63) + 5, {0x7af08e89d1f1456du, 0xe777e80c301c2fd6u, 0xa44875755450c1c0u}},
      {std::numeric_limits<uint64_t>::max(),
       {0xae163a7a8c47568fu, 0xd86659f5f3382359u, 0x1e52b195bc2d24au}}};
  for (const auto& [seed, words] : expected) {
    SCOPED_TRACE(seed);
    NumpyGenerator generator(seed);
    for (const uint64_t word : words) EXPECT_EQ(generator.Next64(), word);
  }
}

// NumPy 2.4.6: default_rng(7).integers(0, h) for each h in turn; then random_raw(3) of the same.
TEST(NumpyGenerator, DrawsIntegersFromHalvesOfWords) {
  NumpyGenerator generator(7);
  const std::vector<std::pair<int64_t, int64_t>> draws = {{3, 2},
                                                          {10, 6},
                                                          {1, 0},
                                                          {1000, 684},
                                                          {2147483647, 1926751965},
                                                          {5, 2},
                                                          {5, 3},
                                                          {4294967295, 3580503873},
                                                          {7, 1}};
  for (const auto& [h, expected] : draws) EXPECT_EQ(generator.Below(h), expected) << h;
  EXPECT_EQ(generator.Next64(), 5537090637313560901u);
  EXPECT_EQ(generator.Next64(), 16114216841932056372u);
}

// NumPy 2.4.6: default_rng(42).integers(0, 3 * 2**30), where every fourth draw is rejected.
TEST(NumpyGenerator, RejectsTheSurplusOfDraws) {
  NumpyGenerator generator(42);
  for (const int64_t expected : std::vector<int64_t>{2493086937, 2108522448, 1413726408, 2765737489,
                                                     276850281, 2246379658, 648978800, 303366471}) {
    EXPECT_EQ(generator.Below(int64_t{3} << 30), expected);
  }
}

TEST(NumpyGenerator, DrawsNothingForTheOnlyInteger) {
  NumpyGenerator one(3), other(3);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(one.Below(1), 0);
  EXPECT_EQ(one.Below(1000), other.Below(1000));
}

}  // namespace
}  // namespace tenon::measurement
