// Puts one tensor together from the frames of a stream.

#ifndef TENON_SERVER_TENSOR_RECEIVER_H_
#define TENON_SERVER_TENSOR_RECEIVER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "server/chunk_view.h"

namespace tenon::server {

// The memory is taken once, by Create, and filled in order; Restart reuses it. Errors' fields are
// relative to the chunk ("offset_bytes", "data", "crc32c"); those of AcceptAll name none, since the
// caller knows the name of the bytes' field. Movable; not thread-safe.
class TensorReceiver {
 public:
  // Receives nothing; complete.
  TensorReceiver() = default;
  // Errors as Tensor::Allocate. A tensor of no bytes is complete at once.
  static absl::StatusOr<TensorReceiver> Create(TensorSpec spec);

  // The next bytes. CHUNK_ORDER for a gap, an overlap or a negative offset; CHUNK_OVERFLOW for
  // bytes past the end and for a chunk above `max_chunk_bytes`; MISSING_FIELD for a chunk without
  // bytes; CHECKSUM_MISMATCH when its checksum is given and wrong. A chunk that is refused leaves
  // no trace. The chunk's set and operand are the caller's to check.
  absl::Status Accept(const ChunkView& chunk, int64_t max_chunk_bytes);
  // All bytes at once. SHAPE_MISMATCH when they are not as many as the spec says (metadata
  // expected_bytes, actual_bytes); CHUNK_ORDER when some have come before.
  absl::Status AcceptAll(std::string_view bytes);
  // The same without a copy: the bytes stay where they are until Private, Take or Restart. Somebody
  // else may change them at any time.
  absl::Status AcceptShared(const std::byte* data, int64_t bytes);

  bool complete() const { return received_bytes_ == tensor_.buffer.size_bytes(); }
  int64_t received_bytes() const { return received_bytes_; }
  int64_t size_bytes() const { return tensor_.buffer.size_bytes(); }
  const TensorSpec& spec() const { return tensor_.spec; }
  // Without bytes that are shared.
  const Tensor& tensor() const { return tensor_; }
  // The bytes, wherever they are.
  const std::byte* data() const { return shared_ != nullptr ? shared_ : tensor_.buffer.data(); }
  // The tensor with bytes of its own: copies those that are shared.
  const Tensor& Private();

  // The tensor, once complete. The receiver is then as if default-constructed.
  Tensor Take();
  // Forgets what was received and keeps the memory.
  void Restart() {
    received_bytes_ = 0;
    shared_ = nullptr;
  }

 private:
  explicit TensorReceiver(Tensor tensor) : tensor_(std::move(tensor)) {}
  absl::Status CheckAll(int64_t bytes) const;
  void Append(std::string_view bytes);

  Tensor tensor_;
  const std::byte* shared_ = nullptr;  // where the bytes are, if not in tensor_
  int64_t received_bytes_ = 0;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_TENSOR_RECEIVER_H_
