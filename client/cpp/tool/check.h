// Comparing a result with the reference values of a corpus.

#ifndef TENON_CLIENT_CPP_TOOL_CHECK_H_
#define TENON_CLIENT_CPP_TOOL_CHECK_H_

#include <string>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"

namespace tenon::tool {

// How a result compares with its reference.
struct CheckOutcome {
  std::string reference;  // the reference value of a scalar; empty for a tensor
  int64_t compared = 0;   // elements that were compared
  // Largest difference of an element over the largest magnitude of the reference.
  double relative_difference = 0;
  double tolerance = 0;  // by the element type
  bool passed() const { return relative_difference <= tolerance; }
};

// Whether CheckResult would find an entry; its errors. For before the work.
absl::Status CheckReference(const std::string& path, const std::string& name);

// Looks `name` up in a file of references {NAME: {"float64": {...}, "complex128": {...}}} and
// compares the elements that it tells: all ("values") or a sample ("sample_positions",
// "sample_values"). NOT_FOUND without such an entry, BAD_PARAMETER for a malformed file,
// SHAPE_MISMATCH when the shapes differ.
absl::StatusOr<CheckOutcome> CheckResult(const std::string& path, const std::string& name,
                                         const Tensor& result);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_CHECK_H_
