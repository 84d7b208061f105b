#include "backends/schedule/compute_type.h"

#include "backends/core/error.h"

namespace tenon::schedule {

absl::StatusOr<DType> ComputeType(const ContractionRequest& request) {
  if (request.operands.empty()) {
    return Error(Reason::kBadExpression, "a contraction needs at least one operand")
        .Field("operands");
  }
  DType promoted = DType::kUnspecified;
  for (size_t i = 0; i < request.operands.size(); ++i) {
    const DType dtype = request.operands[i].dtype;
    if (!IsContractionDType(dtype)) {
      return Error(Reason::kUnsupportedDtype,
                   StrCat("operand ", i, " has type ", DTypeName(dtype),
                          "; a contraction takes float32, float64, complex64, complex128"))
          .Field(StrCat("operands[", i, "].spec.dtype"));
    }
    promoted = i == 0 ? dtype : PromoteDTypes(promoted, dtype);
  }
  if (!request.dtype.has_value()) return promoted;
  if (!IsContractionDType(*request.dtype)) {
    return Error(Reason::kUnsupportedDtype,
                 StrCat("cannot contract in ", DTypeName(*request.dtype)))
        .Field("result.dtype");
  }
  if (IsComplex(promoted) && !IsComplex(*request.dtype)) {
    return Error(Reason::kUnsupportedDtype, "operands are complex, the requested type is real")
        .Field("result.dtype");
  }
  return *request.dtype;
}

}  // namespace tenon::schedule
