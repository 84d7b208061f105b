// The element type that a contraction is done in.

#ifndef TENON_BACKENDS_SCHEDULE_COMPUTE_TYPE_H_
#define TENON_BACKENDS_SCHEDULE_COMPUTE_TYPE_H_

#include "absl/status/statusor.h"
#include "backends/core/dtype.h"
#include "backends/schedule/contraction_job.h"

namespace tenon::schedule {

// The type the operands promote to, or the one the request names if it can hold that.
// BAD_EXPRESSION without operands; UNSUPPORTED_DTYPE naming the operand's or the result's field.
absl::StatusOr<DType> ComputeType(const ContractionRequest& request);

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_COMPUTE_TYPE_H_
