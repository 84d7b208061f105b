// Element types of tensors and matrices.

#ifndef TENON_BACKENDS_CORE_DTYPE_H_
#define TENON_BACKENDS_CORE_DTYPE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenon {

// The numbers are those of tenon.v1.DataType and of tenon_dtype in backends/plugin/abi.h.
enum class DType : int32_t {
  kUnspecified = 0,
  kBool = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kUint16 = 7,
  kUint32 = 8,
  kUint64 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kComplex64 = 12,   // two float32: real, imaginary
  kComplex128 = 13,  // two float64: real, imaginary
};

// Bytes of one element; 0 for kUnspecified.
int64_t DTypeSize(DType dtype);

// "float32", "complex64", ... as NumPy spells them; "unspecified" for kUnspecified.
std::string_view DTypeName(DType dtype);

// The inverse of DTypeName.
absl::StatusOr<DType> DTypeFromName(std::string_view name);

// Whether a contraction can be done in `dtype`: float32, float64, complex64, complex128.
bool IsContractionDType(DType dtype);

bool IsComplex(DType dtype);

// The type of a product of both, as NumPy promotes: float32 * complex128 = complex128,
// float64 * complex64 = complex128. Both must be contraction types.
DType PromoteDTypes(DType a, DType b);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_DTYPE_H_
