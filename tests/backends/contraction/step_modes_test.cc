#include "backends/contraction/step_modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::contraction {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MATCHER_P4(Mode, extent, a, b, c, "") {
  return arg.extent == extent && arg.stride_a == a && arg.stride_b == b && arg.stride_c == c;
}

const std::vector<int64_t> kSizes = {2, 3, 5, 7, 0};

TEST(MakeModes, ClassesIndicesByTheirTensors) {
  // A[0,1,3] B[0,3,2] -> C[0,1,2]
  const StridedAxes a{{0, 1, 3}, {21, 7, 1}};
  const StridedAxes b{{0, 3, 2}, {35, 5, 1}};
  const StridedAxes c{{0, 1, 2}, {15, 5, 1}};
  const ModeGroups groups = MakeModes(a, &b, c, kSizes);
  EXPECT_THAT(groups[kBatch], ElementsAre(Mode(2, 21, 35, 15)));
  EXPECT_THAT(groups[kM], ElementsAre(Mode(3, 7, 0, 5)));
  EXPECT_THAT(groups[kN], ElementsAre(Mode(5, 0, 1, 1)));
  EXPECT_THAT(groups[kK], ElementsAre(Mode(7, 1, 5, 0)));
  EXPECT_EQ(Iterations(groups), 2 * 3 * 5 * 7);
}

TEST(MakeModes, FusesNeighboursThatAreOneLoopEverywhere) {
  // All of A is contracted with a B in the same order: one mode of 30.
  const StridedAxes a{{0, 1, 2}, {15, 5, 1}};
  const ModeGroups dot = MakeModes(a, &a, StridedAxes{}, kSizes);
  EXPECT_THAT(dot[kK], ElementsAre(Mode(30, 1, 1, 0)));
  // B in another order breaks the run between 0 and 1 only.
  const StridedAxes b{{1, 2, 0}, {10, 2, 1}};
  EXPECT_THAT(MakeModes(a, &b, StridedAxes{}, kSizes)[kK],
              ElementsAre(Mode(2, 15, 1, 0), Mode(15, 1, 2, 0)));
}

TEST(MakeModes, OrdersGroupsByTheStrideOfC) {
  const StridedAxes a{{0, 1, 2}, {15, 5, 1}};
  const StridedAxes c{{2, 0, 1}, {6, 3, 1}};
  const ModeGroups groups = MakeModes(a, nullptr, c, kSizes);
  EXPECT_THAT(groups[kM], ElementsAre(Mode(5, 1, 0, 6), Mode(6, 5, 0, 1)));
  EXPECT_THAT(groups[kBatch], IsEmpty());
}

TEST(MakeModes, EmptyExtentsStandAlone) {
  const StridedAxes a{{0, 4}, {0, 0}};
  const ModeGroups groups = MakeModes(a, nullptr, StridedAxes{}, kSizes);
  EXPECT_THAT(groups[kK], ElementsAre(Mode(0, 0, 0, 0)));
  EXPECT_EQ(Iterations(groups), 0);
}

}  // namespace
}  // namespace tenon::contraction
