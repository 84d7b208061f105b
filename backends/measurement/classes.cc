#include "backends/measurement/classes.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"

namespace tenon::measurement {

ClassMembers::ClassMembers(const std::vector<int32_t>& classes, int32_t n_classes)
    : rows_(classes.size()), first_(n_classes + int64_t{1}) {
  for (const int32_t c : classes) ++first_[c + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  for (size_t i = 0; i < classes.size(); ++i) {
    rows_[next[classes[i]]++] = static_cast<int32_t>(i);
  }
}

absl::Status BadLabels(const MeasureSpec& spec, const std::string& what) {
  return Error(Reason::kBadLabels, absl::StrCat(spec.info->id, ": ", what)).Field("labels");
}

absl::Status CheckTwoClasses(const MeasureSpec& spec, const MetricInput& input) {
  if (input.n_classes >= 2) return absl::OkStatus();
  return BadLabels(spec, "all rows have the same label, at least two classes are needed");
}

}  // namespace tenon::measurement
