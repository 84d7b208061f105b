// A .npy file that is read in two steps: its header, then its data into memory that is there.

#ifndef TENON_BACKENDS_CORE_NPY_FILE_H_
#define TENON_BACKENDS_CORE_NPY_FILE_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/npy.h"
#include "backends/core/tensor.h"

namespace tenon {

// Movable; not thread-safe. Takes no memory of the array's size.
class NpyFile {
 public:
  // Takes over `descriptor`. Reads the header, at most its first 16 KiB, and compares the file's
  // length with it. Errors as ParseNpy, also for what is no regular file.
  static absl::StatusOr<NpyFile> Open(int descriptor);
  ~NpyFile();
  NpyFile(NpyFile&& other) noexcept { *this = std::move(other); }
  NpyFile& operator=(NpyFile&& other) noexcept;

  const TensorSpec& spec() const { return header_.spec; }
  // Fills `tensor`, which has this spec(), in C order; bools become 0 or 1. BAD_PARAMETER when the
  // file has become shorter meanwhile or can't be read; the token's. Arrays in Fortran order have
  // at most two axes (UNSUPPORTED_DTYPE otherwise).
  absl::Status Read(Tensor* tensor, const CancelToken* cancel = nullptr) const;

 private:
  NpyFile() = default;
  absl::Status ReadAt(int64_t offset, std::byte* to, int64_t bytes,
                      const CancelToken* cancel) const;
  absl::Status ReadTransposed(Tensor* tensor, const CancelToken* cancel) const;

  int descriptor_ = -1;
  NpyHeader header_;
};

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_NPY_FILE_H_
