// Cuts a tensor into the chunks of a stream.

#ifndef TENON_SERVER_TENSOR_SENDER_H_
#define TENON_SERVER_TENSOR_SENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "backends/core/tensor.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::server {

struct ChunkOptions {
  int64_t set = 0;
  int32_t operand = 0;
  int64_t chunk_bytes = int64_t{1} << 20;  // of data, >= 1
  bool checksums = false;
};

// Not thread-safe. Holds a share of the tensor, which nobody may change meanwhile.
class TensorSender {
 public:
  TensorSender(std::shared_ptr<const Tensor> tensor, const ChunkOptions& options)
      : tensor_(std::move(tensor)), options_(options) {}

  // Fills the next chunk, overwriting what it held; false when the tensor has been sent (at once
  // for a tensor of no bytes).
  bool Next(v1::TensorChunk* chunk);
  // The checksum of everything cut so far; 0 unless checksums are on.
  uint32_t crc32c() const { return crc32c_; }

 private:
  const std::shared_ptr<const Tensor> tensor_;
  const ChunkOptions options_;
  int64_t sent_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// A producer for BidiStream::Send: one frame `chunk` of `Response` per call.
template <typename Response>
std::function<bool(Response*)> ChunkProducer(std::shared_ptr<TensorSender> sender) {
  return [sender = std::move(sender)](Response* frame) {
    return sender->Next(frame->mutable_chunk());
  };
}

}  // namespace tenon::server

#endif  // TENON_SERVER_TENSOR_SENDER_H_
