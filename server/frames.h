// Frames of streams as bytes: parsing, serialising, and the ends that gRPC's reactors do not offer.

#ifndef TENON_SERVER_FRAMES_H_
#define TENON_SERVER_FRAMES_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>  // how messages of protobuf become bytes

#include <cstdint>

#include "absl/status/status.h"

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
