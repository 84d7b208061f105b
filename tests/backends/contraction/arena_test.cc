#include "backends/contraction/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "backends/core/error.h"

namespace tenon::contraction {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max() / 16;

TEST(LifetimesConflict, TransientTensorsConflictWhileBothLive) {
  const Lifetime first{8, 0, 2, 1, false};
  EXPECT_TRUE(
      LifetimesConflict(first, Lifetime{8, 2, 3, 1, false}));  // written while first is read
  EXPECT_FALSE(LifetimesConflict(first, Lifetime{8, 3, 4, 1, false}));
  EXPECT_FALSE(LifetimesConflict(Lifetime{8, 3, 4, 2, false}, first));
}

TEST(LifetimesConflict, KeptTensorsOutliveLaterSteps) {
  const Lifetime kept{8, 3, 5, 1, true};
  EXPECT_TRUE(LifetimesConflict(kept, Lifetime{8, 9, 10, 1, false}));
  EXPECT_TRUE(LifetimesConflict(kept, Lifetime{8, 0, 2, 2, false}));   // runs again without kept
  EXPECT_FALSE(LifetimesConflict(kept, Lifetime{8, 0, 2, 1, false}));  // then kept is remade too
  EXPECT_TRUE(LifetimesConflict(kept, Lifetime{8, 0, 2, 0, true}));
}

TEST(PlanArena, ReusesTheSmallestGapThatFits) {
  // 0: long-lived; 1 and 2 end at once; 3 fits where 2 was.
  const std::vector<Lifetime> tensors = {
      {32, 0, 9, 1, false}, {16, 1, 2, 1, false}, {8, 1, 2, 1, false}, {8, 3, 4, 1, false}};
  const auto plan = PlanArena(tensors, 8, kNoLimit);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->offsets, ElementsAre(0, 32, 48, 32));
  EXPECT_EQ(plan->elements, 56);
}

TEST(PlanArena, ChainNeedsTwoTensors) {
  std::vector<Lifetime> tensors;
  for (int i = 0; i < 50; ++i) tensors.push_back({100, i, i + 1, 1, false});
  EXPECT_EQ(PlanArena(tensors, 16, kNoLimit)->elements, 2 * 112);
}

TEST(PlanArena, EmptyTensorsNeedNothing) {
  const auto plan = PlanArena({{0, 0, 1, 1, false}, {0, 0, 1, 1, true}}, 8, kNoLimit);
  EXPECT_THAT(plan->offsets, ElementsAre(0, 0));
  EXPECT_EQ(plan->elements, 0);
  EXPECT_EQ(PlanArena({}, 8, kNoLimit)->elements, 0);
}

TEST(PlanArena, RefusesWhatDoesNotFit) {
  const int64_t half = kNoLimit / 2;
  for (const std::vector<Lifetime>& tensors :
       {std::vector<Lifetime>{{kNoLimit, 0, 1, 1, false}},
        {{half, 0, 3, 1, false}, {half, 0, 3, 1, false}, {half, 0, 3, 1, false}}}) {
    EXPECT_EQ(GetErrorDetails(PlanArena(tensors, 8, kNoLimit).status()).reason, Reason::kOverflow);
  }
}

TEST(PlanArena, ConflictingTensorsNeverOverlap) {
  std::mt19937_64 random(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<Lifetime> tensors(random() % 40 + 1);
    int64_t sum = 0;
    for (Lifetime& tensor : tensors) {
      const int first = static_cast<int>(random() % 30);
      tensor = {static_cast<int64_t>(random() % 100), first,
                first + 1 + static_cast<int>(random() % 5), static_cast<int>(random() % 3 + 1),
                random() % 4 == 0};
      sum += (tensor.elements + 7) / 8 * 8;
    }
    const auto plan = PlanArena(tensors, 8, kNoLimit);
    ASSERT_TRUE(plan.ok());
    EXPECT_LE(plan->elements, sum);
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(plan->offsets[i] % 8, 0);
      EXPECT_LE(plan->offsets[i] + tensors[i].elements, plan->elements);
      for (size_t j = 0; j < i; ++j) {
        if (!LifetimesConflict(tensors[i], tensors[j])) continue;
        EXPECT_TRUE(plan->offsets[i] + tensors[i].elements <= plan->offsets[j] ||
                    plan->offsets[j] + tensors[j].elements <= plan->offsets[i]);
      }
    }
  }
}

// More tensors than are placed by best fit: the small ones share places of their size.
TEST(PlanArena, ThousandsOfSmallTensorsShareTheirPlaces) {
  std::mt19937 random(4);
  std::vector<Lifetime> tensors;
  constexpr int kTensors = 9000;
  for (int i = 0; i < kTensors; ++i) {
    Lifetime lifetime;
    lifetime.elements = 1 + static_cast<int64_t>(random() % (i % 9 == 0 ? 1000 : 20));
    lifetime.first_step = i;
    lifetime.last_step = i + static_cast<int>(random() % (i % 50 == 0 ? 3000 : 4));
    lifetime.level = static_cast<int>(random() % 3);
    lifetime.kept = random() % 100 == 0;
    tensors.push_back(lifetime);
  }
  const auto plan = PlanArena(tensors, 8, kNoLimit);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int x = 0; x < kTensors; ++x) {
    ASSERT_EQ(plan->offsets[x] % 8, 0);
    ASSERT_LE(plan->offsets[x] + tensors[x].elements, plan->elements);
    for (int y = 0; y < x; ++y) {
      const bool apart = plan->offsets[x] + tensors[x].elements <= plan->offsets[y] ||
                         plan->offsets[y] + tensors[y].elements <= plan->offsets[x];
      ASSERT_TRUE(apart || !LifetimesConflict(tensors[x], tensors[y])) << x << " and " << y;
    }
  }
}

TEST(PlanArena, LongChainsNeedFewPlaces) {
  std::vector<Lifetime> tensors;
  for (int i = 0; i < 200000; ++i) tensors.push_back({1 + i % 8, i, i + 1, 1, false});
  EXPECT_LE(PlanArena(tensors, 8, kNoLimit)->elements, 8 * 2 * 5);
  for (Lifetime& tensor : tensors) tensor.elements = kNoLimit / 2;
  EXPECT_FALSE(PlanArena({tensors[0], tensors[0], tensors[0]}, 8, kNoLimit).ok());
}

}  // namespace
}  // namespace tenon::contraction
