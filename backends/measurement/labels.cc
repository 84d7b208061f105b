#include "backends/measurement/labels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"

namespace tenon::measurement {
namespace {

constexpr char kField[] = "labels";

absl::Status CheckFinite(const std::vector<double>& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::isfinite(labels[i])) continue;
    return Error(Reason::kNotFinite, absl::StrCat("the label of row ", i, " is not finite"))
        .Field(kField)
        .Meta("row", i);
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<std::vector<int32_t>> Number(const std::vector<T>& labels, int64_t n) {
  if (static_cast<int64_t>(labels.size()) != n) {
    return Error(Reason::kShapeMismatch,
                 absl::StrCat("there are ", labels.size(), " labels for ", n, " rows"))
        .Field(kField)
        .Meta("labels", labels.size())
        .Meta("rows", n);
  }
  if constexpr (std::is_same_v<T, double>) TENON_RETURN_IF_ERROR(CheckFinite(labels));
  std::vector<T> classes = labels;
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  std::vector<int32_t> numbers;
  numbers.reserve(labels.size());
  for (const T& label : labels) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), label);
    numbers.push_back(static_cast<int32_t>(found - classes.begin()));
  }
  return numbers;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ClassNumbers(const Labels& labels, int64_t n) {
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&labels)) {
    return Number(*integers, n);
  }
  if (const auto* reals = std::get_if<std::vector<double>>(&labels)) return Number(*reals, n);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&labels)) return Number(*texts, n);
  return Error(Reason::kLabelsRequired, "a measure needs labels and none were given").Field(kField);
}

}  // namespace tenon::measurement
