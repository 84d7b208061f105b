// Between the engine's types and the messages of the wire.

#ifndef TENON_CLIENT_CPP_WIRE_H_
#define TENON_CLIENT_CPP_WIRE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/crc32c.h"
#include "backends/core/network.h"
#include "backends/core/tensor.h"
#include "tenon/tensor_view.h"
#include "tenon/v1/plan.pb.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::client {

// Tensors below this many bytes may stand inside the message that describes them.
constexpr int64_t kInlineLimitBytes = 65536;
// Bytes of one message that hold inline tensors; what else the message says has room above it.
constexpr int64_t kInlineBudgetBytes = int64_t{3} << 20;
// The largest message in either direction: 4 MiB of payload with its framing, and some room.
constexpr int kMaxMessageBytes = (4 << 20) + (64 << 10);
// More axes than any server allows; code that walks over axes may rely on the bound.
constexpr size_t kMaxRank = 4096;
constexpr int32_t kMinChunkBytes = 4096;
constexpr int32_t kMaxChunkBytes = (4 << 20) - 1024;

v1::TensorSpec ToWire(const TensorSpec& spec);

// A spec as the server told it; an error of the contract when it has no element type or no legal
// byte count.
absl::StatusOr<TensorSpec> FromWire(const v1::TensorSpec& spec);

v1::ExplicitPlan ToWire(const PathSteps& path, std::span<const std::string> sliced);

// Checks that the bytes are those of the spec: SHAPE_MISMATCH or OVERFLOW with `field`.
absl::Status CheckView(const TensorView& view, std::string_view field);

inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Cuts `bytes` into chunks in order, each written over `chunk` (whose set and operand stay) and
// given to `send`, which returns false to end it. True when all have been sent.
template <typename Send>
bool SendChunks(std::span<const std::byte> bytes, int32_t chunk_bytes, bool checksums,
                v1::TensorChunk* chunk, Send send) {
  for (size_t offset = 0; offset < bytes.size();) {
    const size_t size = std::min<size_t>(bytes.size() - offset, static_cast<size_t>(chunk_bytes));
    const auto part = bytes.subspan(offset, size);
    chunk->set_offset_bytes(static_cast<int64_t>(offset));
    chunk->mutable_data()->assign(AsText(part));
    if (checksums) chunk->set_crc32c(Crc32c(AsText(part)));
    if (!send()) return false;
    offset += size;
  }
  return true;
}

// Puts a tensor together from its chunks.
class TensorAssembler {
 public:
  // Allocates; EXCEEDS_MEMORY_BUDGET when there is no room.
  absl::Status Begin(const TensorSpec& spec);
  // The next chunk: in order, not past the end, with a right checksum if it has one.
  absl::Status Append(const v1::TensorChunk& chunk);
  // All bytes at once, for a tensor that came inline.
  absl::Status SetInline(std::string_view data);
  bool complete() const { return filled_bytes_ == tensor_.buffer.size_bytes(); }
  int64_t filled_bytes() const { return filled_bytes_; }
  int64_t size_bytes() const { return tensor_.buffer.size_bytes(); }
  // The bytes so far.
  std::span<const std::byte> bytes() const {
    return {tensor_.buffer.data(), static_cast<size_t>(filled_bytes_)};
  }
  Tensor Take() { return std::move(tensor_); }

 private:
  Tensor tensor_;
  int64_t filled_bytes_ = 0;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_WIRE_H_
