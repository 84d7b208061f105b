// Approximate rows: their margin holds, and what is taken from them is what exact rows give.

#include "backends/cpu/distance_filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/distance.h"
#include "backends/cpu/filtered_rows.h"
#include "tests/backends/cpu/highway_target.h"
#include "tests/backends/cpu/resource_job.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kRows = 530;  // not a multiple of a panel

Points Changed(Points points, const std::function<double(int64_t j, int64_t c, double)>& change) {
  for (int64_t j = 0; j < points.rows; ++j) {
    for (int64_t c = 0; c < points.columns; ++c) {
      double& value = points.values[j * points.columns + c];
      value = change(j, c, value);
    }
  }
  return points;
}

struct Case {
  std::string name;
  Points points;
};

std::vector<Case> Cases() {
  const Points normal = NormalPoints(kRows, 17, 1);
  return {
      {"normal", normal},
      {"wide", NormalPoints(kRows, 150, 2)},
      {"tenths", GridPoints(kRows, 12, 3)},
      {"few values",
       Changed(GridPoints(kRows, 12, 4), [](auto, auto c, double x) { return c < 2 ? x : 1.0; })},
      {"far from zero", Changed(normal, [](auto, auto, double x) { return 1e6 + x; })},
      // Clusters far apart: distances within one are near the margin.
      {"clusters",
       Changed(normal, [](auto j, auto, double x) { return (j % 5) * 1e4 + x * 1e-3; })},
      {"one outlier", Changed(normal, [](auto j, auto, double x) { return j == 7 ? 1e9 * x : x; })},
      {"duplicates",
       Changed(normal, [&](auto j, auto c, double) { return normal.values[j % 40 * 17 + c]; })},
      {"tiny", Changed(normal, [](auto, auto, double x) { return x * 1e-130; })},
      {"huge", Changed(normal, [](auto, auto, double x) { return x * 1e140; })},
  };
}

class FilterOnTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  testing::TargetScope scope_{GetParam()};
};

TEST_P(FilterOnTarget, KeepsItsMargin) {
  for (const Case& data : Cases()) {
    SCOPED_TRACE(data.name);
    const auto filter = DistanceFilter::Create(data.points.Matrix());
    ASSERT_TRUE(filter.ok() && filter->has_value());
    const auto packed = PackedPoints::Pack(data.points.Matrix());
    ASSERT_TRUE(packed.ok());
    Buffer rows = *Buffer::Allocate(7 * DistanceFilter::Stride(kRows) * 4);
    Buffer exact = *Buffer::Allocate(PaddedRows(kRows) * 8);
    std::vector<int32_t> columns(kRows);
    std::vector<double> keys(kRows);
    for (int64_t j = 0; j < kRows; ++j) columns[j] = static_cast<int32_t>(j);
    for (const int64_t first : {0, 200, 523}) {
      (*filter)->Rows(first, 7, rows.as<float>());
      for (int64_t i = first; i < first + 7; ++i) {
        const float* values = rows.as<float>() + (i - first) * DistanceFilter::Stride(kRows);
        packed->KeyRows(i, 1, 0, exact.as<double>());
        (*filter)->Keys(i, columns.data(), kRows, keys.data());
        for (int64_t j = 0; j < kRows; ++j) {
          const double key = exact.as<double>()[j];
          ASSERT_EQ(keys[j], key);
          ASSERT_LE(values[j], (*filter)->Upper(i, key)) << i << " " << j;
          ASSERT_GT(values[j], (*filter)->Lower(i, key)) << i << " " << j;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FilterOnTarget, ::testing::ValuesIn(testing::MachineTargets()),
                         [](const auto& info) { return testing::TargetName(info.param); });

TEST(DistanceFilter, DecidesNearlyAllRowsOfOrdinaryData) {
  constexpr int64_t kNeighbors = 12;
  const Points points = NormalPoints(kRows, 50, 9);
  const auto filter = DistanceFilter::Create(points.Matrix());
  ASSERT_TRUE(filter.ok() && filter->has_value());
  Buffer row = *Buffer::Allocate(DistanceFilter::Stride(kRows) * 4);
  std::vector<Neighbor> candidates(CandidateCapacity(kNeighbors));
  std::vector<int32_t> found(CandidateCapacity(kNeighbors));
  std::vector<int32_t> nearest(kNeighbors), targets, ranks(kNeighbors);
  std::vector<double> keys(kNeighbors);
  std::vector<float> bounds(2 * kNeighbors);
  std::vector<int64_t> tile_counts(2 * kNeighbors), counts(kNeighbors);
  int64_t decided = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    (*filter)->Rows(i, 1, row.as<float>());
    const FilteredRow filtered{**filter, i, row.as<float>(), kRows};
    decided += NearestOfFilteredRow(filtered, kNeighbors, {candidates.data(), found.data()},
                                    nearest.data());
    targets.clear();
    for (int64_t t = 1; t <= kNeighbors; ++t) {
      targets.push_back(static_cast<int32_t>((i + 40 * t) % kRows));
    }
    decided += RanksInFilteredRow(filtered, targets.data(), kNeighbors,
                                  {keys.data(), bounds.data(), tile_counts.data(), counts.data()},
                                  ranks.data());
  }
  EXPECT_GE(decided, 2 * kRows - 5);
}

TEST(DistanceFilter, RefusesWhatLeavesTheRange) {
  const Points normal = NormalPoints(kRows, 12, 1);
  for (const double scale : {0.0, 1e-145, 1e155, 1e300}) {
    const Points points = Changed(normal, [&](auto, auto, double x) { return x * scale; });
    const auto filter = DistanceFilter::Create(points.Matrix());
    ASSERT_TRUE(filter.ok());
    EXPECT_FALSE(filter->has_value()) << scale;
  }
}

class FilteredResources : public ::testing::TestWithParam<Case> {};

TEST_P(FilteredResources, AreThoseOfTheReference) {
  const Points& hd = GetParam().points;
  const Points ld = GridPoints(hd.rows, 2, 5);
  for (const int64_t k : {1, 20, 40, 200}) {
    const std::vector<tenon_resource_key> keys = {{TENON_RESOURCE_KNN, kOriginal, k, 0},
                                                  {TENON_RESOURCE_SELECTED_RANKS, kPair, k, 0}};
    Job filtered(keys, hd, ld), reference(keys, hd, ld);
    filtered.request.threads = 2;
    ASSERT_TRUE(filtered.Build().ok());
    ASSERT_TRUE(reference.Build(true).ok());
    EXPECT_EQ(filtered.memory, reference.memory) << k;
    // Ranks alone, with neighbours that were built before.
    Job further({keys[1]}, hd, ld), neighbors({keys[0]}, hd, ld);
    ASSERT_TRUE(neighbors.Build().ok());
    EXPECT_EQ(neighbors.memory[0], reference.memory[0]) << k;
    further.Offer(neighbors);
    ASSERT_TRUE(further.Build().ok());
    EXPECT_EQ(further.memory[0], reference.memory[1]) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Data, FilteredResources, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

TEST(FilteredResources, InSinglePrecisionAreThoseOfTheReference) {
  for (const Case& data : Cases()) {
    if (data.name == "tiny" || data.name == "huge") continue;  // not within a float
    SCOPED_TRACE(data.name);
    const std::vector<float> hd(data.points.values.begin(), data.points.values.end());
    const Points ld = GridPoints(kRows, 2, 5);
    const std::vector<float> single(ld.values.begin(), ld.values.end());
    const std::vector<tenon_resource_key> keys = {{TENON_RESOURCE_KNN, kOriginal, 15, 0},
                                                  {TENON_RESOURCE_SELECTED_RANKS, kPair, 15, 0}};
    Job filtered(keys, data.points, ld), reference(keys, data.points, ld);
    for (Job* job : {&filtered, &reference}) {
      job->request.original.data = hd.data();
      job->request.original.dtype = TENON_DTYPE_FLOAT32;
      job->request.embedded.data = single.data();
      job->request.embedded.dtype = TENON_DTYPE_FLOAT32;
    }
    ASSERT_TRUE(filtered.Build().ok());
    ASSERT_TRUE(reference.Build(true).ok());
    EXPECT_EQ(filtered.memory, reference.memory);
  }
}

}  // namespace
}  // namespace tenon::cpu
