#include "backends/planner/plan_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <thread>
#include <vector>

namespace tenon {
namespace {

using planner::FoundPlan;
using planner::PlanCache;
using planner::PlanKey;

PlanKey Key(int n) { return {std::string(8, static_cast<char>(n)), {static_cast<uint64_t>(n), 0}}; }

FoundPlan Plan(double score, int pairs = 10) {
  FoundPlan plan;
  plan.plan.path.pairs.assign(pairs, {0, 1});
  plan.score = score;
  return plan;
}

int64_t BytesOfOne() {
  PlanCache cache(1 << 20);
  cache.Put(Key(0), Plan(1));
  return cache.counters().bytes;
}

TEST(PlanCacheTest, KeepsTheBetterPlan) {
  PlanCache cache(1 << 20);
  EXPECT_EQ(cache.Find(Key(1)), nullptr);
  const auto first = cache.Put(Key(1), Plan(5));
  EXPECT_EQ(cache.Put(Key(1), Plan(5)), first);
  EXPECT_EQ(cache.Put(Key(1), Plan(6)), first);
  EXPECT_EQ(cache.Put(Key(1), Plan(std::nan(""))), first);
  EXPECT_EQ(cache.Find(Key(1)), first);
  const auto better = cache.Put(Key(1), Plan(4, 1000));
  EXPECT_EQ(cache.Find(Key(1)), better);
  EXPECT_EQ(first->score, 5);  // alive with its holder
  const auto counters = cache.counters();
  EXPECT_EQ(counters.hits, 2);
  EXPECT_EQ(counters.misses, 1);
  EXPECT_EQ(counters.insertions, 1);
  EXPECT_EQ(counters.improvements, 1);
  EXPECT_EQ(counters.rejected, 3);
  EXPECT_EQ(counters.evictions, 0);
  EXPECT_EQ(counters.entries, 1);
  EXPECT_GT(counters.bytes, 8000);
  cache.Put(Key(2), Plan(std::nan("")));
  EXPECT_EQ(cache.Put(Key(2), Plan(1e300))->score, 1e300);
  cache.Clear();
  EXPECT_EQ(cache.Find(Key(1)), nullptr);
  EXPECT_EQ(cache.counters().bytes, 0);
  EXPECT_EQ(cache.counters().entries, 0);
}

TEST(PlanCacheTest, EqualHashesAreToldApart) {
  PlanCache cache(1 << 20);
  const PlanKey a = {"a", {7, 7}}, b = {"b", {7, 7}};
  const auto plan = cache.Put(a, Plan(1));
  EXPECT_EQ(cache.Find(b), nullptr);
  const auto other = cache.Put(b, Plan(2));
  EXPECT_EQ(cache.Find(a), plan);
  EXPECT_EQ(cache.Find(b), other);
}

TEST(PlanCacheTest, WhatIsTooLargeIsNotKept) {
  PlanCache none(0);
  EXPECT_EQ(none.Put(Key(1), Plan(3))->score, 3);
  EXPECT_EQ(none.Find(Key(1)), nullptr);
  PlanCache one(BytesOfOne());
  one.Put(Key(1), Plan(3));
  EXPECT_EQ(one.Put(Key(2), Plan(3, 11))->score, 3);
  EXPECT_NE(one.Find(Key(1)), nullptr);
  EXPECT_EQ(one.counters().evictions, 0);
}

// Against a list that is searched from its front.
TEST(PlanCacheTest, LeastRecentlyUsedGoesFirst) {
  constexpr int kFit = 5;
  PlanCache cache(kFit * BytesOfOne() + 1);
  std::list<int> model;
  std::mt19937 random(1);
  int64_t evictions = 0;
  for (int round = 0; round < 5000; ++round) {
    const int n = static_cast<int>(random() % 9);
    const auto place = std::find(model.begin(), model.end(), n);
    const bool held = place != model.end();
    if (held) model.erase(place);
    if (random() % 2 == 0) {
      EXPECT_EQ(cache.Find(Key(n)) != nullptr, held);
      if (held) model.push_front(n);
    } else {
      cache.Put(Key(n), Plan(1));
      model.push_front(n);
      if (model.size() > kFit) {
        model.pop_back();
        ++evictions;
      }
    }
    ASSERT_EQ(cache.counters().entries, static_cast<int64_t>(model.size()));
    ASSERT_EQ(cache.counters().bytes, static_cast<int64_t>(model.size()) * BytesOfOne());
  }
  EXPECT_EQ(cache.counters().evictions, evictions);
  EXPECT_GT(evictions, 100);
}

TEST(PlanCacheTest, ManyThreads) {
  PlanCache cache(20 * BytesOfOne());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 5000; ++round) {
        const int n = static_cast<int>(random() % 40);
        const auto plan = cache.Find(Key(n));
        if (plan == nullptr || random() % 4 == 0) cache.Put(Key(n), Plan(random() % 100 + 1.0));
        if (plan != nullptr) {
          EXPECT_GT(plan->score, 0);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto counters = cache.counters();
  EXPECT_EQ(counters.hits + counters.misses, 20000);
  EXPECT_EQ(counters.insertions - counters.evictions, counters.entries);
  EXPECT_LE(counters.bytes, 20 * BytesOfOne());
}

}  // namespace
}  // namespace tenon
