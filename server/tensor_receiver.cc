#include "server/tensor_receiver.h"

#include <cstring>
#include <utility>

#include "backends/core/crc32c.h"
#include "backends/core/error.h"

namespace tenon::server {

absl::StatusOr<TensorReceiver> TensorReceiver::Create(TensorSpec spec) {
  TENON_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(std::move(spec)));
  return TensorReceiver(std::move(tensor));
}

absl::Status TensorReceiver::Accept(const ChunkView& chunk, int64_t max_chunk_bytes) {
  const int64_t bytes = chunk.size_bytes();
  if (bytes == 0) return Error(Reason::kMissingField, "the chunk has no bytes").Field("data");
  if (chunk.offset_bytes != received_bytes_) {
    return Error(Reason::kChunkOrder, StrCat("the chunk starts at byte ", chunk.offset_bytes,
                                             "; expected ", received_bytes_, " of ", size_bytes()))
        .Field("offset_bytes")
        .Meta("expected_offset_bytes", received_bytes_)
        .Meta("actual_offset_bytes", chunk.offset_bytes);
  }
  if (bytes > max_chunk_bytes) {
    return Error(Reason::kChunkOverflow, StrCat("the chunk has ", bytes, " bytes; at most ",
                                                max_chunk_bytes, " are granted"))
        .Field("data")
        .Meta("limit_bytes", max_chunk_bytes)
        .Meta("actual_bytes", bytes);
  }
  if (bytes > size_bytes() - received_bytes_) {
    return Error(Reason::kChunkOverflow, StrCat("the chunk reaches byte ", received_bytes_ + bytes,
                                                "; the tensor has only ", size_bytes()))
        .Field("data")
        .Meta("expected_bytes", size_bytes())
        .Meta("actual_bytes", received_bytes_ + bytes);
  }
  if (chunk.crc32c.has_value()) {
    uint32_t actual = 0;
    for (const std::string_view piece : chunk.data) {
      actual = ExtendCrc32c(actual, piece.data(), piece.size());
    }
    if (actual != *chunk.crc32c) {
      return Error(Reason::kChecksumMismatch,
                   StrCat("the chunk at byte ", received_bytes_, " has the CRC-32C ", actual,
                          ", but ", *chunk.crc32c, " was announced"))
          .Field("crc32c")
          .Meta("expected_crc32c", *chunk.crc32c)
          .Meta("actual_crc32c", actual);
    }
  }
  for (const std::string_view piece : chunk.data) Append(piece);
  return absl::OkStatus();
}

absl::Status TensorReceiver::CheckAll(int64_t bytes) const {
  if (received_bytes_ != 0) {
    return Error(Reason::kChunkOrder,
                 StrCat(received_bytes_, " bytes of this tensor have come before"))
        .Meta("received_bytes", received_bytes_);
  }
  if (bytes == size_bytes()) return absl::OkStatus();
  return Error(Reason::kShapeMismatch, StrCat("the tensor has ", size_bytes(),
                                              " bytes by its type and shape, but ", bytes, " came"))
      .Meta("expected_bytes", size_bytes())
      .Meta("actual_bytes", bytes);
}

absl::Status TensorReceiver::AcceptAll(std::string_view bytes) {
  TENON_RETURN_IF_ERROR(CheckAll(static_cast<int64_t>(bytes.size())));
  Append(bytes);
  return absl::OkStatus();
}

absl::Status TensorReceiver::AcceptShared(const std::byte* data, int64_t bytes) {
  TENON_RETURN_IF_ERROR(CheckAll(bytes));
  shared_ = data;
  received_bytes_ = bytes;
  return absl::OkStatus();
}

const Tensor& TensorReceiver::Private() {
  if (shared_ != nullptr) {
    std::memcpy(tensor_.buffer.data(), shared_, static_cast<size_t>(size_bytes()));
    shared_ = nullptr;
  }
  return tensor_;
}

void TensorReceiver::Append(std::string_view bytes) {
  if (bytes.empty()) return;
  std::memcpy(tensor_.buffer.data() + received_bytes_, bytes.data(), bytes.size());
  received_bytes_ += static_cast<int64_t>(bytes.size());
}

Tensor TensorReceiver::Take() {
  Private();
  received_bytes_ = 0;
  return std::exchange(tensor_, Tensor());
}

}  // namespace tenon::server
