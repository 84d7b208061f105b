#include "server/measurement_seconds.h"

#include <gtest/gtest.h>

#include <string>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

MeasurementSeconds::Work Work(int64_t rows, int64_t columns = 10, std::string kind = "tnc") {
  return {std::move(kind), rows, columns};
}

TEST(MeasurementSeconds, KnowsNothingAtFirst) {
  const MeasurementSeconds seconds;
  EXPECT_FALSE(seconds.UntilFirstScore(Work(100)).has_value());
  EXPECT_FALSE(seconds.UntilFirstScore(Work(0)).has_value());
}

TEST(MeasurementSeconds, AddsTheOriginalSideAndOneProjection) {
  MeasurementSeconds seconds;
  seconds.ObserveOriginal(Work(100), 2);
  EXPECT_EQ(seconds.UntilFirstScore(Work(100)), 2);
  seconds.ObserveProjection(Work(100), 0.5);
  EXPECT_EQ(seconds.UntilFirstScore(Work(100)), 2.5);
  EXPECT_FALSE(seconds.UntilFirstScore(Work(100, 10, "mrre")).has_value());
}

// A slow call may have shared the machine; but one that was fast once need not be so for ever.
TEST(MeasurementSeconds, TheFastestCounts) {
  MeasurementSeconds seconds;
  seconds.ObserveOriginal(Work(100), 3);
  seconds.ObserveOriginal(Work(100), 1);
  EXPECT_EQ(seconds.UntilFirstScore(Work(100)), 1);
  seconds.ObserveOriginal(Work(100), 3);
  EXPECT_EQ(seconds.UntilFirstScore(Work(100)), 1.25);
  for (int i = 0; i < 100; ++i) seconds.ObserveOriginal(Work(100), 3);
  EXPECT_NEAR(*seconds.UntilFirstScore(Work(100)), 3, 1e-3);
}

TEST(MeasurementSeconds, OtherSizesAreEstimatedFromTheNearestRatherTooLow) {
  MeasurementSeconds seconds;
  seconds.ObserveOriginal(Work(1000), 8);
  EXPECT_DOUBLE_EQ(*seconds.UntilFirstScore(Work(2000)), 16);       // in proportion to the rows
  EXPECT_DOUBLE_EQ(*seconds.UntilFirstScore(Work(500)), 1);         // to their cube
  EXPECT_DOUBLE_EQ(*seconds.UntilFirstScore(Work(1000, 5)), 4);     // fewer columns
  EXPECT_DOUBLE_EQ(*seconds.UntilFirstScore(Work(1000, 5000)), 8);  // more of them
  EXPECT_FALSE(seconds.UntilFirstScore(Work(4001)).has_value());
  EXPECT_FALSE(seconds.UntilFirstScore(Work(249)).has_value());
  seconds.ObserveOriginal(Work(1900), 100);
  EXPECT_DOUBLE_EQ(*seconds.UntilFirstScore(Work(3800)), 200);
}

TEST(MeasurementSeconds, AnEstimateThatRefusesLosesWeight) {
  MeasurementSeconds seconds;
  seconds.ObserveOriginal(Work(100), 8);
  seconds.ObserveProjection(Work(100), 8);
  seconds.Refused(Work(200));
  EXPECT_DOUBLE_EQ(*seconds.UntilFirstScore(Work(100)), 14);
  seconds.Refused(Work(100, 10, "unknown"));
  EXPECT_DOUBLE_EQ(*seconds.UntilFirstScore(Work(100)), 14);
}

TEST(MeasurementSeconds, HoldsSoManyKindsAndSizesOnly) {
  MeasurementSeconds seconds;
  for (int kind = 0; kind < 1000; ++kind) {
    seconds.ObserveOriginal(Work(100, 10, StrCat(kind)), 1);
    seconds.ObserveProjection(Work(100, 10, "in use"), 1);
  }
  EXPECT_FALSE(seconds.UntilFirstScore(Work(100, 10, "0")).has_value());
  EXPECT_FALSE(seconds.UntilFirstScore(Work(100, 10, "700")).has_value());
  EXPECT_TRUE(seconds.UntilFirstScore(Work(100, 10, "999")).has_value());
  EXPECT_TRUE(seconds.UntilFirstScore(Work(100, 10, "in use")).has_value());
  for (int rows = 1; rows <= 64; ++rows) seconds.ObserveOriginal(Work(1 << 12, rows), rows);
  EXPECT_EQ(seconds.UntilFirstScore(Work(1 << 12, 64)), 64);
}

}  // namespace
}  // namespace tenon::server
