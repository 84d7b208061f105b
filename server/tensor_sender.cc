#include "server/tensor_sender.h"

#include <algorithm>

#include "backends/core/crc32c.h"

namespace tenon::server {

bool TensorSender::Next(v1::TensorChunk* chunk) {
  const int64_t left = tensor_->buffer.size_bytes() - sent_bytes_;
  if (left <= 0) return false;
  const int64_t bytes = std::min(left, options_.chunk_bytes);
  const auto* data = tensor_->buffer.as<char>() + sent_bytes_;
  chunk->set_set(options_.set);
  chunk->set_operand(options_.operand);
  chunk->set_offset_bytes(sent_bytes_);
  chunk->mutable_data()->assign(data, static_cast<size_t>(bytes));
  chunk->clear_crc32c();
  if (options_.checksums) {
    chunk->set_crc32c(ExtendCrc32c(0, data, static_cast<size_t>(bytes)));
    crc32c_ = ExtendCrc32c(crc32c_, data, static_cast<size_t>(bytes));
  }
  sent_bytes_ += bytes;
  return true;
}

}  // namespace tenon::server
