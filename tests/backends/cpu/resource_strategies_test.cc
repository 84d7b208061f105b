// Measurement resources of the CPU by other ways than whole rows: tiles, tables and files.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/core/error.h"
#include "tests/backends/cpu/resource_job.h"
#include "tests/support/status_matchers.h"

namespace tenon::cpu {
namespace {

using measurement::OrderedPairStatistics;
using ::tenon::testing::Fails;

// Neighbours from approximate rows and densities from tiles of the upper triangle, at the sizes
// where panels and tiles are cut off.
TEST(Resources, AreTheSameInPartsOfRows) {
  for (const int64_t n : {512, 515, 1023, 1100}) {
    SCOPED_TRACE(n);
    for (const bool ties : {false, true}) {
      const Points hd = ties ? GridPoints(n, 12, 41) : NormalPoints(n, 13, 41);
      const Points ld = NormalPoints(n, 1, 42);
      for (const int64_t k : {1, 20, 300}) {
        Job tiled({{TENON_RESOURCE_KNN, kOriginal, k, 0}}, hd, ld);
        tiled.request.threads = 2;
        ASSERT_TRUE(tiled.Build().ok());
        // With the pair order beside it the same neighbours come from whole rows.
        Job beside({{TENON_RESOURCE_KNN, kOriginal, k, 0}, kRankOrderKey}, hd, ld);
        ASSERT_TRUE(beside.Build().ok());
        EXPECT_EQ(tiled.memory[0], beside.memory[0]) << k;
      }
      const std::vector<tenon_resource_key> densities = {
          {TENON_RESOURCE_DENSITY, kOriginal, 0, 0.1}, {TENON_RESOURCE_DENSITY, kOriginal, 0, 2}};
      Job sums(densities, hd, ld), one(densities, hd, ld), reference(densities, hd, ld);
      sums.request.threads = 2;
      ASSERT_TRUE(sums.Build().ok());
      ASSERT_TRUE(one.Build().ok());
      ASSERT_TRUE(reference.Build(true).ok());
      EXPECT_EQ(sums.memory, one.memory);  // whatever the threads
      for (size_t d = 0; d < densities.size(); ++d) {
        for (int64_t i = 0; i <= n; ++i) {
          const double want = reference.Read<double>(d)[i];
          ASSERT_NEAR(sums.Read<double>(d)[i], want, 1e-13 * want);
        }
      }
    }
  }
}

TEST(Resources, AreTheSameFromTablesOfTheOriginalSpace) {
  const Points hd = GridPoints(150, 4, 21), ld = GridPoints(150, 2, 22);
  const tenon_resource_key ranks = {TENON_RESOURCE_SELECTED_RANKS, kPair, 9, 0};
  const tenon_resource_key sums = {TENON_RESOURCE_PAIR_STATISTICS, kPair, 0, 0};
  const tenon_resource_key condensed = {TENON_RESOURCE_CONDENSED, kOriginal, 0, 0};
  Job tables({{TENON_RESOURCE_KNN, kOriginal, 9, 0}, kTableKey, condensed}, hd, ld);
  ASSERT_TRUE(tables.Build().ok());
  for (const bool reference : {false, true}) {
    Job direct({ranks, sums}, hd, ld), looked_up({ranks, sums}, hd, ld);
    looked_up.Offer(tables);
    looked_up.request.original.data = nullptr;  // nothing of the original points is read
    ASSERT_TRUE(direct.Build(reference).ok());
    ASSERT_TRUE(looked_up.Build(reference).ok());
    EXPECT_EQ(direct.memory, looked_up.memory);
  }
}

TEST(Resources, AreTheSameFromFiles) {
  const std::string folder = ::testing::TempDir();
  for (const bool ties : {false, true}) {
    const Points hd = ties ? GridPoints(600, 2, 31) : NormalPoints(600, 6, 31);
    const Points ld = ties ? GridPoints(600, 2, 32) : NormalPoints(600, 2, 32);
    const std::vector<tenon_resource_key> keys = {
        {TENON_RESOURCE_ORDERED_PAIR_STATISTICS, kPair, 0, measurement::kRankCorrelation},
        {TENON_RESOURCE_ORDERED_PAIR_STATISTICS, kPair, 0, measurement::kIsotonicFit}};
    Job order({kRankOrderKey, kPositionOrderKey}, hd, ld);
    ASSERT_TRUE(order.Build().ok());
    Job memory(keys, hd, ld), files(keys, hd, ld);
    memory.Offer(order);
    ASSERT_TRUE(memory.Build().ok());
    files.request.temporary_directory = folder.c_str();
    files.request.threads = 2;
    files.request.temporary_bytes = measurement::TemporaryBytes(keys, 600) - 1;
    EXPECT_TRUE(Fails(files.Build(), Reason::kExceedsTemporaryBudget));
    files.request.temporary_bytes += 1;
    ASSERT_TRUE(files.Build().ok());
    EXPECT_GT(files.statistics.temporary_bytes, 0);
    EXPECT_LE(files.statistics.temporary_bytes, files.request.temporary_bytes);
    EXPECT_EQ(files.memory[0], memory.memory[0]);
    const auto& got = *files.Read<OrderedPairStatistics>(1);
    const auto& want = *memory.Read<OrderedPairStatistics>(1);
    EXPECT_EQ(got.isotonic_blocks, want.isotonic_blocks);
    EXPECT_NEAR(got.isotonic_residual, want.isotonic_residual, 1e-12 * want.isotonic_residual);
    EXPECT_NEAR(got.sum_embedded_squared, want.sum_embedded_squared,
                1e-13 * want.sum_embedded_squared);
  }
}

}  // namespace
}  // namespace tenon::cpu
