// What the codecs of all streams share: tensors' descriptions, order of frames and chunks.

#ifndef TENON_SERVER_TENSOR_CODEC_H_
#define TENON_SERVER_TENSOR_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "server/chunk_view.h"
#include "server/state.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::server {

// FRAME_ORDER with metadata "state" and "frame".
absl::Status FrameOrderError(std::string_view state, std::string_view frame);

// CHUNK_ORDER with a field below `frame` unless the chunk is of tensor 0 of this set.
absl::Status CheckTurn(const ChunkView& chunk, int64_t set, std::string_view frame);

// The same error, at `field` if it has no field of its own.
absl::Status AtField(const absl::Status& status, std::string_view field);

// Type and shape of a tensor. Errors have fields below `field`: MISSING_FIELD (no or an unknown
// type), SHAPE_MISMATCH (a negative length), EXCEEDS_SERVER_LIMIT (rank), OVERFLOW.
absl::StatusOr<TensorSpec> ReadTensorSpec(const v1::TensorSpec& spec, std::string_view field,
                                          const Limits& limits);
void WriteTensorSpec(const TensorSpec& spec, v1::TensorSpec* out);

// EXCEEDS_SERVER_LIMIT when `bytes` may not stand inside a message.
absl::Status CheckInlineSize(int64_t bytes, std::string_view field, const Limits& limits);

// A new random id.
std::string NewRequestId();

}  // namespace tenon::server

#endif  // TENON_SERVER_TENSOR_CODEC_H_
