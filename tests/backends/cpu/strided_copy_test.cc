#include "backends/cpu/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "backends/plugin/abi.h"
#include "oneapi/tbb/global_control.h"
#include "tests/backends/cpu/highway_target.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kGuard = 128;  // bytes around the target that stay as they are

// Calls `f(source, target)` with the byte offsets of every element, by definition.
template <typename F>
void ForElements(const std::vector<CopyLoop>& loops, int64_t bytes, F&& f) {
  std::vector<int64_t> index(loops.size(), 0);
  int64_t source = 0, target = 0;
  for (;;) {
    f(source * bytes, target * bytes);
    size_t i = loops.size();
    for (; i > 0; --i) {
      const CopyLoop& loop = loops[i - 1];
      source += loop.source;
      target += loop.target;
      if (++index[i - 1] < loop.extent) break;
      index[i - 1] = 0;
      source -= loop.extent * loop.source;
      target -= loop.extent * loop.target;
    }
    if (i == 0) return;
  }
}

int64_t Span(const std::vector<CopyLoop>& loops, int64_t CopyLoop::*stride) {
  int64_t span = 1;
  for (const CopyLoop& loop : loops) span += (loop.extent - 1) * (loop.*stride);
  return span;
}

// Bytes whose first ones lie `shift` bytes behind a cache line's beginning.
class Buffer {
 public:
  Buffer(int64_t bytes, int64_t shift) : data_(static_cast<size_t>(bytes + shift + 64)) {
    const auto address = reinterpret_cast<uintptr_t>(data_.data());
    begin_ = data_.data() + (64 - address % 64) % 64 + shift;
    end_ = begin_ + bytes;
  }
  Buffer(const Buffer& other) : Buffer(other.end_ - other.begin_, other.begin_ - other.Line()) {
    std::copy(other.begin_, other.end_, begin_);
  }
  char* begin() { return begin_; }
  char* end() { return end_; }
  bool operator==(const Buffer& other) const {
    return std::equal(begin_, end_, other.begin_, other.end_);
  }

 private:
  const char* Line() const { return begin_ - reinterpret_cast<uintptr_t>(begin_) % 64; }

  std::vector<char> data_;
  char *begin_, *end_;
};

void FillRandomly(Buffer& buffer) {
  std::minstd_rand random(3);
  for (char& byte : buffer) byte = static_cast<char>(random() >> 8);
}

void Check(const std::vector<CopyLoop>& loops, int64_t bytes, int64_t shift = 0) {
  Buffer source(Span(loops, &CopyLoop::source) * bytes, shift);
  FillRandomly(source);
  Buffer expected(Span(loops, &CopyLoop::target) * bytes + 2 * kGuard, shift);
  std::fill(expected.begin(), expected.end(), '\x5a');
  Buffer copied = expected, threaded = expected;
  ForElements(loops, bytes, [&](int64_t from, int64_t to) {
    std::memcpy(expected.begin() + kGuard + to, source.begin() + from, static_cast<size_t>(bytes));
  });
  const StridedCopy copy(loops, bytes);
  copy.Run(source.begin(), copied.begin() + kGuard);
  ASSERT_TRUE(copied == expected) << copy.Describe();
  const tbb::global_control maybe_more_than_cores(tbb::global_control::max_allowed_parallelism, 3);
  ThreadTeam team(3, nullptr, 0);
  copy.Run(source.begin(), threaded.begin() + kGuard, team, nullptr);
  ASSERT_TRUE(threaded == expected) << copy.Describe();
}

// Every instruction set of this machine, and every size of an element.
class StridedCopyTest : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {
 protected:
  static int64_t bytes() { return std::get<1>(GetParam()); }

  const testing::TargetScope target_{std::get<0>(GetParam())};
};

// Loops with `extents`, laid out in a random order on either side, with gaps now and then.
std::vector<CopyLoop> RandomLoops(const std::vector<int64_t>& extents, std::mt19937& random) {
  std::vector<CopyLoop> loops;
  for (const int64_t extent : extents) loops.push_back({extent, 0, 0});
  const bool has_gaps = random() % 2 == 0;
  for (int64_t CopyLoop::*stride : {&CopyLoop::source, &CopyLoop::target}) {
    std::vector<size_t> order(loops.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t next = 1;
    for (const size_t i : order) {
      loops[i].*stride = next;
      next *= loops[i].extent + (has_gaps && random() % 6 == 0 ? 1 : 0);
    }
  }
  return loops;
}

// Extents of at most `most_modes` modes whose product is at most `largest`.
std::vector<int64_t> RandomExtents(size_t most_modes, int64_t largest, std::mt19937& random) {
  constexpr int64_t kExtents[] = {1, 2, 2, 2, 3, 4, 5, 8, 17};
  std::vector<int64_t> extents;
  for (int64_t size = 1; extents.size() < most_modes;) {
    const int64_t extent = kExtents[random() % std::size(kExtents)];
    if (size * extent > largest) break;
    size *= extent;
    extents.push_back(extent);
  }
  return extents;
}

TEST_P(StridedCopyTest, RandomPermutations) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto extents = RandomExtents(1 + random() % 24, 1 << (random() % 14), random);
    Check(RandomLoops(extents, random), bytes(), round % 3 == 0 ? 4 : 0);
  }
}

TEST_P(StridedCopyTest, BinaryLoops) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    Check(RandomLoops(std::vector<int64_t>(4 + random() % 10, 2), random), bytes());
  }
}

// Large enough to go past the caches and to be shared by threads.
TEST_P(StridedCopyTest, LargePermutations) {
  std::mt19937 random(4);
  const int64_t elements = (16 << 20) / bytes();
  for (int round = 0; round < 2; ++round) {
    Check(RandomLoops(RandomExtents(24, elements, random), random), bytes(), round % 2 * 4);
  }
  const auto modes = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(elements)));
  for (int round = 0; round < 2; ++round) {
    Check(RandomLoops(std::vector<int64_t>(modes, 2), random), bytes());
  }
}

// Modes that leave no line of the target whole for a vector, so that blocks go through a buffer.
TEST_P(StridedCopyTest, LargePermutationsOfOddModes) {
  std::mt19937 random(8);
  const int64_t elements = (9 << 20) / bytes();
  for (const int64_t extent : {3, 10}) {
    std::vector<int64_t> extents;
    for (int64_t size = 1; size < elements; size *= extent) extents.push_back(extent);
    auto loops = RandomLoops(extents, random);
    Check(loops, bytes(), extent % 2 * 4);
    // Short runs, which are on either side innermost.
    for (CopyLoop& loop : loops) loop = {loop.extent, 5 * loop.source, 5 * loop.target};
    loops.back().extent = 1;
    loops.push_back({5, 1, 1});
    Check(loops, bytes());
  }
}

TEST_P(StridedCopyTest, EveryPairOfShortSides) {
  for (int64_t rows = 1; rows <= 20; ++rows) {
    for (int64_t columns = 1; columns <= 20; ++columns) {
      Check({{rows, columns, 1}, {columns, 1, rows}}, bytes());
    }
  }
}

TEST_P(StridedCopyTest, EveryShortRun) {
  for (int64_t run = 1; run <= 100; ++run) {
    Check({{5, 2 * run, run}, {run, 1, 1}}, bytes());
    Check({{3, run, 3 * run}, {2, 3 * run, run}, {run, 1, 1}}, bytes());
  }
}

TEST_P(StridedCopyTest, LongLoopsAreCut) {
  Check({{2500, 1, 37}, {37, 2500, 1}}, bytes());       // transpose, long source side
  Check({{37, 1, 2500}, {2500, 37, 1}}, bytes());       // transpose, long target side
  Check({{1500, 1, 1301}, {1301, 1500, 1}}, bytes());   // both, and a long side that is prime
  Check({{200003, 1, 1}}, bytes());                     // one run
  Check({{1500001, 1, 1}}, bytes(), 4);                 // one past the caches, out of line
  Check({{3, 100003, 70000}, {70000, 1, 1}}, bytes());  // runs with gaps
  Check({{5003, 3, 2}}, bytes());                       // nothing contiguous
  Check({{3, 1, 4006}, {2003, 6, 1}, {2, 3, 2003}}, bytes());
}

TEST_P(StridedCopyTest, SourcesRepeatAndOverlap) {
  Check({}, bytes());
  Check({{1, 5, 7}}, bytes());
  Check({{40, 0, 1}}, bytes());                // one element everywhere
  Check({{40, 0, 8}, {8, 1, 1}}, bytes());     // one run everywhere
  Check({{16, 0, 16}, {16, 17, 1}}, bytes());  // a diagonal, repeated
  Check({{33, 1, 40}, {40, 1, 1}}, bytes());   // windows
  Check({{16, 1, 16}, {16, 1, 1}, {4, 0, 256}}, bytes());
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    auto loops = RandomLoops(RandomExtents(10, 4096, random), random);
    for (CopyLoop& loop : loops) {
      if (random() % 3 == 0) loop.source = static_cast<int64_t>(random() % 9);
    }
    Check(loops, bytes());
  }
}

TEST_P(StridedCopyTest, CancelledCopiesStop) {
  const std::vector<CopyLoop> loops = {{256, 256, 1}, {256, 1, 256}};
  const std::vector<char> source(65536 * bytes(), '\1');
  std::vector<char> target(source.size(), '\0');
  ThreadTeam team(1, nullptr, 0);
  const int32_t cancel = 1;
  StridedCopy(loops, bytes()).Run(source.data(), target.data(), team, &cancel);
  EXPECT_EQ(std::count(target.begin(), target.end(), '\1'), 0);
}

template <typename T>
void CheckAdd(const std::vector<CopyLoop>& loops, int32_t dtype, std::mt19937& random) {
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<T> source(Span(loops, &CopyLoop::source)), target(Span(loops, &CopyLoop::target));
  for (std::vector<T>* numbers : {&source, &target}) {
    for (T& x : *numbers) x = static_cast<T>(number(random));
  }
  std::vector<T> expected = target;
  ForElements(loops, 1, [&](int64_t from, int64_t to) { expected[to] += source[from]; });
  const StridedCopy copy(loops, sizeof(T));
  copy.Add(source.data(), target.data(), dtype);
  ASSERT_EQ(std::memcmp(target.data(), expected.data(), target.size() * sizeof(T)), 0)
      << copy.Describe();
}

TEST_P(StridedCopyTest, AddsToTheTarget) {
  std::mt19937 random(6);
  for (int round = 0; round < 150; ++round) {
    const auto loops = RandomLoops(RandomExtents(12, 1 << (random() % 13), random), random);
    if (bytes() == 4) CheckAdd<float>(loops, TENON_DTYPE_FLOAT32, random);
    if (bytes() == 8) CheckAdd<double>(loops, TENON_DTYPE_FLOAT64, random);
    if (bytes() == 8) CheckAdd<std::complex<float>>(loops, TENON_DTYPE_COMPLEX64, random);
    if (bytes() == 16) CheckAdd<std::complex<double>>(loops, TENON_DTYPE_COMPLEX128, random);
  }
  const auto large = RandomLoops({10, 10, 10, 10, 10, 11}, random);
  if (bytes() == 8) CheckAdd<double>(large, TENON_DTYPE_FLOAT64, random);
  if (bytes() == 16) CheckAdd<std::complex<double>>(large, TENON_DTYPE_COMPLEX128, random);
}

TEST(StridedCopyFormTest, FormsAreWhatTheLayoutAllows) {
  EXPECT_EQ(StridedCopy({{8, 1, 100}, {100, 8, 1}}, 8).Describe(), "tiles of 8 bytes");
  EXPECT_EQ(StridedCopy({{8, 64, 100}, {50, 1, 1}}, 8).Describe(), "runs of 400 bytes");
  // Pairs of float32 move as one unit.
  EXPECT_EQ(StridedCopy({{2, 1, 1}, {9, 2, 32}, {16, 18, 2}}, 4).Describe(), "tiles of 8 bytes");
  EXPECT_EQ(StridedCopy({{100, 3, 1}}, 4).Describe(), "units of 4 bytes");
  // Lines of a large target that no vector fills as it is.
  const CopyLoop first = {1000, 1, 1100}, second = {1100, 1000, 1};
  EXPECT_EQ(StridedCopy({first, second}, 8).Describe(), "staged runs of 4400 bytes");
  // Modes that are low in both layouts.
  EXPECT_EQ(StridedCopy({{2, 1, 2}, {2, 2, 1}, {64, 4, 4}}, 8).Describe(), "tiles of 8 bytes");
}

INSTANTIATE_TEST_SUITE_P(Targets, StridedCopyTest,
                         ::testing::Combine(::testing::ValuesIn(testing::MachineTargets()),
                                            ::testing::Values(4, 8, 16)));

}  // namespace
}  // namespace tenon::cpu
