// Which cache lines tiles of a product share, and what their order moves.

#include "backends/cpu/gett_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace tenon::cpu {
namespace {

constexpr tenon_mode M(int64_t extent, int64_t s, int64_t v, int64_t c) {
  return {extent, s, v, c};
}

TEST(LinesOfBox, CountsThem) {
  const std::vector<std::vector<tenon_mode>> boxes = {
      {},
      {M(8, 0, 0, 1)},
      {M(7, 0, 0, 8)},
      {M(16, 0, 0, 2)},
      {M(4, 0, 0, 1), M(3, 0, 0, 16)},
      {M(3, 0, 0, 16), M(4, 0, 0, 4), M(4, 0, 0, 1)},
      {M(2, 0, 0, 1000), M(8, 0, 0, 8), M(2, 0, 0, 4)},
  };
  for (const auto& box : boxes) {
    std::set<int64_t> lines;
    for (const int64_t element : Positions(box, kC)) lines.insert(element * 8 / 64);
    EXPECT_NEAR(LinesOfBox(box, kC, 8), static_cast<double>(lines.size()),
                0.2 * static_cast<double>(lines.size()));
  }
}

// Four batch items that lie side by side in C, whose columns are cut: each line of C is written by
// four tiles, one of each item.
class SharedLines : public ::testing::Test {
 protected:
  static constexpr int64_t kColumns = 1 << 16, kTile = 1 << 10;
  SharedLines() {
    roles_.items = 4;
    roles_.n_columns = kColumns;
    roles_.element_bytes = 8;
    roles_.vector = 8;
    roles_.batch = {M(4, 1, kColumns, 1)};
    roles_.columns = {M(kColumns, 0, 1, 4)};
    plan_.batch = CutAxis(roles_.batch, {NestBy::kC, NestBy::kB, false, 8}, 1);
    plan_.columns = CutAxis(roles_.columns, {NestBy::kC, NestBy::kB, false, 8}, kTile);
  }
  GettRoles roles_;
  GettPlan plan_;
};

TEST_F(SharedLines, TilesOfOneLineFollowEachOther) {
  ASSERT_TRUE(OrderTiles(roles_, false, plan_));
  ASSERT_EQ(plan_.order.size(), 2u);
  EXPECT_EQ(plan_.order.front().role, TileLoop::kBatch);
  EXPECT_EQ(Repeats(plan_, kS), 1);
  const double far = WastedTraffic(roles_, plan_);
  ASSERT_TRUE(OrderTiles(roles_, true, plan_));
  EXPECT_EQ(plan_.order.back().role, TileLoop::kBatch);
  EXPECT_EQ(Repeats(plan_, kS), 64) << "S is another one for every tile";
  EXPECT_EQ(WastedTraffic(roles_, plan_), 0);
  // Three of four times 2 MB, in nanoseconds at 1 to 100 bytes each.
  EXPECT_GT(far, 3 * (2 << 20) / 100.0);
  EXPECT_LT(far, 3 * (2 << 20) / 1.0);
}

TEST_F(SharedLines, RowsStayInnermost) {
  roles_.rows = {M(100, 1, 0, 4 * kColumns)};
  roles_.n_rows = 100;
  plan_.rows = CutAxis(roles_.rows, {NestBy::kC, NestBy::kA, false, 8}, 10);
  ASSERT_TRUE(OrderTiles(roles_, true, plan_));
  EXPECT_EQ(plan_.order.back().role, TileLoop::kRows);
  EXPECT_EQ(plan_.order[1].role, TileLoop::kBatch);
  EXPECT_EQ(Repeats(plan_, kV), 1) << "a packed tile of V serves all rows";
}

TEST_F(SharedLines, NothingIsWastedInCaches) {
  roles_.n_columns = 1 << 10;
  roles_.columns = {M(1 << 10, 0, 1, 4)};
  plan_.columns = CutAxis(roles_.columns, {NestBy::kC, NestBy::kB, false, 8}, 1 << 7);
  ASSERT_TRUE(OrderTiles(roles_, false, plan_));
  EXPECT_FALSE(IsFar(roles_));
  EXPECT_EQ(WastedTraffic(roles_, plan_), 0);
}

// A tile whose lines are large powers of two apart: all of them fall into one set of the cache, and
// none is still there for the next item.
TEST_F(SharedLines, FarPowersOfTwoAreNotKept) {
  const auto wasted = [&](int64_t row, int64_t column) {
    roles_.element_bytes = 16;
    roles_.items = 16, roles_.n_rows = 128, roles_.n_columns = 64;
    roles_.batch = {M(16, 0, 64, 1)};
    roles_.rows = {M(128, 1, 0, row)};
    roles_.columns = {M(64, 0, 1, column)};
    plan_.batch = CutAxis(roles_.batch, {NestBy::kC, NestBy::kB, false, 8}, 1);
    plan_.rows = CutAxis(roles_.rows, {NestBy::kC, NestBy::kA, false, 8}, 128);
    plan_.columns = CutAxis(roles_.columns, {NestBy::kC, NestBy::kB, false, 8}, 64);
    OrderTiles(roles_, true, plan_);
    return WastedTraffic(roles_, plan_);
  };
  EXPECT_GT(wasted(1 << 14, 1 << 20), 0);
  EXPECT_EQ(wasted((1 << 14) + 4, (1 << 20) + 512), 0);
}

TEST_F(SharedLines, NoOtherOrderWhereNoLinesAreShared) {
  roles_.batch = {M(4, 1, kColumns, 4 * kColumns)};
  roles_.columns = {M(kColumns, 0, 8, 8)};
  plan_.batch = CutAxis(roles_.batch, {NestBy::kC, NestBy::kB, false, 8}, 1);
  plan_.columns = CutAxis(roles_.columns, {NestBy::kC, NestBy::kB, false, 8}, kTile);
  EXPECT_FALSE(OrderTiles(roles_, true, plan_));
}

}  // namespace
}  // namespace tenon::cpu
