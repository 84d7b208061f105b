// Labelled points to score, and some that a few lines of any language make again, for scores
// recorded from peers.

#ifndef TENON_TESTS_BACKENDS_MEASUREMENT_LABELLED_POINTS_H_
#define TENON_TESTS_BACKENDS_MEASUREMENT_LABELLED_POINTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/measurement/labels.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/scores.h"
#include "backends/measurement/session.h"
#include "tests/backends/measurement/measurement_fixture.h"

namespace tenon::testing {

// In NumPy: i*7 + i//5 modulo `classes` below ten of them, i*13 modulo `classes` from ten on.
inline int64_t LabelOf(int64_t i, int64_t classes) {
  return (classes < 10 ? i * 7 + i / 5 : i * 13) % classes;
}

inline std::vector<int64_t> MakeLabels(int64_t n, int64_t classes) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < n; ++i) labels.push_back(LabelOf(i, classes));
  return labels;
}

// In NumPy, with a column i and a row c of indices:
//   points = ((i*7919*(c+3) + i*i*31 + c*104729 + salt*15485863) % 1000003) / 1000003.0 - 0.5
//   points[:, 0] += shift * label
inline Tensor MakePoints(int64_t n, int64_t columns, int64_t salt, int64_t classes, double shift,
                         DType dtype = DType::kFloat64) {
  Tensor points = *Tensor::Allocate({DType::kFloat64, {n, columns}});
  double* out = points.buffer.as<double>();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t hash = i * 7919 * (c + 3) + i * i * 31 + c * 104729 + salt * 15485863;
      double value = static_cast<double>(hash % 1000003) / 1000003.0 - 0.5;
      if (c == 0) value += shift * static_cast<double>(LabelOf(i, classes));
      *out++ = value;
    }
  }
  return dtype == DType::kFloat64 ? std::move(points) : *ConvertTensor(points, dtype);
}

using Points = std::shared_ptr<const Tensor>;

inline Points Share(Tensor tensor) { return std::make_shared<const Tensor>(std::move(tensor)); }
inline Points Rows(std::initializer_list<std::initializer_list<double>> rows) {
  return Share(MatrixOf(rows));
}

// A data set, a projection and labels.
struct LabelledCase {
  Points original, projection;
  std::vector<int64_t> labels;
};

inline LabelledCase MakeCase(int64_t n, int64_t original_columns, int64_t embedded_columns,
                             int64_t classes, DType dtype = DType::kFloat64) {
  const bool few = classes < 10;
  return {Share(MakePoints(n, original_columns, 1, classes, few ? 0.3 : 0.01, dtype)),
          Share(MakePoints(n, embedded_columns, 2, classes, few ? 0.2 : 0.01, dtype)),
          MakeLabels(n, classes)};
}

using Parameters = std::map<std::string, measurement::ParameterValue>;

inline absl::StatusOr<measurement::MeasureScores> ScoresOf(
    const LabelledCase& c, const std::string& id, const Parameters& parameters = {},
    measurement::SessionOptions options = {}) {
  ResourceProvider provider;
  auto result = Score(provider, {measurement::RawSpec{id, parameters}}, *c.original, *c.projection,
                      std::move(options), measurement::Labels(c.labels));
  if (!result.ok()) return result.status();
  return std::move(result->scores.specs.at(0));
}

inline void ExpectScore(const absl::StatusOr<measurement::MeasureScores>& got,
                        const std::string& key, double want, double tolerance = 1e-13) {
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(got->scores.contains(key)) << key;
  EXPECT_NEAR(got->scores.at(key), want, tolerance) << key;
}

// The same bits from one, two and five threads.
inline void ExpectThreadsDoNotMatter(const LabelledCase& c, const std::string& id,
                                     const Parameters& parameters) {
  measurement::SessionOptions options;
  options.threads = 1;
  const auto one = ScoresOf(c, id, parameters, options);
  ASSERT_TRUE(one.ok()) << one.status();
  for (const int threads : {2, 5}) {
    options.threads = threads;
    const auto many = ScoresOf(c, id, parameters, options);
    ASSERT_TRUE(many.ok()) << many.status();
    EXPECT_EQ(one->scores, many->scores) << id;
  }
}

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_MEASUREMENT_LABELLED_POINTS_H_
