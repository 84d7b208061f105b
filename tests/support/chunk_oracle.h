// What protobuf says of frames that the server splits without it.

#ifndef TENON_TESTS_SUPPORT_CHUNK_ORACLE_H_
#define TENON_TESTS_SUPPORT_CHUNK_ORACLE_H_

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/frames.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::testing {

// Whether protobuf takes the frame, which is of the type of `prototype`, and reads in it what
// `split` tells and nothing else.
inline bool ReadsTheSame(const google::protobuf::Message& prototype, const std::string& bytes,
                         const server::ChunkFrame& split) {
  const std::unique_ptr<google::protobuf::Message> frame(prototype.New());
  if (!frame->ParseFromString(bytes)) return false;
  const google::protobuf::Reflection& reflection = *frame->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(*frame, &fields);
  if (fields.size() != 1 || fields[0]->number() != split.field) return false;
  const auto* chunk = google::protobuf::DynamicCastToGenerated<v1::TensorChunk>(
      &reflection.GetMessage(*frame, fields[0]));
  if (chunk == nullptr || !reflection.GetUnknownFields(*frame).empty() ||
      !chunk->GetReflection()->GetUnknownFields(*chunk).empty()) {
    return false;
  }
  std::string data;
  for (const std::string_view piece : split.chunk.data) data += piece;
  return chunk->set() == split.chunk.set && chunk->operand() == split.chunk.operand &&
         chunk->offset_bytes() == split.chunk.offset_bytes && chunk->data() == data &&
         chunk->has_crc32c() == split.chunk.crc32c.has_value() &&
         chunk->crc32c() == split.chunk.crc32c.value_or(0);
}

// Gives the frame a field that nobody knows. It means the same then, but protobuf must parse it.
inline void AddUnknownField(google::protobuf::Message* frame) {
  constexpr int kNumber = 1000;
  frame->GetReflection()->MutableUnknownFields(frame)->AddVarint(kNumber, 1);
}

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_CHUNK_ORACLE_H_
