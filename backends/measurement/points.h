// Matrices of points as they come from a caller: checks, and copies in the compute type.

#ifndef TENON_BACKENDS_MEASUREMENT_POINTS_H_
#define TENON_BACKENDS_MEASUREMENT_POINTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/tensor.h"

namespace tenon::measurement {

// The fields of errors and, in messages, the short names that the literature uses.
struct MatrixName {
  const char* field;
  const char* text;
};
inline constexpr MatrixName kDataset = {"dataset", "data set (hd)"};
inline constexpr MatrixName kPrecomputed = {"precomputed_handle", "matrix of distances"};
inline constexpr MatrixName kProjection = {"projection", "projection (ld)"};

// SHAPE_MISMATCH unless there are so many rows and columns (0: any number from 1 on).
absl::Status CheckShape(const TensorSpec& spec, int64_t rows, int64_t columns,
                        const MatrixName& name);

// NOT_FINITE naming the first row and column.
absl::Status CheckAllFinite(const Tensor& matrix, const MatrixName& name);

// The copy of `matrix`, whose shape is right, in the type that distances are computed in. Errors of
// ConvertTensor, NOT_FINITE.
absl::StatusOr<Tensor> Widen(const Tensor& matrix, DType compute_dtype, const MatrixName& name);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_POINTS_H_
