// Requests for measurement resources in tests: points, and one request with its memory.

#ifndef TENON_TESTS_BACKENDS_CPU_RESOURCE_JOB_H_
#define TENON_TESTS_BACKENDS_CPU_RESOURCE_JOB_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "backends/cpu/resources.h"
#include "backends/measurement/resource.h"

namespace tenon::cpu {

inline constexpr int32_t kOriginal = TENON_RESOURCE_ORIGINAL;
inline constexpr int32_t kEmbedded = TENON_RESOURCE_EMBEDDED;
inline constexpr int32_t kPair = TENON_RESOURCE_PAIR;
inline const tenon_resource_key kRankOrderKey = {TENON_RESOURCE_PAIR_ORDER, kOriginal, 0,
                                                 measurement::kRankOrder};
inline const tenon_resource_key kPositionOrderKey = {TENON_RESOURCE_PAIR_ORDER, kOriginal, 0,
                                                     measurement::kPositionOrder};

inline const tenon_resource_key kTableKey = {TENON_RESOURCE_RANK_TABLE, kOriginal, 0, 0};

struct Points {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;

  tenon_matrix Matrix() const { return {values.data(), TENON_DTYPE_FLOAT64, 0, rows, columns}; }
  double Distance(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double difference = values[i * columns + c] - values[j * columns + c];
      const double square = difference * difference;
      sum = sum + square;
    }
    return std::sqrt(sum);
  }
};

// Coordinates in tenths: products and sums round, ties are everywhere.
inline Points GridPoints(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> tenths(-3, 3);
  Points points{rows, columns, {}};
  for (int64_t p = 0; p < rows * columns; ++p) points.values.push_back(tenths(generator) / 10.0);
  return points;
}

inline Points NormalPoints(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Points points{rows, columns, {}};
  for (int64_t p = 0; p < rows * columns; ++p) points.values.push_back(normal(generator));
  return points;
}

using Bytes = std::vector<std::byte>;

// One request with its memory.
struct Job {
  Job(std::vector<tenon_resource_key> asked, const Points& hd, const Points& ld)
      : keys(std::move(asked)) {
    for (const tenon_resource_key& key : keys) {
      memory.emplace_back(*measurement::ResourceBytes(key, hd.rows));
    }
    for (size_t o = 0; o < keys.size(); ++o) {
      outputs.push_back({keys[o], memory[o].data(), static_cast<int64_t>(memory[o].size())});
    }
    request.struct_size = sizeof(request);
    request.n_outputs = static_cast<int32_t>(outputs.size());
    request.outputs = outputs.data();
    request.threads = 1;
    request.original = hd.Matrix();
    request.embedded = ld.Matrix();
    request.working_memory_bytes = int64_t{1} << 30;
  }
  Job(const Job&) = delete;

  void Offer(const Job& other) {
    available = other.outputs;
    request.available = available.data();
    request.n_available = static_cast<int32_t>(available.size());
  }
  absl::Status Build(bool reference = false) {
    return reference ? BuildResourcesReference(request, &statistics)
                     : BuildResources(request, &statistics);
  }
  template <typename T>
  const T* Read(size_t output) const {
    return reinterpret_cast<const T*>(memory[output].data());
  }

  std::vector<tenon_resource_key> keys;
  std::vector<Bytes> memory;
  std::vector<tenon_resource> outputs, available;
  tenon_resource_request request = {};
  tenon_resource_statistics statistics = {};
};

}  // namespace tenon::cpu

#endif  // TENON_TESTS_BACKENDS_CPU_RESOURCE_JOB_H_
