// Class labels of the rows.

#ifndef TENON_BACKENDS_MEASUREMENT_LABELS_H_
#define TENON_BACKENDS_MEASUREMENT_LABELS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::measurement {

using Labels = std::variant<std::monostate, std::vector<int64_t>, std::vector<double>,
                            std::vector<std::string>>;

// The number of each row's class in ascending order of the labels, from 0. Errors, all with field
// "labels": LABELS_REQUIRED (none given), SHAPE_MISMATCH (not n of them), NOT_FINITE.
absl::StatusOr<std::vector<int32_t>> ClassNumbers(const Labels& labels, int64_t n);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_LABELS_H_
