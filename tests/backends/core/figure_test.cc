#include "backends/core/figure.h"

#include <gtest/gtest.h>

#include <limits>

namespace tenon {
namespace {

TEST(FigureTest, WholeNumbersHaveAllTheirDigits) {
  EXPECT_EQ(FigureText(0), "0");
  EXPECT_EQ(FigureText(159032320), "159032320");
  EXPECT_EQ(FigureText(0x1p53 - 1), "9007199254740991");
  EXPECT_EQ(FigureText(0x1p60), "1.15292e+18");
  EXPECT_EQ(FigureText(2.5), "2.5");
  EXPECT_EQ(FigureText(std::numeric_limits<double>::infinity()), "inf");
}

TEST(FigureTest, PlannedBytesThatAreNotCountedAreABound) {
  EXPECT_EQ(PlannedBytesText(312), "312 bytes");
  EXPECT_EQ(PlannedBytesText(kMostPlannedBytes - 1), "1125899906842623 bytes");
  EXPECT_EQ(PlannedBytesText(kMostPlannedBytes), "at least 1 PiB");
  EXPECT_EQ(PlannedBytesText(INT64_MAX), "at least 1 PiB");
}

}  // namespace
}  // namespace tenon
