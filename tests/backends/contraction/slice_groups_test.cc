#include "backends/contraction/slice_groups.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tenon::contraction {
namespace {

void ExpectGroups(int64_t slices, int64_t elements, std::vector<int64_t> extents, int64_t groups,
                  int64_t group_slices) {
  const SliceGroups result = DivideSlices(slices, elements, extents);
  EXPECT_EQ(result.groups, groups);
  EXPECT_EQ(result.group_slices, group_slices);
}

TEST(DivideSlices, OneLoopIsDividedEvenly) {
  ExpectGroups(1, 1, {}, 1, 1);
  ExpectGroups(257, 1, {257}, 129, 2);
  ExpectGroups(1000, 1, {1000}, 250, 4);
  ExpectGroups(65536, 1, {65536}, 256, 256);
  ExpectGroups(3, int64_t{1} << 21, {3}, 2, 2);
  ExpectGroups(1000, int64_t{1} << 20, {1000}, 4, 250);
  ExpectGroups(1000, (int64_t{1} << 21) + 1, {1000}, 1, 1000);
}

TEST(DivideSlices, EmptyBlocksCountAsOneElement) { ExpectGroups(16, 0, {16}, 16, 1); }

TEST(DivideSlices, GroupsAreWholeTurnsOfInnerLoops) {
  ExpectGroups(1000, 1, {10, 10, 10}, 100, 10);
  ExpectGroups(3000, 1, {100, 6, 5}, 200, 15);
  ExpectGroups(65536, 1, std::vector<int64_t>(16, 2), 256, 256);
  ExpectGroups(100000, 1, {10, 10, 10, 10, 10}, 250, 400);
}

TEST(DivideSlices, ParallelismComesBeforeWholeTurns) {
  ExpectGroups(64, 1, {8, 8}, 64, 1);       // turns of 8 would leave 8 groups
  ExpectGroups(1000, 1, {2, 500}, 250, 4);  // turns of 500 would leave 2
  ExpectGroups(27, int64_t{1} << 20, {3, 9}, 4, 7);
}

TEST(DivideSlices, PartitionsExactly) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::vector<int64_t> extents(random() % 6);
    int64_t slices = 1;
    for (int64_t& extent : extents) slices *= extent = random() % 9 + 1;
    const int64_t elements = int64_t{1} << random() % 24;
    const SliceGroups result = DivideSlices(slices, elements, extents);
    ASSERT_GE(result.group_slices, 1);
    ASSERT_LE(result.groups, 256);
    ASSERT_LT((result.groups - 1) * result.group_slices, slices);
    ASSERT_GE(result.groups * result.group_slices, slices);
  }
  const SliceGroups largest = DivideSlices(int64_t{1} << 62, 1, std::vector<int64_t>(62, 2));
  EXPECT_EQ(largest.groups, 256);
  EXPECT_EQ(largest.group_slices, int64_t{1} << 54);
}

TEST(ExecutionsPerBlock, CountsRunsPerGroup) {
  std::mt19937_64 random(2);
  for (int repeat = 0; repeat < 500; ++repeat) {
    const int64_t slices = random() % 200 + 1;
    SliceGroups groups;
    groups.group_slices = random() % slices + 1;
    groups.groups = (slices + groups.group_slices - 1) / groups.group_slices;
    const int64_t run_slices = random() % slices + 1;
    std::set<std::pair<int64_t, int64_t>> runs;  // group, run
    for (int64_t s = 0; s < slices; ++s) runs.emplace(s / groups.group_slices, s / run_slices);
    ASSERT_EQ(ExecutionsPerBlock(groups, slices, run_slices), static_cast<double>(runs.size()));
  }
}

}  // namespace
}  // namespace tenon::contraction
