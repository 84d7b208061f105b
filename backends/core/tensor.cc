#include "backends/core/tensor.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

#include "backends/core/error.h"
#include "backends/core/memory.h"

namespace tenon {
namespace {

template <typename From, typename To>
void ConvertElements(const Tensor& from, Tensor& to, int64_t count) {
  const From* source = from.buffer.as<From>();
  To* target = to.buffer.as<To>();
  std::transform(source, source + count, target, [](const From& x) { return To(x); });
}

template <typename From>
absl::Status ConvertFrom(const Tensor& from, Tensor& to, int64_t count) {
  constexpr bool from_complex = !std::is_arithmetic_v<From>;
  switch (to.spec.dtype) {
    case DType::kComplex64:
      ConvertElements<From, std::complex<float>>(from, to, count);
      return absl::OkStatus();
    case DType::kComplex128:
      ConvertElements<From, std::complex<double>>(from, to, count);
      return absl::OkStatus();
    default:
      break;
  }
  if constexpr (!from_complex) {
    if (to.spec.dtype == DType::kFloat32) {
      ConvertElements<From, float>(from, to, count);
      return absl::OkStatus();
    }
    if (to.spec.dtype == DType::kFloat64) {
      ConvertElements<From, double>(from, to, count);
      return absl::OkStatus();
    }
  }
  return Error(Reason::kUnsupportedDtype, StrCat("cannot convert ", DTypeName(from.spec.dtype),
                                                 " to ", DTypeName(to.spec.dtype)));
}

}  // namespace

absl::StatusOr<int64_t> CheckedElementCount(std::span<const int64_t> extents) {
  for (const int64_t extent : extents) {
    if (extent < 0) {
      return Error(Reason::kShapeMismatch, StrCat("extent ", extent, " is negative"));
    }
  }
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return 0;
  int64_t count = 1;
  for (const int64_t extent : extents) {
    if (__builtin_mul_overflow(count, extent, &count)) {
      return Error(Reason::kOverflow, "the number of elements does not fit in 63 bits");
    }
  }
  return count;
}

absl::StatusOr<int64_t> CheckedByteCount(const TensorSpec& spec) {
  TENON_ASSIGN_OR_RETURN(int64_t count, CheckedElementCount(spec.shape));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count, DTypeSize(spec.dtype), &bytes)) {
    return Error(Reason::kOverflow, "the number of bytes does not fit in 63 bits");
  }
  return bytes;
}

std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    // Only a tensor with an extent of 0 can have such others; nothing of it is ever addressed.
    if (__builtin_mul_overflow(stride, shape[axis], &stride)) stride = 0;
  }
  return strides;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Reset();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

absl::StatusOr<Buffer> Buffer::Allocate(int64_t bytes) {
  Buffer buffer;
  void* data = AllocateMemory(bytes, kCacheLineBytes);
  if (data == nullptr) {
    return Error(Reason::kExceedsMemoryBudget,
                 StrCat("the system refused ", bytes, " bytes of memory"))
        .Meta("requested_bytes", bytes);
  }
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_bytes_ = bytes;
  return buffer;
}

void Buffer::Reset() {
  ReleaseMemory(data_, size_bytes_);
  data_ = nullptr;
  size_bytes_ = 0;
}

absl::StatusOr<Tensor> Tensor::Allocate(TensorSpec spec) {
  TENON_ASSIGN_OR_RETURN(int64_t bytes, CheckedByteCount(spec));
  TENON_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(bytes));
  return Tensor{std::move(spec), std::move(buffer)};
}

absl::StatusOr<Tensor> Tensor::Clone() const {
  TENON_ASSIGN_OR_RETURN(Tensor copy, Allocate(spec));
  if (buffer.size_bytes() > 0) {
    std::memcpy(copy.buffer.data(), buffer.data(), buffer.size_bytes());
  }
  return copy;
}

absl::StatusOr<Tensor> ConvertTensor(const Tensor& tensor, DType dtype) {
  if (tensor.spec.dtype == dtype) return tensor.Clone();
  TENON_ASSIGN_OR_RETURN(Tensor result, Tensor::Allocate({dtype, tensor.spec.shape}));
  TENON_ASSIGN_OR_RETURN(int64_t count, CheckedElementCount(tensor.spec.shape));
  switch (tensor.spec.dtype) {
#define TENON_CONVERT_FROM(id, type)                                   \
  case DType::id:                                                      \
    TENON_RETURN_IF_ERROR((ConvertFrom<type>(tensor, result, count))); \
    return result;
    TENON_CONVERT_FROM(kBool, uint8_t)
    TENON_CONVERT_FROM(kInt8, int8_t)
    TENON_CONVERT_FROM(kInt16, int16_t)
    TENON_CONVERT_FROM(kInt32, int32_t)
    TENON_CONVERT_FROM(kInt64, int64_t)
    TENON_CONVERT_FROM(kUint8, uint8_t)
    TENON_CONVERT_FROM(kUint16, uint16_t)
    TENON_CONVERT_FROM(kUint32, uint32_t)
    TENON_CONVERT_FROM(kUint64, uint64_t)
    TENON_CONVERT_FROM(kFloat32, float)
    TENON_CONVERT_FROM(kFloat64, double)
    TENON_CONVERT_FROM(kComplex64, std::complex<float>)
    TENON_CONVERT_FROM(kComplex128, std::complex<double>)
#undef TENON_CONVERT_FROM
    case DType::kUnspecified:
      break;
  }
  return Error(Reason::kUnsupportedDtype, "cannot convert a tensor of unspecified type");
}

}  // namespace tenon
