#include "server/tensor_codec.h"

#include <random>

#include "absl/strings/str_format.h"
#include "backends/core/error.h"

namespace tenon::server {

absl::Status FrameOrderError(std::string_view state, std::string_view frame) {
  return Error(Reason::kFrameOrder, StrCat("the frame '", frame, "' has no place in state ", state))
      .Field(std::string(frame))
      .Meta("state", state)
      .Meta("frame", frame);
}

absl::Status CheckTurn(const ChunkView& chunk, int64_t set, std::string_view frame) {
  if (chunk.set == set && chunk.operand == 0) return absl::OkStatus();
  return Error(Reason::kChunkOrder,
               StrCat("a chunk of set ", chunk.set, ", operand ", chunk.operand,
                      " came; it is the turn of set ", set, ", operand 0"))
      .Field(StrCat(frame, chunk.set == set ? ".operand" : ".set"))
      .Meta("expected_set", set)
      .Meta("actual_set", chunk.set)
      .Meta("actual_operand", chunk.operand);
}

absl::Status AtField(const absl::Status& status, std::string_view field) {
  if (status.ok() || !GetErrorDetails(status).fields.empty()) return status;
  const ErrorDetails details = GetErrorDetails(status);
  Error error(details.reason, std::string(status.message()));
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
  return std::move(error).Field(std::string(field));
}

absl::StatusOr<TensorSpec> ReadTensorSpec(const v1::TensorSpec& spec, std::string_view field,
                                          const Limits& limits) {
  if (spec.dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    return Error(Reason::kMissingField, "the element type is required")
        .Field(StrCat(field, ".dtype"));
  }
  if (!v1::DataType_IsValid(spec.dtype())) {
    return Error(Reason::kBadParameter,
                 StrCat(static_cast<int>(spec.dtype()), " is no element type"))
        .Field(StrCat(field, ".dtype"))
        .Meta("value", static_cast<int>(spec.dtype()));
  }
  if (spec.shape_size() > limits.max_rank) {
    return Error(Reason::kExceedsServerLimit,
                 StrCat("the tensor has ", spec.shape_size(), " axes; at most ", limits.max_rank,
                        " are taken"))
        .Field(StrCat(field, ".shape"))
        .Meta("limit", limits.max_rank)
        .Meta("actual", spec.shape_size());
  }
  TensorSpec result{static_cast<DType>(spec.dtype()), {spec.shape().begin(), spec.shape().end()}};
  for (size_t i = 0; i < result.shape.size(); ++i) {
    if (result.shape[i] >= 0) continue;
    return Error(Reason::kShapeMismatch, StrCat("axis ", i, " has the length ", result.shape[i]))
        .Field(StrCat(field, ".shape[", i, "]"))
        .Meta("actual", result.shape[i]);
  }
  const absl::StatusOr<int64_t> bytes = CheckedByteCount(result);
  if (!bytes.ok()) {
    return Error(GetErrorDetails(bytes.status()).reason, std::string(bytes.status().message()))
        .Field(StrCat(field, ".shape"));
  }
  return result;
}

void WriteTensorSpec(const TensorSpec& spec, v1::TensorSpec* out) {
  out->set_dtype(static_cast<v1::DataType>(spec.dtype));
  out->mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
}

absl::Status CheckInlineSize(int64_t bytes, std::string_view field, const Limits& limits) {
  if (bytes < limits.max_inline_bytes) return absl::OkStatus();
  return Error(Reason::kExceedsServerLimit,
               StrCat(bytes, " bytes stand inside the message; fewer than ",
                      limits.max_inline_bytes, " may, more travel in chunks"))
      .Field(std::string(field))
      .Meta("limit_bytes", limits.max_inline_bytes - 1)
      .Meta("actual_bytes", bytes);
}

std::string NewRequestId() {
  // The device itself takes longer than a small call.
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return absl::StrFormat("%016x%016x", random(), random());
}

}  // namespace tenon::server
