#include "backends/planner/plan_key.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "backends/planner/time_model.h"
#include "tests/backends/contraction/test_networks.h"

namespace tenon {
namespace {

using planner::MakePlanKey;
using planner::Method;
using planner::Objective;
using planner::PlanKey;
using planner::SearchOptions;
using planner::SlicingMode;
using testing::ExpressionOf;
using testing::NetworkOf;

std::string BytesOf(const std::vector<std::string>& inputs, const std::string& output,
                    const std::map<std::string, int64_t>& sizes) {
  return MakePlanKey(ExpressionOf(NetworkOf(inputs, output, sizes)), {}, "").bytes;
}

TEST(PlanKeyTest, NamesDontMatterButSizesAndOrderDo) {
  const std::string key = BytesOf({"ab", "bc"}, "ac", {{"a", 2}, {"b", 300}, {"c", 2}});
  EXPECT_EQ(key, BytesOf({"zx", "xq"}, "zq", {{"z", 2}, {"x", 300}, {"q", 2}}));
  EXPECT_NE(key, BytesOf({"ab", "bc"}, "ca", {{"a", 2}, {"b", 300}, {"c", 2}}));
  EXPECT_NE(key, BytesOf({"ab", "bc"}, "a", {{"a", 2}, {"b", 300}, {"c", 2}}));
  EXPECT_NE(key, BytesOf({"ab", "cb"}, "ac", {{"a", 2}, {"b", 300}, {"c", 2}}));
  EXPECT_NE(key, BytesOf({"ab", "bc"}, "ac", {{"a", 2}, {"b", 301}, {"c", 2}}));
  EXPECT_NE(key, BytesOf({"ab", "bc", ""}, "ac", {{"a", 2}, {"b", 300}, {"c", 2}}));
  EXPECT_NE(BytesOf({"ab", ""}, "ab", {{"a", 2}, {"b", 2}}),
            BytesOf({"a", "b"}, "ab", {{"a", 2}, {"b", 2}}));
}

TEST(PlanKeyTest, EveryOptionThatCanChangeAPlanCounts) {
  const auto expression =
      ExpressionOf(NetworkOf({"ab", "bc"}, "ac", {{"a", 2}, {"b", 3}, {"c", 2}}));
  const planner::StepTimes times{1, 2, 3}, others{1, 2, 3, 4};
  const std::vector<std::function<void(SearchOptions&)>> changes = {
      [](SearchOptions&) {},
      [](SearchOptions& o) { o.objective.flops_weight = 2; },
      [](SearchOptions& o) { o.objective.read_write_weight = 0; },
      [](SearchOptions& o) { o.objective.kind = Objective::Kind::kLargest; },
      [&](SearchOptions& o) {
        o.objective = {Objective::Kind::kSeconds, 1, 64, &times};
      },
      [&](SearchOptions& o) {
        o.objective = {Objective::Kind::kSeconds, 1, 64, &others};
      },
      [](SearchOptions& o) { o.target_elements = 1; },
      [](SearchOptions& o) { o.target_elements = INT64_MAX; },
      [](SearchOptions& o) { o.memory_bytes = 1; },
      [](SearchOptions& o) {
        o.target_elements = 1;
        o.allow_output_slicing = true;
      },
      [](SearchOptions& o) {
        o.target_elements = 1;
        o.slicing_mode = SlicingMode::kDynamic;
      },
      [](SearchOptions& o) { o.deterministic = true; },
      [](SearchOptions& o) { o.worthwhile = 0.25; },
      [](SearchOptions& o) { o.methods = {Method::kGreedy}; },
      [](SearchOptions& o) {
        o.methods = {Method::kGreedy, Method::kAnnealing};
      },
      [](SearchOptions& o) { o.seed = 1; },
      [](SearchOptions& o) { o.max_trials = 1; },
      [](SearchOptions& o) { o.max_seconds = 1; },
      [](SearchOptions& o) { o.simplify = false; },
      [](SearchOptions& o) {
        o.initial = planner::Plan{{{{0, 1}}}, {}};
      },
      [](SearchOptions& o) {
        o.initial = planner::Plan{{{{1, 0}}}, {}};
      },
      [](SearchOptions& o) {
        o.initial = planner::Plan{{{{0, 1}}}, {1}};
      },
  };
  std::set<std::string> keys;
  std::set<std::array<uint64_t, 2>> hashes;
  for (const auto& change : changes) {
    SearchOptions options;
    change(options);
    const PlanKey key = MakePlanKey(expression, options, "cpu");
    EXPECT_TRUE(keys.insert(key.bytes).second) << keys.size();
    EXPECT_TRUE(hashes.insert(key.hash).second);
    options.threads = 7;
    EXPECT_EQ(MakePlanKey(expression, options, "cpu").bytes, key.bytes);
    EXPECT_NE(MakePlanKey(expression, options, "cpu", "alice").bytes, key.bytes);
    EXPECT_NE(MakePlanKey(expression, options, "cpu", "alice").bytes,
              MakePlanKey(expression, options, "cpu", "bob").bytes);
    const bool has_memory = options.memory_bytes.has_value();
    const bool by_seconds = options.objective.kind == Objective::Kind::kSeconds;
    EXPECT_EQ(MakePlanKey(expression, options, "gpu").bytes != key.bytes, has_memory || by_seconds);
  }
  SearchOptions unlimited;
  unlimited.allow_output_slicing = true;
  unlimited.slicing_mode = SlicingMode::kDynamic;
  unlimited.objective.kind = Objective::Kind::kLargest;
  unlimited.objective.flops_weight = 7;
  EXPECT_FALSE(keys.insert(MakePlanKey(expression, unlimited, "").bytes).second);
}

TEST(PlanKeyTest, HashesOfManyNetworksDiffer) {
  std::mt19937_64 random(4);
  std::map<std::array<uint64_t, 2>, std::string> by_hash;
  std::set<uint64_t> first, second;
  for (int round = 0; round < 20000; ++round) {
    const PlanKey key = MakePlanKey(ExpressionOf(testing::RandomNetwork(random)), {}, "");
    const auto [place, is_new] = by_hash.emplace(key.hash, key.bytes);
    ASSERT_EQ(place->second, key.bytes);
    first.insert(key.hash[0]);
    second.insert(key.hash[1]);
  }
  EXPECT_GT(by_hash.size(), 10000u);
  EXPECT_EQ(first.size(), by_hash.size());
  EXPECT_EQ(second.size(), by_hash.size());
}

}  // namespace
}  // namespace tenon
