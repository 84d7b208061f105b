#include "backends/cpu/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "oneapi/tbb/global_control.h"

namespace tenon::cpu {
namespace {

// Copies by definition, element after element.
void CopyNaively(const std::vector<CopyLoop>& loops, size_t depth, int64_t bytes,
                 const char* source, char* target) {
  if (depth == loops.size()) {
    std::memcpy(target, source, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t i = 0; i < loops[depth].extent; ++i) {
    CopyNaively(loops, depth + 1, bytes, source + i * loops[depth].source * bytes,
                target + i * loops[depth].target * bytes);
  }
}

int64_t Span(const std::vector<CopyLoop>& loops, int64_t CopyLoop::*stride) {
  int64_t span = 1;
  for (const CopyLoop& loop : loops) span += (loop.extent - 1) * (loop.*stride);
  return span;
}

void Check(const std::vector<CopyLoop>& loops, int64_t bytes) {
  std::vector<char> source(Span(loops, &CopyLoop::source) * bytes);
  std::mt19937 random(3);
  for (char& byte : source) byte = static_cast<char>(random());
  std::vector<char> expected(Span(loops, &CopyLoop::target) * bytes, '\x5a'), copied = expected;
  std::vector<char> threaded = expected;
  CopyNaively(loops, 0, bytes, source.data(), expected.data());
  const StridedCopy copy(loops, bytes);
  copy.Run(source.data(), copied.data());
  EXPECT_TRUE(copied == expected) << copy.Describe();
  const tbb::global_control maybe_more_than_cores(tbb::global_control::max_allowed_parallelism, 3);
  ThreadTeam team(3, nullptr, 0);
  copy.Run(source.data(), threaded.data(), team, nullptr);
  EXPECT_TRUE(threaded == expected) << copy.Describe();
}

class StridedCopyTest : public ::testing::TestWithParam<int64_t> {};

// Loops with `extents`, laid out in a random order on either side, with gaps now and then.
std::vector<CopyLoop> RandomLoops(std::vector<int64_t> extents, std::mt19937& random) {
  std::vector<CopyLoop> loops;
  for (const int64_t extent : extents) loops.push_back({extent, 0, 0});
  for (int64_t CopyLoop::*stride : {&CopyLoop::source, &CopyLoop::target}) {
    std::vector<size_t> order(loops.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t next = 1;
    for (const size_t i : order) {
      loops[i].*stride = next;
      next *= loops[i].extent + (random() % 6 == 0 ? 1 : 0);
    }
  }
  return loops;
}

TEST_P(StridedCopyTest, RandomPermutations) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> extents(random() % 7);
    for (int64_t& extent : extents) extent = 1 + static_cast<int64_t>(random() % 6);
    Check(RandomLoops(extents, random), GetParam());
  }
}

TEST_P(StridedCopyTest, BinaryLoops) {
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    Check(RandomLoops(std::vector<int64_t>(12, 2), random), GetParam());
  }
}

TEST_P(StridedCopyTest, LongLoopsAreCut) {
  Check({{2500, 1, 37}, {37, 2500, 1}}, GetParam());       // transpose, long source side
  Check({{37, 1, 2500}, {2500, 37, 1}}, GetParam());       // transpose, long target side
  Check({{1500, 1, 1300}, {1300, 1500, 1}}, GetParam());   // both
  Check({{200000, 1, 1}}, GetParam());                     // one run
  Check({{3, 100003, 70000}, {70000, 1, 1}}, GetParam());  // runs with gaps
  Check({{5000, 3, 2}}, GetParam());                       // nothing contiguous
}

TEST_P(StridedCopyTest, RepeatsAndSingleElements) {
  Check({}, GetParam());
  Check({{1, 5, 7}}, GetParam());
  Check({{40, 0, 1}}, GetParam());  // one element everywhere
  Check({{40, 0, 8}, {8, 1, 1}}, GetParam());
}

TEST(StridedCopyFormTest, FormsAreWhatTheLayoutAllows) {
  EXPECT_EQ(StridedCopy({{8, 1, 100}, {100, 8, 1}}, 8).Describe(), "transpose of 8 bytes");
  EXPECT_EQ(StridedCopy({{8, 64, 100}, {50, 1, 1}}, 8).Describe(), "runs of 400 bytes");
  // Pairs of float32 move as one unit.
  EXPECT_EQ(StridedCopy({{2, 1, 1}, {9, 2, 32}, {16, 18, 2}}, 4).Describe(),
            "transpose of 8 bytes");
  EXPECT_EQ(StridedCopy({{100, 3, 1}}, 4).Describe(), "gather of 4 bytes");
}

INSTANTIATE_TEST_SUITE_P(Bytes, StridedCopyTest, ::testing::Values(4, 8, 16));

}  // namespace
}  // namespace tenon::cpu
