// Dense tensors: shape, checked sizes, and owned host memory.

#ifndef TENON_BACKENDS_CORE_TENSOR_H_
#define TENON_BACKENDS_CORE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/dtype.h"

namespace tenon {

// Element type and extents of a dense tensor in C order (last axis contiguous), little-endian.
// Rank 0 is a scalar with one element; an extent of 0 is legal and means no elements.
struct TensorSpec {
  DType dtype = DType::kFloat64;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec&) const = default;
};

// The product of `extents`: OVERFLOW when it does not fit in int64, SHAPE_MISMATCH when one is
// negative. A zero extent gives 0 whatever the others are.
absl::StatusOr<int64_t> CheckedElementCount(std::span<const int64_t> extents);

// Bytes of a tensor; errors as above.
absl::StatusOr<int64_t> CheckedByteCount(const TensorSpec& spec);

// Strides in elements of a C-order tensor. `shape` has an element count in int64; where it is 0,
// strides that would overflow are 0.
std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape);

// Owned, uninitialised host memory, aligned to 64 bytes; blocks from 2 MiB on ask for huge pages
// (feasibility measurements: 10-20 % on streaming kernels). Movable, not copyable. Not
// thread-safe beyond what plain memory is.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { Reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // EXCEEDS_MEMORY_BUDGET when the system refuses. `bytes` may be 0.
  static absl::StatusOr<Buffer> Allocate(int64_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  void Reset();

 private:
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

// A tensor with its memory.
struct Tensor {
  TensorSpec spec;
  Buffer buffer;

  // Uninitialised; OVERFLOW or EXCEEDS_MEMORY_BUDGET when the spec is too large.
  static absl::StatusOr<Tensor> Allocate(TensorSpec spec);
  // A deep copy; errors as Allocate.
  absl::StatusOr<Tensor> Clone() const;
};

// `tensor` converted to `dtype` (a copy; also when the type is the same). Targets are the
// contraction types; another one, and complex to real, is refused with UNSUPPORTED_DTYPE. Narrowing
// rounds to nearest; errors also as Allocate.
absl::StatusOr<Tensor> ConvertTensor(const Tensor& tensor, DType dtype);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_TENSOR_H_
