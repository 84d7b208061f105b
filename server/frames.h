// Frames of streams as bytes: parsing, serialising, and the ends that gRPC's reactors do not offer.

#ifndef TENON_SERVER_FRAMES_H_
#define TENON_SERVER_FRAMES_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>  // how messages of protobuf become bytes

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/chunk_view.h"

namespace tenon::server {

using RawBidiReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// MALFORMED_FRAME for the frame of this number, counted from 1, that has so many bytes.
absl::Status MalformedFrame(int64_t number, int64_t bytes);
// INTERNAL.
absl::Status UnserializableFrame();

// Parses frame number `number` out of `bytes`, which are given back at once.
template <typename Message>
absl::Status ParseFrame(int64_t number, grpc::ByteBuffer* bytes, Message* frame) {
  const auto size = static_cast<int64_t>(bytes->Length());
  if (grpc::SerializationTraits<Message>::Deserialize(bytes, frame).ok()) return absl::OkStatus();
  return MalformedFrame(number, size);
}

// A frame that is one chunk of a tensor, split without protobuf: parsing would copy the data.
struct ChunkFrame {
  ChunkFrame() = default;
  // No copies: a short slice holds its bytes inside, and the views would stay with the original.
  ChunkFrame(ChunkFrame&&) = default;
  ChunkFrame& operator=(ChunkFrame&&) = default;

  int field = 0;                    // of the request, that holds the chunk
  ChunkView chunk;                  // views into the slices
  std::vector<grpc::Slice> slices;  // the frame
};

// Splits a frame that consists of `pieces` and is exactly one v1::TensorChunk in one of `fields`
// (numbers below 16) of the request, as everybody writes it: each field at most once, numbers in
// their shortest form. Protobuf takes whatever this takes and reads the same; the reverse does not
// hold. Absent: protobuf must decide, also on what is wrong. `slices` stays empty.
std::optional<ChunkFrame> SplitChunk(std::span<const std::string_view> pieces,
                                     std::span<const int> fields);

// The same for a frame as it came, which is then given back. Leaves small ones, where a copy costs
// less than the pieces, to protobuf. `bytes` stays as it is when the result is absent.
std::optional<ChunkFrame> SplitChunk(grpc::ByteBuffer* bytes, std::span<const int> fields);

template <typename Message>
absl::Status SerializeFrame(const Message& frame, grpc::ByteBuffer* bytes) {
  bool owned = false;
  if (grpc::SerializationTraits<Message>::Serialize(frame, bytes, &owned).ok()) {
    return absl::OkStatus();
  }
  return UnserializableFrame();
}

// Ends a call at once, whatever is queued, and without the client's help: it gets the code, and
// the reason's name before the message. There is no room for details.
void CancelCall(grpc::CallbackServerContext* context, const absl::Status& status);

}  // namespace tenon::server

#endif  // TENON_SERVER_FRAMES_H_
