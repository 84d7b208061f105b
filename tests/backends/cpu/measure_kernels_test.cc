// Distances, neighbours and ranks on every instruction set of the machine, and the pieces that
// orders of pairs are made of.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/parallel.h"
#include "backends/cpu/distance.h"
#include "backends/cpu/distance_kernels.h"
#include "backends/cpu/distance_key.h"
#include "backends/cpu/pair_buckets.h"
#include "backends/cpu/pair_sums.h"
#include "backends/cpu/resources.h"
#include "backends/cpu/spill_file.h"
#include "backends/cpu/spilled_stack.h"
#include "tests/backends/cpu/highway_target.h"
#include "tests/support/status_matchers.h"

namespace tenon::cpu {
namespace {

using ::tenon::testing::Fails;
using ::tenon::testing::MachineTargets;
using ::tenon::testing::TargetName;
using ::tenon::testing::TargetScope;

using Values = std::vector<double>;

// ---- Points on which a fused multiply-add would change the order ------------------------------

Values TenthsGrid(int64_t rows, int64_t columns) {
  std::mt19937 generator(7);
  std::uniform_int_distribution<int> tenths(-30, 30);
  Values values;
  for (int64_t p = 0; p < rows * columns; ++p) values.push_back(tenths(generator) / 10.0);
  return values;
}

// Every row again with its columns in another order: distances that are equal by the sum's terms
// but rounded differently.
Values PermutedColumns(int64_t rows, int64_t columns) {
  Values values = TenthsGrid(rows, columns);
  std::mt19937 generator(8);
  for (int64_t i = 1; i < rows; i += 2) {
    std::copy_n(values.begin() + (i - 1) * columns, columns, values.begin() + i * columns);
    std::shuffle(values.begin() + i * columns, values.begin() + (i + 1) * columns, generator);
  }
  return values;
}

Values ScoredIntegers(int64_t rows, int64_t columns) {
  std::mt19937 generator(9);
  std::uniform_int_distribution<int> whole(0, 9);
  Values values;
  for (int64_t p = 0; p < rows * columns; ++p) values.push_back(whole(generator));
  for (int64_t c = 0; c < columns; ++c) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < rows; ++i) mean += values[i * columns + c] / double(rows);
    for (int64_t i = 0; i < rows; ++i) variance += std::pow(values[i * columns + c] - mean, 2);
    for (int64_t i = 0; i < rows; ++i) {
      values[i * columns + c] =
          (values[i * columns + c] - mean) / std::sqrt(variance / double(rows));
    }
  }
  return values;
}

double PlainDistance(const Values& values, int64_t columns, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) {
    const double difference = values[i * columns + c] - values[j * columns + c];
    const volatile double square = difference * difference;  // nothing may fuse
    sum = sum + square;
  }
  return std::sqrt(sum);
}

struct TieCase {
  const char* name;
  Values (*make)(int64_t, int64_t);
};

class EveryTarget : public ::testing::TestWithParam<TieCase> {};

TEST_P(EveryTarget, HasTheDistancesOfThePlainLoop) {
  for (const int64_t columns : {1, 3, 13, 50}) {
    const int64_t n = 203;
    const Values values = GetParam().make(n, columns);
    const tenon_matrix matrix = {values.data(), TENON_DTYPE_FLOAT64, 0, n, columns};
    for (const int64_t target : MachineTargets()) {
      SCOPED_TRACE(TargetName(target));
      const TargetScope scope(target);
      const auto packed = PackedPoints::Pack(matrix);
      ASSERT_TRUE(packed.ok());
      Buffer rows = *Buffer::Allocate(n * PaddedRows(n) * 8);
      packed->KeyRows(0, n, 0, rows.as<double>());
      KeysToDistances(packed->kind(), rows.as<double>(), n * PaddedRows(n));
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          ASSERT_EQ(rows.as<double>()[i * PaddedRows(n) + j], PlainDistance(values, columns, i, j));
        }
      }
    }
  }
}

TEST_P(EveryTarget, HasTheNeighborsAndRanksOfTheReference) {
  const int64_t n = 605, columns = 13, k = 20;  // enough for tiles of the upper triangle
  const Values hd = GetParam().make(n, columns), ld = GetParam().make(n, 2);
  tenon_resource_request request = {};
  request.struct_size = sizeof(request);
  request.threads = 2;
  request.original = {hd.data(), TENON_DTYPE_FLOAT64, 0, n, columns};
  request.embedded = {ld.data(), TENON_DTYPE_FLOAT64, 0, n, 2};
  request.working_memory_bytes = int64_t{1} << 30;
  const std::vector<std::vector<tenon_resource_key>> requests = {
      {{TENON_RESOURCE_KNN, TENON_RESOURCE_ORIGINAL, k, 0},
       {TENON_RESOURCE_KNN, TENON_RESOURCE_EMBEDDED, k, 0}},
      {{TENON_RESOURCE_SELECTED_RANKS, TENON_RESOURCE_PAIR, k, 0},
       {TENON_RESOURCE_RANK_TABLE, TENON_RESOURCE_ORIGINAL, 0, 0},
       {TENON_RESOURCE_PAIR_ORDER, TENON_RESOURCE_ORIGINAL, 0, measurement::kRankOrder}}};
  for (const auto& keys : requests) {
    std::vector<std::vector<std::byte>> want, got;
    std::vector<tenon_resource> outputs;
    const auto build = [&](std::vector<std::vector<std::byte>>& memory, bool reference) {
      memory.clear();
      outputs.clear();
      for (const auto& key : keys) memory.emplace_back(*measurement::ResourceBytes(key, n));
      for (size_t o = 0; o < keys.size(); ++o) {
        outputs.push_back({keys[o], memory[o].data(), static_cast<int64_t>(memory[o].size())});
      }
      request.outputs = outputs.data();
      request.n_outputs = static_cast<int32_t>(outputs.size());
      tenon_resource_statistics statistics;
      ASSERT_TRUE((reference ? BuildResourcesReference(request, &statistics)
                             : BuildResources(request, &statistics))
                      .ok());
    };
    build(want, true);
    for (const int64_t target : MachineTargets()) {
      SCOPED_TRACE(TargetName(target));
      const TargetScope scope(target);
      build(got, false);
      for (size_t o = 0; o < keys.size(); ++o) EXPECT_EQ(got[o], want[o]) << o;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ties, EveryTarget,
                         ::testing::Values(TieCase{"TenthsGrid", TenthsGrid},
                                           TieCase{"PermutedColumns", PermutedColumns},
                                           TieCase{"ScoredIntegers", ScoredIntegers}),
                         [](const auto& info) { return info.param.name; });

// Such data is of use only if fusing would be seen on it.
TEST(TieData, WouldShowFusedSums) {
  for (const auto make : {TenthsGrid, PermutedColumns, ScoredIntegers}) {
    const int64_t columns = 13;
    const Values values = make(100, columns);
    int64_t different = 0;
    for (int64_t i = 0; i < 100; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        double fused = 0;
        for (int64_t c = 0; c < columns; ++c) {
          const double difference = values[i * columns + c] - values[j * columns + c];
          fused = std::fma(difference, difference, fused);
        }
        different += std::sqrt(fused) != PlainDistance(values, columns, i, j);
      }
    }
    EXPECT_GT(different, 100);
  }
}

// ---- Keys ------------------------------------------------------------------------------------

TEST(DistanceKey, EndsOfAnIntervalShareTheDistance) {
  std::mt19937_64 generator(3);
  std::uniform_real_distribution<double> exponent(-300, 300);
  std::vector<double> keys = {0.0,
                              1.0,
                              4.0,
                              2.0,
                              std::numeric_limits<double>::denorm_min(),
                              std::numeric_limits<double>::max(),
                              std::numeric_limits<double>::infinity()};
  for (int i = 0; i < 2000; ++i) keys.push_back(std::pow(10.0, exponent(generator)));
  for (const double key : keys) {
    const double distance = DistanceOf(KeyKind::kSquare, key);
    const double last = LastKeyOf(KeyKind::kSquare, key);
    const double before = LastKeyBefore(KeyKind::kSquare, key);
    EXPECT_EQ(DistanceOf(KeyKind::kSquare, last), distance);
    EXPECT_EQ(LastKeyAt(KeyKind::kSquare, distance), last);
    if (std::isfinite(last)) {
      EXPECT_GT(std::sqrt(std::nextafter(last, HUGE_VAL)), distance);
    }
    if (before >= 0) {
      EXPECT_LT(std::sqrt(before), distance);
      EXPECT_EQ(std::sqrt(std::nextafter(before, HUGE_VAL)), distance);
    } else {
      EXPECT_EQ(distance, 0);
    }
  }
}

TEST(DistanceKey, OfSinglesStepsInSingles) {
  for (const float key : {0.5f, 1.0f, 1.0000001f, 3.0f, 1e-30f, 1e30f}) {
    const double distance = DistanceOf(KeyKind::kSquareSingle, key);
    EXPECT_EQ(distance, std::sqrt(key));
    const double last = LastKeyOf(KeyKind::kSquareSingle, key);
    EXPECT_EQ(last, static_cast<float>(last));
    EXPECT_EQ(DistanceOf(KeyKind::kSquareSingle, last), distance);
    EXPECT_GT(std::sqrt(std::nextafter(static_cast<float>(last), HUGE_VALF)), distance);
  }
}

// ---- Sums ------------------------------------------------------------------------------------

TEST(PairSums, KeepMomentsOfRowsFarFromZeroOrFromTheirFirstValues) {
  std::mt19937 generator(5);
  std::normal_distribution<double> normal;
  for (const int64_t count : {1, 7, 8, 9, 200}) {
    Values o, e;
    for (int64_t j = 0; j < count; ++j) {
      // The first eight are far from the rest.
      o.push_back((j < 8 ? 1e9 : 1.0) + std::abs(normal(generator)));
      e.push_back(1e8 + normal(generator));
    }
    const auto sums = PairSums({o.data(), false}, {e.data(), false}, count);
    long double mean_o = 0, mean_e = 0, oo = 0, ee = 0, oe = 0;
    for (int64_t j = 0; j < count; ++j) mean_o += o[j], mean_e += e[j];
    mean_o /= count, mean_e /= count;
    for (int64_t j = 0; j < count; ++j) {
      oo += (o[j] - mean_o) * (o[j] - mean_o);
      ee += (e[j] - mean_e) * (e[j] - mean_e);
      oe += (o[j] - mean_o) * (e[j] - mean_e);
    }
    EXPECT_NEAR(sums.mean_original, double(mean_o), 1e-14 * double(mean_o));
    EXPECT_NEAR(sums.moment_original, double(oo), 1e-13 * double(oo));
    // Values of 1e8 carry eight digits of their deviations.
    EXPECT_NEAR(sums.moment_embedded, double(ee), 1e-7 * double(ee) + 1e-13);
    EXPECT_NEAR(sums.comoment, double(oe), 1e-7 * std::sqrt(double(oo * ee)) + 1e-13);
  }
}

// ---- Records in buckets ----------------------------------------------------------------------

struct Visited {
  uint64_t key;
  int64_t first, last;
  std::vector<double> payloads;
};

// Adds keys with their positions as payloads on two slots; returns the ties in order.
std::vector<Visited> Sorted(const Values& keys, int64_t buckets, bool spill) {
  std::vector<uint64_t> sample;
  for (size_t r = 0; r < keys.size(); r += 3) sample.push_back(KeyOfDistance(keys[r]));
  const PairBuckets<double>::Options options = {static_cast<int64_t>(keys.size()), 2, buckets,
                                                spill};
  std::unique_ptr<SpillFile> file;
  if (spill) {
    file = *SpillFile::Open(::testing::TempDir(), 4096, PairBuckets<double>::FileBytes(options));
  }
  auto records =
      *PairBuckets<double>::Create(options, BucketMap::OfSample(sample, buckets), file.get());
  for (size_t r = 0; r < keys.size(); ++r) {
    records.Add(static_cast<int>(r % 2), KeyOfDistance(keys[r]), static_cast<double>(r));
  }
  std::vector<Visited> visited;
  const Parallel serial(1, nullptr);
  EXPECT_TRUE(records
                  .VisitTies(serial,
                             [&](int, int64_t, const PairRecord<double>* ties, int64_t count,
                                 int64_t first, int64_t last) {
                               if (visited.empty() || visited.back().first != first) {
                                 visited.push_back({ties[0].key, first, last, {}});
                               }
                               for (int64_t t = 0; t < count; ++t) {
                                 visited.back().payloads.push_back(ties[t].payload);
                               }
                             })
                  .ok());
  return visited;
}

void ExpectSorted(const Values& keys, const std::vector<Visited>& visited) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  int64_t position = 0;
  for (const Visited& ties : visited) {
    ASSERT_EQ(ties.first, position);
    ASSERT_EQ(static_cast<int64_t>(ties.payloads.size()), ties.last - ties.first);
    Values payloads = ties.payloads;
    std::sort(payloads.begin(), payloads.end());
    for (const double payload : payloads) {
      ASSERT_EQ(payload, static_cast<double>(order[position]));
      ASSERT_EQ(DistanceOfKey(ties.key), keys[order[position]]);
      ++position;
    }
  }
  EXPECT_EQ(position, static_cast<int64_t>(keys.size()));
}

TEST(PairBuckets, SortAnyKeysInMemoryAndInFiles) {
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<double> uniform(0, 5), exponent(-300, 300);
  Values smooth, wide, equal(40000, 1.5), few, clumped;
  for (int i = 0; i < 40000; ++i) {
    smooth.push_back(uniform(generator));
    wide.push_back(std::pow(10.0, exponent(generator)));
    few.push_back(std::floor(uniform(generator)));
    // Half of the mass within a few units of the last place, and some zeros.
    clumped.push_back(i % 2 == 0 ? 3.0 + (i % 64) * 4.440892098500626e-16 : uniform(generator));
    if (i % 100 == 0) clumped.back() = 0;
  }
  for (const Values* keys : {&smooth, &wide, &equal, &few, &clumped}) {
    for (const int64_t buckets : {1, 5, 64}) {
      for (const bool spill : {false, true}) ExpectSorted(*keys, Sorted(*keys, buckets, spill));
    }
  }
  for (const size_t size : {1, 2, 3})
    ExpectSorted(Values(size, 2.0), Sorted(Values(size, 2.0), 1, true));
}

TEST(BucketMap, IsMonotoneAndWithinItsBuckets) {
  std::mt19937_64 generator(2);
  for (const int64_t buckets : {1, 2, 7, 1000}) {
    std::vector<uint64_t> sample;
    std::uniform_real_distribution<double> uniform(1, 2);
    for (int i = 0; i < 5000; ++i) sample.push_back(KeyOfDistance(uniform(generator)));
    const BucketMap map = BucketMap::OfSample(sample, buckets);
    EXPECT_LE(map.buckets(), buckets);
    int32_t last = 0;
    for (double value = 0; value < 3; value += 0.001) {
      const int32_t bucket = map.Bucket(KeyOfDistance(value));
      EXPECT_GE(bucket, last);
      EXPECT_LT(bucket, map.buckets());
      last = bucket;
    }
    EXPECT_LT(map.Bucket(KeyOfDistance(HUGE_VAL)), map.buckets());
  }
}

// ---- Files -----------------------------------------------------------------------------------

TEST(SpillFile, LeavesNothingInItsFolder) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("spill_empty_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  auto file = SpillFile::Open(folder.string(), 4096, 8192);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::vector<char> one(4096, 'a'), two(4096, 'b'), read(4096);
  const int32_t first = (*file)->Write(one.data()), second = (*file)->Write(two.data());
  ASSERT_TRUE((*file)->Read(second, read.data()).ok());
  EXPECT_EQ(read, two);
  ASSERT_TRUE((*file)->Read(first, read.data()).ok());
  EXPECT_EQ(read, one);
  EXPECT_EQ((*file)->bytes(), 8192);
  EXPECT_TRUE((*file)->status().ok());
  (*file)->Write(one.data());
  EXPECT_TRUE(Fails((*file)->status(), Reason::kExceedsTemporaryBudget));
  std::filesystem::remove(folder);
}

TEST(SpillFile, AFullOneIsTheErrorOfItsReaders) {
  // Records go to a file that holds one block; the rest was never written.
  const PairBuckets<double>::Options options = {100000, 1, 4, true};
  auto file = *SpillFile::Open(::testing::TempDir(), 4096, 4096);
  auto records = *PairBuckets<double>::Create(options, BucketMap(), file.get());
  for (int r = 0; r < 100000; ++r) records.Add(0, KeyOfDistance(r), r);
  EXPECT_TRUE(Fails(file->status(), Reason::kExceedsTemporaryBudget));
  auto stack = *SpilledStack::Create(::testing::TempDir(), 1);
  for (int p = 0; p < 5 * SpilledStack::kPart; ++p) stack.Push({1.0 * p, 1});
  while (!stack.empty()) stack.Pop();
  EXPECT_TRUE(Fails(stack.status(), Reason::kExceedsTemporaryBudget));
}

TEST(SpillFile, SaysWhyItCannotBeMade) {
  const auto file = SpillFile::Open("/nonexistent/folder", 4096, 4096);
  ASSERT_TRUE(Fails(file, Reason::kInternal));
  EXPECT_NE(std::string(file.status().message()).find("No such file"), std::string::npos);
}

TEST(SpilledStack, IsAStackOfAnyHeight) {
  const int64_t pushes = 5 * SpilledStack::kPart;
  auto stack = SpilledStack::Create(::testing::TempDir(), pushes + 1000);
  ASSERT_TRUE(stack.ok());
  std::vector<double> expected;
  const auto push = [&](double mean) {
    stack->Push({mean, 1});
    expected.push_back(mean);
  };
  const auto pop = [&] {
    ASSERT_EQ(stack->Top().mean, expected.back());
    stack->Pop();
    expected.pop_back();
  };
  for (int64_t p = 0; p < pushes; ++p) push(static_cast<double>(p));
  EXPECT_EQ(stack->size(), pushes);
  for (int64_t p = 0; p < 4 * SpilledStack::kPart; ++p) pop();
  for (int p = 0; p < 1000; ++p) push(-p);
  while (!expected.empty()) pop();
  EXPECT_TRUE(stack->empty());
  EXPECT_TRUE(stack->status().ok());
}

}  // namespace
}  // namespace tenon::cpu
