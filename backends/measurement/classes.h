// The rows of each class, and what measures of classes ask of the labels.

#ifndef TENON_BACKENDS_MEASUREMENT_CLASSES_H_
#define TENON_BACKENDS_MEASUREMENT_CLASSES_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/measurement/metric_input.h"
#include "backends/measurement/registry.h"

namespace tenon::measurement {

// Rows in the order of their class numbers, ascending within a class.
class ClassMembers {
 public:
  // `classes`: class number of each row, [0, n_classes).
  ClassMembers(const std::vector<int32_t>& classes, int32_t n_classes);
  explicit ClassMembers(const MetricInput& input) : ClassMembers(*input.classes, input.n_classes) {}

  int64_t classes() const { return static_cast<int64_t>(first_.size()) - 1; }
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t First(int64_t c) const { return first_[c]; }  // position of the class in Rows()
  int64_t Size(int64_t c) const { return first_[c + 1] - first_[c]; }
  int64_t ClassAt(int64_t position) const {  // of the row at a position of Rows()
    return std::upper_bound(first_.begin(), first_.end(), position) - first_.begin() - 1;
  }
  std::span<const int32_t> Rows() const { return rows_; }
  std::span<const int32_t> Of(int64_t c) const {
    return std::span(rows_).subspan(first_[c], Size(c));
  }

  // Of n rows, which may have as many classes.
  static int64_t Bytes(int64_t n) { return n * int64_t{sizeof(int32_t) + sizeof(int64_t)}; }

 private:
  std::vector<int32_t> rows_;
  std::vector<int64_t> first_;
};

// "<measure>: <what>", BAD_LABELS with field "labels".
absl::Status BadLabels(const MeasureSpec& spec, const std::string& what);

// BAD_LABELS unless there are two classes or more.
absl::Status CheckTwoClasses(const MeasureSpec& spec, const MetricInput& input);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_CLASSES_H_
