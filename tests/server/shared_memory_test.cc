#include "server/shared_memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "backends/core/error.h"
#include "tests/server/shared_memory_support.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using tenon::testing::Fails;

constexpr int64_t kPage = 4096;
constexpr int64_t kMiB = int64_t{1} << 20;

class SharedMemoryTest : public ::testing::Test {
 protected:
  MemoryBudget budget_{16 * kMiB};
  SharedMemory memory_{&budget_, {"", 8 * kMiB, 4 * kMiB, 3}};
};

TEST_F(SharedMemoryTest, MapsWhatIsSealedAndGivesItBack) {
  TestMemory client("mapped", 2 * kMiB);
  ASSERT_EQ(MappingsOf("mapped"), 1);
  const auto token = memory_.Add(client.fd());
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->size(), 16u);
  EXPECT_EQ(MappingsOf("mapped"), 2);
  EXPECT_EQ(budget_.reserved_bytes(), 2 * kMiB);
  EXPECT_EQ(memory_.figures().pools, 1);
  EXPECT_EQ(memory_.figures().bytes, 2 * kMiB);

  auto pool = memory_.Find(*token, "");
  ASSERT_TRUE(pool.ok()) << pool.status();
  const auto span = (*pool)->Region(Region(kPage, 5));
  ASSERT_TRUE(span.ok()) << span.status();
  client.Put(kPage, "hello");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(span->data), 5), "hello");
  span->data[0] = std::byte{'j'};
  EXPECT_EQ(client.Get(kPage, 5), "jello");

  memory_.Remove(*token);
  EXPECT_TRUE(Fails(memory_.Find(*token, ""), Reason::kNotFound));
  EXPECT_EQ(MappingsOf("mapped"), 2);  // somebody still uses it
  EXPECT_EQ(memory_.figures().bytes, 2 * kMiB);
  pool->reset();
  EXPECT_EQ(MappingsOf("mapped"), 1);
  EXPECT_EQ(memory_.figures().bytes, 0);
  EXPECT_EQ(memory_.figures().pools, 0);
  EXPECT_EQ(budget_.reserved_bytes(), 0);
  EXPECT_EQ(memory_.figures().found, 1);
  EXPECT_EQ(memory_.figures().not_found, 1);
}

TEST_F(SharedMemoryTest, RefusesMemoryThatCouldGoAway) {
  for (const int seals : {0, int{F_SEAL_SHRINK}, int{F_SEAL_GROW}, kSeals | F_SEAL_WRITE}) {
    const TestMemory client("bad", kMiB, seals);
    EXPECT_TRUE(Fails(memory_.Add(client.fd()), Reason::kBadParameter)) << seals;
  }
  const TestMemory empty("empty", 0);
  EXPECT_TRUE(Fails(memory_.Add(empty.fd()), Reason::kBadParameter));
  std::FILE* file = std::tmpfile();
  ASSERT_EQ(ftruncate(fileno(file), kMiB), 0);
  EXPECT_TRUE(Fails(memory_.Add(fileno(file)), Reason::kBadParameter));
  std::fclose(file);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_TRUE(Fails(memory_.Add(pipe_ends[0]), Reason::kBadParameter));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_TRUE(Fails(memory_.Add(-1), Reason::kBadParameter));
  EXPECT_EQ(memory_.figures().pools, 0);
  EXPECT_EQ(memory_.figures().bytes, 0);
  EXPECT_EQ(budget_.reserved_bytes(), 0);
}

TEST_F(SharedMemoryTest, KeepsWithinItsLimits) {
  const TestMemory huge("huge", 4 * kMiB + kPage);
  EXPECT_TRUE(Fails(memory_.Add(huge.fd()), Reason::kExceedsServerLimit));
  const TestMemory a("a", 4 * kMiB), b("b", 4 * kMiB - 2 * kPage), c("c", 3 * kPage), d("d", kPage),
      e("e", kPage);
  const auto token = memory_.Add(a.fd());
  ASSERT_TRUE(token.ok()) << token.status();
  ASSERT_TRUE(memory_.Add(b.fd()).ok());
  EXPECT_TRUE(Fails(memory_.Add(c.fd()), Reason::kOverloaded));  // of all bytes
  ASSERT_TRUE(memory_.Add(d.fd()).ok());
  EXPECT_TRUE(Fails(memory_.Add(e.fd()), Reason::kOverloaded));  // of all pools
  memory_.Remove(*token);
  EXPECT_TRUE(memory_.Add(e.fd()).ok());
  EXPECT_EQ(memory_.figures().pools, 3);
}

TEST_F(SharedMemoryTest, CountsAgainstTheMemoryBudget) {
  const auto work = budget_.Reserve(15 * kMiB);
  ASSERT_TRUE(work.ok());
  const TestMemory client("client", 2 * kMiB);
  EXPECT_TRUE(Fails(memory_.Add(client.fd()), Reason::kOverloaded));
  EXPECT_EQ(memory_.figures().bytes, 0);
}

// Whoever gets memory in anew knows that nobody writes to it under its old name.
TEST_F(SharedMemoryTest, TakesTheSameMemoryAgainOnlyWhenItIsFree) {
  const TestMemory client("again", kMiB);
  const auto first = memory_.Add(client.fd());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(Fails(memory_.Add(client.fd()), Reason::kInUse));
  auto call = memory_.Find(*first, "");
  ASSERT_TRUE(call.ok());
  memory_.Remove(*first);
  EXPECT_TRUE(Fails(memory_.Add(client.fd()), Reason::kInUse));
  call->reset();
  const auto second = memory_.Add(client.fd());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*second, *first);
}

TEST_F(SharedMemoryTest, BelongsToTheFirstWhoUsesIt) {
  const TestMemory client("owned", kMiB);
  const auto token = memory_.Add(client.fd());
  ASSERT_TRUE(token.ok());
  EXPECT_TRUE(memory_.Find(*token, "alice").ok());
  EXPECT_TRUE(Fails(memory_.Find(*token, "bob"), Reason::kNotFound));
  EXPECT_TRUE(Fails(memory_.Find(*token, ""), Reason::kNotFound));
  EXPECT_TRUE(memory_.Find(*token, "alice").ok());
  for (const std::string& other :
       {std::string(), std::string(16, '\0'), token->substr(0, 15), *token + "x"}) {
    EXPECT_TRUE(Fails(memory_.Find(other, "alice"), Reason::kNotFound));
  }
}

TEST_F(SharedMemoryTest, RegionsLieInside) {
  const TestMemory client("regions", kMiB);
  const auto token = memory_.Add(client.fd());
  ASSERT_TRUE(token.ok());
  const auto pool = memory_.Find(*token, "");
  ASSERT_TRUE(pool.ok());
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  EXPECT_TRUE((*pool)->Region(Region(0, kMiB)).ok());
  EXPECT_TRUE((*pool)->Region(Region(kMiB - 64, 64)).ok());
  EXPECT_TRUE((*pool)->Region(Region(kMiB, 0)).ok());
  for (const int64_t offset : {int64_t{-64}, int64_t{1}, int64_t{32}, kMin, kMax}) {
    EXPECT_TRUE(Fails((*pool)->Region(Region(offset, 8)), Reason::kBadParameter, "offset_bytes"))
        << offset;
  }
  const std::pair<int64_t, int64_t> outside[] = {
      {0, kMiB + 1}, {64, kMiB - 63},   {kMiB, 1}, {kMiB + 64, 0}, {kMax / 64 * 64, 64},
      {0, kMax},     {kMiB - 64, kMax}, {0, -1},   {64, kMin},     {kMiB, -64},
  };
  for (const auto& [offset, size] : outside) {
    EXPECT_TRUE(Fails((*pool)->Region(Region(offset, size)), Reason::kBadParameter, "size_bytes"))
        << offset << " " << size;
  }
  EXPECT_TRUE((*pool)->TensorRegion(Region(0, 24), 24).ok());
  EXPECT_TRUE(
      Fails((*pool)->TensorRegion(Region(0, 32), 24), Reason::kShapeMismatch, "size_bytes"));
  const auto result = (*pool)->ResultRegion(Region(64, 32), 24);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->size_bytes, 24);
  EXPECT_EQ(result->offset_bytes, 64);
  EXPECT_TRUE(Fails((*pool)->ResultRegion(Region(0, 16), 24), Reason::kBadParameter, "size_bytes"));
}

TEST(SharedSpan, KnowsWhatItOverlaps) {
  const SharedSpan span{nullptr, 64, 64};
  EXPECT_TRUE(span.Overlaps(span));
  EXPECT_TRUE(span.Overlaps({nullptr, 0, 65}));
  EXPECT_TRUE(span.Overlaps({nullptr, 127, 64}));
  EXPECT_FALSE(span.Overlaps({nullptr, 0, 64}));
  EXPECT_FALSE(span.Overlaps({nullptr, 128, 64}));
  EXPECT_FALSE(span.Overlaps({nullptr, 96, 0}));
}

TEST(FindPool, TellsWhereItLooked) {
  const auto none = FindPool(nullptr, "", "");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  EXPECT_TRUE(Fails(FindPool(nullptr, "x", ""), Reason::kNotImplemented, "header.shared_pool"));
  MemoryBudget budget(kMiB);
  SharedMemory memory(&budget, {"", kMiB, kMiB, 1});
  EXPECT_TRUE(Fails(FindPool(&memory, "x", ""), Reason::kNotFound, "header.shared_pool"));
  EXPECT_TRUE(Fails(CheckHasPool(nullptr), Reason::kMissingField, "header.shared_pool"));
}

}  // namespace
}  // namespace tenon::server
