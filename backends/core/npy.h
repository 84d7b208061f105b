// Reads and writes NumPy's .npy files (format versions 1.0 to 3.0).

#ifndef TENON_BACKENDS_CORE_NPY_H_
#define TENON_BACKENDS_CORE_NPY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/tensor.h"

namespace tenon {

// Parses the bytes of a .npy file. Bool, integer, float32/64 and complex64/128 arrays, little-
// endian (or one-byte), C or Fortran order (the result is always C order). Anything else, a
// malformed header, or a wrong number of bytes is BAD_PARAMETER; element types that have no DType
// (float16, structured, object) are UNSUPPORTED_DTYPE. The field says which part is at fault:
// magic, version, header, descr, fortran_order, shape or data. Bools other than 0 become 1; more
// than 1024 axes are refused. Never reads outside `bytes`, and takes memory for the array only once
// `bytes` is known to hold all of it.
absl::StatusOr<Tensor> ParseNpy(std::string_view bytes);

// What stands before the data of a .npy file.
struct NpyHeader {
  TensorSpec spec;
  bool fortran_order = false;
  int64_t data_offset = 0;  // in bytes
};

// Reads the beginning of a .npy file, which is all of its header and may be more. Errors as
// ParseNpy; its number of bytes fits in 63 bits.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes);

// BAD_PARAMETER with field "data" unless the array of `header` has `bytes` bytes.
absl::Status CheckNpyDataSize(const NpyHeader& header, int64_t bytes);

// Reads a file; errors as ReadFile (backends/core/file.h) and ParseNpy. Messages carry the path.
absl::StatusOr<Tensor> ReadNpyFile(const std::string& path);

// The .npy form (C order; version 1.0, or 2.0 for shapes too long for it) of a tensor. The caller
// answers for room for a second copy; WriteNpyFile needs none.
std::string FormatNpy(const Tensor& tensor);

// Writes a file (to a temporary name, then renamed); errors as WriteFile.
absl::Status WriteNpyFile(const std::string& path, const Tensor& tensor);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_NPY_H_
