// A chunk of a tensor whose bytes lie somewhere else.

#ifndef TENON_SERVER_CHUNK_VIEW_H_
#define TENON_SERVER_CHUNK_VIEW_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::server {

// The fields of v1::TensorChunk. Whoever takes chunks takes them like this, so that the same checks
// hold for a parsed one and for one that is still in pieces as the network brought it. Valid as
// long as the bytes are.
struct ChunkView {
  ChunkView() = default;
  ChunkView(const v1::TensorChunk& chunk)  // NOLINT(google-explicit-constructor)
      : set(chunk.set()), operand(chunk.operand()), offset_bytes(chunk.offset_bytes()) {
    if (!chunk.data().empty()) data.push_back(chunk.data());
    if (chunk.has_crc32c()) crc32c = chunk.crc32c();
  }

  int64_t size_bytes() const {
    int64_t bytes = 0;
    for (const std::string_view piece : data) bytes += static_cast<int64_t>(piece.size());
    return bytes;
  }

  int64_t set = 0;
  int32_t operand = 0;
  int64_t offset_bytes = 0;
  absl::InlinedVector<std::string_view, 1> data;  // one after the other; none is empty
  std::optional<uint32_t> crc32c;                 // of all of them
};

}  // namespace tenon::server

#endif  // TENON_SERVER_CHUNK_VIEW_H_
