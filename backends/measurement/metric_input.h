// What scores are computed from, and the steps that several measures share.

#ifndef TENON_BACKENDS_MEASUREMENT_METRIC_INPUT_H_
#define TENON_BACKENDS_MEASUREMENT_METRIC_INPUT_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/resource.h"
#include "backends/measurement/scores.h"
#include "backends/plugin/abi.h"

namespace tenon::measurement {

inline constexpr int32_t kOriginal = TENON_RESOURCE_ORIGINAL;
inline constexpr int32_t kEmbedded = TENON_RESOURCE_EMBEDDED;
inline constexpr int32_t kPair = TENON_RESOURCE_PAIR;

// Everything is the session's and lives until the score is there.
struct MetricInput {
  int64_t n = 0;
  bool return_local = false;
  std::vector<tenon_resource> resources;          // at least the requirements, or a larger k
  const std::vector<int32_t>* classes = nullptr;  // class numbers, if any measure needs them
  int32_t n_classes = 0;
  // The points in the compute type; `data` is null for a space that the measure does not ask for.
  tenon_matrix original = {}, embedded = {};
  // The points came as float32: what follows the input's arithmetic computes in float32.
  bool original_is_single = false, embedded_is_single = false;
  // Distances of the original space that the caller gave (n x n); `data` is null without any.
  tenon_matrix precomputed = {};
  // Threads and cancellation of the call; never null.
  const Parallel* parallel = nullptr;
};

// Points as rows of doubles, whatever the compute type is.
class PointsView {
 public:
  explicit PointsView(const tenon_matrix& matrix) : matrix_(matrix) {}
  int64_t rows() const { return matrix_.rows; }
  int64_t columns() const { return matrix_.columns; }
  double At(int64_t row, int64_t column) const {
    const int64_t position = row * matrix_.columns + column;
    return matrix_.dtype == TENON_DTYPE_FLOAT32
               ? double{static_cast<const float*>(matrix_.data)[position]}
               : static_cast<const double*>(matrix_.data)[position];
  }
  // A row's values: where they lie, or, of floats, copied to `scratch` of columns() values.
  const double* Row(int64_t row, double* scratch) const {
    const int64_t first = row * matrix_.columns;
    if (matrix_.dtype != TENON_DTYPE_FLOAT32) {
      return static_cast<const double*>(matrix_.data) + first;
    }
    std::copy_n(static_cast<const float*>(matrix_.data) + first, matrix_.columns, scratch);
    return scratch;
  }

 private:
  tenon_matrix matrix_;
};

// The resource that serves `key`: the same one, or with a larger k.
const tenon_resource& Find(const MetricInput& input, const ResourceKey& key);

template <typename T>
const T& Read(const MetricInput& input, const ResourceKey& key) {
  return *static_cast<const T*>(Find(input, key).data);
}

// Rows of int32 of which the first k of each are read.
struct IndexTable {
  const int32_t* data;
  int64_t stride;
  const int32_t* Row(int64_t i) const { return data + i * stride; }
};

// The k nearest neighbours of every row, needs KNN of that space.
IndexTable Neighbors(const MetricInput& input, int32_t space, int64_t k);

// half 0: original ranks of embedded neighbours; half 1: the reverse. Needs SELECTED_RANKS.
IndexTable SelectedRanks(const MetricInput& input, int64_t k, int64_t half);

// Stores the mean of local(i) over the rows under output `number`, and the values if wanted.
void StoreMean(const MeasureSpec& spec, const MetricInput& input, size_t number,
               const std::function<double(int64_t i)>& local, MeasureScores& result);

// The only score of a measure. UNDEFINED_SCORE if it is not finite.
absl::StatusOr<MeasureScores> OneScore(const MeasureSpec& spec, double value);

// UNDEFINED_SCORE with field "dataset" or "projection", by `space`:
// "<measure> is not defined: <what>".
absl::Status Undefined(const MeasureSpec& spec, int32_t space, const std::string& what);
absl::Status ZeroDistances(const MeasureSpec& spec, int32_t space);
absl::Status EqualDistances(const MeasureSpec& spec, int32_t space, double distance);
// `largest` is the largest distance of the space; if that is finite, a sum of squares is not.
absl::Status Overflow(const MeasureSpec& spec, int32_t space, double largest);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_METRIC_INPUT_H_
