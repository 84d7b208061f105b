#include "backends/schedule/ordered_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/contraction/program.h"
#include "backends/core/binary_scale.h"

namespace tenon::schedule {
namespace {

using contraction::Program;

// The sum over `s` of x[s, r] w[s, r] for every r, with `groups` slices of s, one group each, for
// each of `blocks` values of the sliced output index o.
std::shared_ptr<const Program> MakeProgram(int64_t groups, int64_t blocks, DType dtype,
                                           int64_t block_elements = 3, bool normalize = false) {
  Network network;
  network.inputs = {{"s", "o", "r"}, {"s", "r"}};
  network.output = {"r", "o"};
  const auto expression = contraction::MakeExpression(
      network, {{groups, blocks, block_elements}, {groups, block_elements}});
  EXPECT_TRUE(expression.ok()) << expression.status();
  const auto sliced = contraction::MakeSliced(*expression, {"o", "s"});
  EXPECT_TRUE(sliced.ok()) << sliced.status();
  contraction::LoweringOptions options;
  options.dtype = dtype;
  options.normalize = normalize;
  auto program =
      contraction::LowerProgram(*expression, contraction::Path{{{0, 1}}}, *sliced, options);
  EXPECT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->groups_per_block(), groups);
  EXPECT_EQ((*program)->n_groups(), groups * blocks);
  return *program;
}

// A float whose sums depend on their order.
float PartialSum(int64_t group, int64_t element) {
  std::minstd_rand random(static_cast<unsigned>(1 + 7 * group + 1000003 * element));
  return std::ldexp(static_cast<float>(random()) / 2147483648.0f - 0.5f,
                    static_cast<int>(random() % 24));
}

// The definition: [a, b) is [a, m) + [m, b), m - a the largest power of two below b - a.
float TreeSum(int64_t a, int64_t b, int64_t offset, int64_t element) {
  if (b - a == 1) return PartialSum(offset + a, element);
  int64_t half = 1;
  while (2 * half < b - a) half *= 2;
  return TreeSum(a, a + half, offset, element) + TreeSum(a + half, b, offset, element);
}

// A worker's life: `fill` makes a group's partial sum. All groups get claimed by somebody.
template <typename Fill>
void Work(OrderedSum& sum, const Fill& fill) {
  OrderedSum::Claim claim;
  while (!sum.AllClaimed()) {
    if (!sum.TryNext(&claim)) {
      std::this_thread::yield();  // no buffer is free
      continue;
    }
    fill(&claim);
    sum.Finish(claim);
    for (auto more = sum.CombineNext(); more.ok() && *more;) more = sum.CombineNext();
  }
}

// Runs all groups of [first, last) on `workers` threads and returns the result.
std::vector<float> Sum(const Program& program, int64_t first, int64_t last, int window,
                       int workers) {
  const int64_t block = program.descriptor().block_elements;
  const int64_t blocks = program.descriptor().n_blocks;
  std::vector<float> result(static_cast<size_t>(block * blocks), -1.0f);
  std::vector<float> memory(
      static_cast<size_t>(OrderedSum::BuffersNeeded(program, first, last, window) * block));
  OrderedSum sum(program, first, last, window, memory.data(), result.data());
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&sum, block, worker] {
      Work(sum, [block, worker](OrderedSum::Claim* claim) {
        auto* partial = static_cast<float*>(claim->partial_sum);
        // Some finish late, so that the order of finishing differs from that of claiming.
        if ((claim->group + worker) % 3 == 0) std::this_thread::yield();
        for (int64_t e = 0; e < block; ++e) partial[e] = PartialSum(claim->group, e);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

TEST(OrderedSum, IsTheTreeWhateverTheWindowAndTheThreads) {
  for (const int64_t groups : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31}) {
    const auto program = MakeProgram(groups, 1, DType::kFloat32);
    for (const int window : {1, 2, 3, 8}) {
      for (const int workers : {1, 2, 3}) {
        const std::vector<float> result = Sum(*program, 0, groups, window, workers);
        for (int64_t e = 0; e < 3; ++e) {
          EXPECT_EQ(result[static_cast<size_t>(e)], TreeSum(0, groups, 0, e))
              << groups << " groups, window " << window << ", " << workers << " workers";
        }
      }
    }
  }
}

TEST(OrderedSum, BlocksAreSummedApartAndPlacedApart) {
  constexpr int64_t kGroups = 5, kBlocks = 4;
  const auto program = MakeProgram(kGroups, kBlocks, DType::kFloat32);
  const std::vector<float> result = Sum(*program, 0, kGroups * kBlocks, 3, 2);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t o = 0; o < kBlocks; ++o) {
      EXPECT_EQ(result[static_cast<size_t>(r * kBlocks + o)], TreeSum(0, kGroups, o * kGroups, r));
    }
  }
}

// Ranges that are nodes of the tree, summed elsewhere, give the whole.
TEST(OrderedSum, NodesAddUpToTheWhole) {
  const auto program = MakeProgram(7, 1, DType::kFloat32);
  const auto whole = Sum(*program, 0, 7, 4, 2);
  const auto left = Sum(*program, 0, 4, 4, 2);
  const auto middle = Sum(*program, 4, 6, 2, 1);
  const auto right = Sum(*program, 6, 7, 1, 1);
  for (size_t e = 0; e < 3; ++e) EXPECT_EQ(left[e] + (middle[e] + right[e]), whole[e]);
}

// The same tree of pairs of mantissas and exponents.
int64_t ScaledTreeSum(int64_t a, int64_t b, int64_t offset, std::vector<float>& sum) {
  if (b - a == 1) {
    for (int64_t e = 0; e < 3; ++e) sum[static_cast<size_t>(e)] = PartialSum(offset + a, e);
    return 50 * ((offset + a) % 7);
  }
  int64_t half = 1;
  while (2 * half < b - a) half *= 2;
  std::vector<float> right(3);
  const int64_t left_exponent = ScaledTreeSum(a, a + half, offset, sum);
  const int64_t right_exponent = ScaledTreeSum(a + half, b, offset, right);
  return AddScaled(DType::kFloat32, sum.data(), left_exponent, right.data(), right_exponent, 3);
}

TEST(OrderedSum, OfScaledSumsIsTheSameTree) {
  constexpr int64_t kGroups = 13, kBlocks = 4;
  const auto program = MakeProgram(kGroups, kBlocks, DType::kFloat32, 3, /*normalize=*/true);
  std::vector<std::vector<float>> expected(kBlocks, std::vector<float>(3));
  std::vector<int64_t> exponents;
  for (int64_t o = 0; o < kBlocks; ++o) {
    std::vector<float>& sum = expected[static_cast<size_t>(o)];
    const int64_t exponent = ScaledTreeSum(0, kGroups, o * kGroups, sum);
    exponents.push_back(ScaleToUnit(DType::kFloat32, sum.data(), exponent, 3));
  }
  const int64_t common = *std::max_element(exponents.begin(), exponents.end());
  for (const int workers : {1, 2, 3}) {
    std::vector<float> result(3 * kBlocks);
    std::vector<int64_t> memory(static_cast<size_t>(
        OrderedSum::BytesNeeded(*program, 0, kGroups * kBlocks, 3, INT64_MAX) / 8 + 1));
    OrderedSum sum(*program, 0, kGroups * kBlocks, 3, memory.data(), result.data());
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; ++worker) {
      threads.emplace_back([&sum] {
        Work(sum, [](OrderedSum::Claim* claim) {
          auto* partial = static_cast<float*>(claim->partial_sum);
          for (int64_t e = 0; e < 3; ++e) partial[e] = PartialSum(claim->group, e);
          claim->exponent = 50 * (claim->group % 7);
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(sum.FinishResult(), common);
    for (size_t r = 0; r < 3; ++r) {
      for (size_t o = 0; o < kBlocks; ++o) {
        EXPECT_EQ(result[r * kBlocks + o],
                  std::ldexp(expected[o][r], static_cast<int>(exponents[o] - common)));
      }
    }
  }
}

TEST(OrderedSum, AFullWindowGivesNothingUntilItsOldestGroupIsCombined) {
  const auto program = MakeProgram(8, 1, DType::kFloat32);
  std::vector<float> result(3),
      memory(static_cast<size_t>(3 * OrderedSum::BuffersNeeded(*program, 0, 8, 2)));
  OrderedSum sum(*program, 0, 8, 2, memory.data(), result.data());
  OrderedSum::Claim first, second, third;
  ASSERT_TRUE(sum.TryNext(&first));
  ASSERT_TRUE(sum.TryNext(&second));
  EXPECT_FALSE(sum.TryNext(&third));
  sum.Finish(second);
  EXPECT_FALSE(*sum.CombineNext());  // in order
  EXPECT_FALSE(sum.TryNext(&third));
  sum.Finish(first);
  EXPECT_TRUE(*sum.CombineNext());
  EXPECT_TRUE(sum.TryNext(&third));
  EXPECT_EQ(third.group, 2);
  EXPECT_TRUE(*sum.CombineNext());
  EXPECT_FALSE(*sum.CombineNext());
}

// Every element size, a scalar, a strided and an empty block.
TEST(PlaceBlock, FollowsTheStrides) {
  const auto place = [](auto sample, DType dtype) {
    using T = decltype(sample);
    std::vector<T> block(6), result(40, T(-1));
    for (size_t i = 0; i < block.size(); ++i) block[i] = T(static_cast<double>(i + 1));
    PlaceBlock(dtype, {2, 3}, {20, 2}, 5, block.data(), result.data());
    for (int i = 0; i < 40; ++i) {
      T expected = T(-1);
      for (int row = 0; row < 2; ++row) {
        for (int column = 0; column < 3; ++column) {
          if (i == 5 + 20 * row + 2 * column)
            expected = block[static_cast<size_t>(3 * row + column)];
        }
      }
      EXPECT_EQ(result[static_cast<size_t>(i)], expected) << i;
    }
    PlaceBlock(dtype, {}, {}, 7, block.data() + 5, result.data());
    EXPECT_EQ(result[7], block[5]);
    const std::vector<T> before = result;
    PlaceBlock(dtype, {0, 3}, {3, 1}, 0, block.data(), result.data());
    EXPECT_EQ(result, before);
    PlaceBlock(dtype, {2, 3}, {3, 1}, 0, block.data(), result.data());
    EXPECT_TRUE(std::equal(block.begin(), block.end(), result.begin()));
  };
  place(float(), DType::kFloat32);
  place(double(), DType::kFloat64);
  place(std::complex<float>(), DType::kComplex64);
  place(std::complex<double>(), DType::kComplex128);
}

}  // namespace
}  // namespace tenon::schedule
