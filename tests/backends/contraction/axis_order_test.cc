#include "backends/contraction/axis_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::contraction {
namespace {

using ::testing::ElementsAre;

using Lists = std::vector<std::vector<int>>;

const std::vector<int64_t> kSizes(8, 2);

// Batch 0; A[0,1,2] and B[0,2,3] are results, each of two operands.
TEST(ChooseAxisOrders, OperandsOfAPairAreBatchedAndMatched) {
  const Path path{{{0, 1}, {2, 3}, {4, 5}}};
  const Lists indices = {{0, 1, 4},    {2, 4, 6},    {2, 5, 6}, {0, 3, 5},
                         {0, 1, 2, 6}, {0, 2, 3, 6}, {0, 1, 3}};
  const Lists natural(indices.begin(), indices.begin() + 4);
  const std::vector<int> output = {3, 0, 1};
  const Lists orders =
      ChooseAxisOrders({path, kSizes, indices, natural, {false, false, false, false}, output});
  EXPECT_THAT(orders[6], ElementsAre(3, 0, 1));
  EXPECT_THAT(orders[4], ElementsAre(0, 1, 2, 6));
  EXPECT_THAT(orders[5], ElementsAre(0, 3, 2, 6));
  EXPECT_THAT(orders[1], ElementsAre(2, 4, 6));
}

// The contracted indices of an intermediate follow the operand, which can't change.
TEST(ChooseAxisOrders, ContractedIndicesFollowTheFixedOperand) {
  const Path path{{{0, 1}, {3, 2}}};
  const Lists indices = {{0, 1, 3}, {2, 3}, {0, 1, 2}, {0, 1, 2}, {}};
  const Lists natural = {{0, 1, 3}, {3, 2}, {2, 0, 1}};
  const Lists orders =
      ChooseAxisOrders({path, kSizes, indices, natural, {false, false, false}, {}});
  EXPECT_THAT(orders[3], ElementsAre(2, 0, 1));
}

// What one tensor brings into the larger operand stands together.
TEST(ChooseAxisOrders, ContractedIndicesAreGroupedByOrigin) {
  const Path path{{{0, 1}, {2, 3}, {4, 5}}};
  const Lists indices = {{1, 3, 4},    {0, 2, 4},    {0, 1, 5}, {2, 3, 5},
                         {0, 1, 2, 3}, {0, 1, 2, 3}, {}};
  const Lists natural(indices.begin(), indices.begin() + 4);
  const Lists orders =
      ChooseAxisOrders({path, kSizes, indices, natural, {false, false, false, false}, {}});
  EXPECT_THAT(orders[4], ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(orders[5], ElementsAre(1, 3, 0, 2));
}

// An operand that a unary step forms anew is ordered like any intermediate.
TEST(ChooseAxisOrders, FormedOperandsAreFree) {
  const Path path{{{0, 1}}};
  const Lists indices = {{0, 1}, {0, 2}, {1, 2}};
  const Lists natural = {{0, 1}, {2, 0}};
  const std::vector<int> output = {2, 1};
  const Lists orders = ChooseAxisOrders({path, kSizes, indices, natural, {true, false}, output});
  EXPECT_THAT(orders[0], ElementsAre(1, 0));
  EXPECT_THAT(orders[1], ElementsAre(2, 0));
}

// Index 0 is long and kept by the larger operand up to the result: vectors run along it everywhere.
TEST(ChooseAxisOrders, KeptIndicesOfTheLargerOperandStandLast) {
  const Path path{{{0, 1}, {3, 2}}};
  const std::vector<int64_t> sizes = {16, 4, 4, 4};
  const Lists indices = {{0, 1}, {1, 2}, {2, 3}, {0, 2}, {0, 3}};
  const Lists natural = {{0, 1}, {1, 2}, {2, 3}};
  const std::vector<int> output = {3, 0};
  const Lists orders =
      ChooseAxisOrders({path, sizes, indices, natural, {true, false, false}, output});
  EXPECT_THAT(orders[3], ElementsAre(2, 0));
  EXPECT_THAT(orders[0], ElementsAre(1, 0));
}

// Nothing but the batch is long enough for vectors.
TEST(ChooseAxisOrders, BatchStandsLastWhereProductsAreTiny) {
  const Path path{{{0, 1}, {3, 2}}};
  const std::vector<int64_t> sizes = {64, 2, 2, 2};
  const Lists indices = {{0, 1}, {0, 1, 2}, {0, 2, 3}, {0, 2}, {0, 3}};
  const Lists natural = {{0, 1}, {0, 1, 2}, {0, 2, 3}};
  const std::vector<int> output = {3, 0};
  const Lists orders =
      ChooseAxisOrders({path, sizes, indices, natural, {true, true, true}, output});
  EXPECT_THAT(orders[3], ElementsAre(2, 0));
  EXPECT_THAT(orders[2], ElementsAre(3, 2, 0));
  EXPECT_THAT(orders[1], ElementsAre(2, 1, 0));
}

// The result ends with indices of both operands, so the larger one ends with the index that comes
// from the larger operand of the step before.
TEST(ChooseAxisOrders, FreeChoicesGoToTheIndexThatLasts) {
  const Path path{{{0, 1}, {3, 2}}};
  const std::vector<int64_t> sizes = {16, 16, 4, 4, 4};
  const Lists indices = {{0, 3}, {1, 3, 4}, {2, 4}, {0, 1, 4}, {0, 1, 2}};
  Lists natural = indices;
  natural.resize(3);
  const std::vector<int> output = {1, 0, 2};
  const Lists orders =
      ChooseAxisOrders({path, sizes, indices, natural, {false, false, false}, output});
  EXPECT_THAT(orders[3], ElementsAre(0, 4, 1));
}

}  // namespace
}  // namespace tenon::contraction
