// Tensors in the caller's memory.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_TENSOR_VIEW_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_TENSOR_VIEW_H_

#include <cstddef>
#include <span>

#include "backends/core/tensor.h"

namespace tenon::client {

// A dense tensor in C order whose bytes belong to somebody else. They are read in place, without a
// copy, and must stay as they are for as long as the function that takes the view says.
struct TensorView {
  TensorSpec spec;
  std::span<const std::byte> bytes;

  // Of no element type: nothing is given.
  TensorView() { spec.dtype = DType::kUnspecified; }
  TensorView(TensorSpec tensor_spec, std::span<const std::byte> tensor_bytes)
      : spec(std::move(tensor_spec)), bytes(tensor_bytes) {}
  TensorView(const Tensor& tensor)  // NOLINT(google-explicit-constructor)
      : spec(tensor.spec),
        bytes(tensor.buffer.data(), static_cast<size_t>(tensor.buffer.size_bytes())) {}
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_TENSOR_VIEW_H_
