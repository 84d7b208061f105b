#include "backends/schedule/program_cache.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <thread>

#include "backends/schedule/prepared_contraction.h"
#include "tests/support/fake_provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::schedule {
namespace {

using tenon::testing::Fails;

ContractionRequest Chain() {
  ContractionRequest request;
  request.network.inputs = {{"a", "b"}, {"b", "c"}, {"c", "d"}};
  request.network.output = {"a", "d"};
  request.network.sizes = {{"a", 2}, {"b", 3}, {"c", 4}, {"d", 5}};
  request.operands = {
      {DType::kFloat64, {2, 3}}, {DType::kFloat64, {3, 4}}, {DType::kFloat64, {4, 5}}};
  request.path = PathSteps{PathSteps::Format::kSsa, {{0, 1}, {3, 2}}};
  request.sliced = {"b"};
  request.threads = 2;
  return request;
}

class ProgramCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto provider = plugin::Provider::Create(fake_.api(), fake_.options());
    ASSERT_TRUE(provider.ok()) << provider.status();
    ASSERT_TRUE((*provider)->WarmUp().ok());
    provider_ = *std::move(provider);
  }

  std::unique_ptr<ContractionJob> Prepare(const ContractionRequest& request, ProgramCache* cache) {
    auto job = ContractionJob::Prepare(request, {provider_}, &cancel_, cache);
    EXPECT_TRUE(job.ok()) << job.status();
    return *std::move(job);
  }

  testing::FakeProvider fake_;
  std::shared_ptr<plugin::Provider> provider_;
  CancelToken cancel_;
  ProgramCache cache_{8, int64_t{1} << 20};
};

TEST_F(ProgramCacheTest, ARepeatedRequestIsNotCompiledAgain) {
  const auto first = Prepare(Chain(), &cache_);
  EXPECT_FALSE(first->Report().cached);
  EXPECT_GT(first->Report().compile_seconds, 0);
  const auto second = Prepare(Chain(), &cache_);
  EXPECT_TRUE(second->Report().cached);
  EXPECT_EQ(second->Report().compile_seconds, 0);
  EXPECT_EQ(&second->program(), &first->program());
  EXPECT_EQ(cache_.entries(), 1u);
  EXPECT_FALSE(Prepare(Chain(), nullptr)->Report().cached);
  EXPECT_EQ(cache_.counters().hits, 1);
  EXPECT_EQ(cache_.counters().misses, 1);
  EXPECT_EQ(cache_.counters().evictions, 0);
}

TEST_F(ProgramCacheTest, JobsOfOneProgramRunSideBySide) {
  const std::vector<double> ones(20, 1);
  const auto run = [&] {
    const auto job = Prepare(Chain(), &cache_);
    ASSERT_TRUE(job->Start({ones.data(), ones.data(), ones.data()}).ok());
    std::vector<double> result(10);
    ASSERT_TRUE(job->RunSet({}, result.data(), nullptr).ok());
    EXPECT_EQ(job->Report().slices_done, 3);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache_.entries(), 1u);
}

TEST_F(ProgramCacheTest, RefusalsAreNotKept) {
  ContractionRequest request = Chain();
  request.sliced = {"z"};
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Fails(ContractionJob::Prepare(request, {provider_}, &cancel_, &cache_),
                      Reason::kBadSlice, "sliced[0]"));
  }
  EXPECT_EQ(cache_.entries(), 0u);
}

TEST_F(ProgramCacheTest, EverythingThatDecidesTheProgramIsInTheKey) {
  const std::vector<std::function<void(ContractionRequest&)>> changes = {
      [](auto&) {},
      [](auto& r) {
        r.network.inputs[0] = {"b", "a"};
      },
      [](auto& r) {
        r.network.output = {"d", "a"};
      },
      [](auto& r) { r.network.sizes["d"] = 6; },
      [](auto& r) { r.operands[0].dtype = DType::kFloat32; },
      [](auto& r) {
        r.operands[2].shape = {4, 6};
      },
      [](auto& r) {
        r.varying = {true, false, false};
      },
      [](auto& r) {
        r.varying = {false, false, false};
      },
      [](auto& r) { r.expected_sets = 100; },
      [](auto& r) { r.max_sets_together = 8; },
      [](auto& r) { r.dtype = DType::kComplex128; },
      [](auto& r) { r.accumulate_double = true; },
      [](auto& r) { r.normalize = true; },
      [](auto& r) { r.path.reset(); },
      [](auto& r) { r.path->format = PathSteps::Format::kLinear; },
      [](auto& r) {
        r.path->steps[0] = {1, 0};
      },
      [](auto& r) { r.sliced = {}; },
      [](auto& r) {
        r.sliced = {"b", "c"};
      },
      [](auto& r) { r.allow_slicing = false; },
      [](auto& r) { r.allow_output_slicing = true; },
      [](auto& r) { r.target_elements = 100; },
      [](auto& r) { r.memory_budget_bytes = 1 << 20; },
      [](auto& r) { r.last_group = 1; },
      [](auto& r) { r.first_group = 1; },
  };
  std::set<std::string> keys;
  for (const auto& change : changes) {
    ContractionRequest request = Chain();
    change(request);
    keys.insert(PreparationKey(request, {provider_}, 2));
  }
  keys.insert(PreparationKey(Chain(), {provider_}, 3));
  keys.insert(PreparationKey(Chain(), {provider_, nullptr}, 2));
  EXPECT_EQ(keys.size(), changes.size() + 2);
}

// Names that run together differently are different networks.
TEST_F(ProgramCacheTest, NamesDoNotRunTogether) {
  ContractionRequest one = Chain(), other = Chain();
  one.network.output = {"ab", "c"};
  other.network.output = {"a", "bc"};
  EXPECT_NE(PreparationKey(one, {}, 1), PreparationKey(other, {}, 1));
}

TEST_F(ProgramCacheTest, TheLeastRecentlyUsedGoFirst) {
  ProgramCache cache(2, int64_t{1} << 20);
  std::vector<ContractionRequest> requests(3, Chain());
  for (size_t i = 0; i < requests.size(); ++i) requests[i].memory_budget_bytes = 100000 + 1000 * i;
  Prepare(requests[0], &cache);
  Prepare(requests[1], &cache);
  EXPECT_TRUE(Prepare(requests[0], &cache)->Report().cached);
  const auto third = Prepare(requests[2], &cache);  // pushes out 1
  EXPECT_EQ(cache.entries(), 2u);
  EXPECT_EQ(cache.counters().evictions, 1);
  EXPECT_TRUE(Prepare(requests[0], &cache)->Report().cached);
  EXPECT_FALSE(Prepare(requests[1], &cache)->Report().cached);
}

TEST_F(ProgramCacheTest, BytesAreBounded) {
  const auto job = Prepare(Chain(), &cache_);
  const int64_t one = cache_.bytes();
  EXPECT_GT(one, 0);
  ProgramCache cache(100, 2 * one);
  for (int i = 0; i < 5; ++i) {
    ContractionRequest request = Chain();
    request.memory_budget_bytes = 100000 + i;
    Prepare(request, &cache);
    EXPECT_LE(cache.bytes(), 2 * one);
  }
  EXPECT_EQ(cache.entries(), 2u);
  ProgramCache none(100, one - 1);
  Prepare(Chain(), &none);
  EXPECT_EQ(none.entries(), 0u);
  EXPECT_EQ(none.bytes(), 0);
}

}  // namespace
}  // namespace tenon::schedule
