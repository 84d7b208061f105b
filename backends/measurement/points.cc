#include "backends/measurement/points.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"

namespace tenon::measurement {
namespace {

template <typename T>
absl::Status CheckFinite(const Tensor& tensor, const MatrixName& name) {
  const T* values = tensor.buffer.as<T>();
  const int64_t columns = tensor.spec.shape[1], count = tensor.spec.shape[0] * columns;
  for (int64_t p = 0; p < count; ++p) {
    if (std::isfinite(values[p])) continue;
    const int64_t row = p / columns, column = p % columns;
    return Error(Reason::kNotFinite, absl::StrCat(name.text, ": the value at row ", row,
                                                  ", column ", column, " is not finite"))
        .Field(name.field)
        .Meta("row", row)
        .Meta("column", column);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckShape(const TensorSpec& spec, int64_t rows, int64_t columns,
                        const MatrixName& name) {
  const bool fits = spec.shape.size() == 2 && spec.shape[0] == rows &&
                    (columns == 0 ? spec.shape[1] >= 1 : spec.shape[1] == columns);
  if (fits) return absl::OkStatus();
  std::string shape;
  for (const int64_t extent : spec.shape)
    absl::StrAppend(&shape, shape.empty() ? "" : " x ", extent);
  const std::string wanted = columns == 0 ? "at least 1" : absl::StrCat(columns);
  return Error(Reason::kShapeMismatch,
               absl::StrCat(name.text, ": the shape is ", shape.empty() ? "a scalar" : shape,
                            ", expected are ", rows, " rows and ", wanted, " columns"))
      .Field(name.field)
      .Meta("rows", rows);
}

absl::Status CheckAllFinite(const Tensor& matrix, const MatrixName& name) {
  if (matrix.spec.dtype == DType::kFloat32) return CheckFinite<float>(matrix, name);
  if (matrix.spec.dtype == DType::kFloat64) return CheckFinite<double>(matrix, name);
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Widen(const Tensor& matrix, DType compute_dtype, const MatrixName& name) {
  auto copy = ConvertTensor(matrix, compute_dtype);
  if (!copy.ok()) {
    const ErrorDetails details = GetErrorDetails(copy.status());
    return Error(details.reason, absl::StrCat(name.text, ": ", copy.status().message()))
        .Field(name.field);
  }
  TENON_RETURN_IF_ERROR(compute_dtype == DType::kFloat32 ? CheckFinite<float>(*copy, name)
                                                         : CheckFinite<double>(*copy, name));
  return copy;
}

}  // namespace tenon::measurement
