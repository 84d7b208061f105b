#include "client/cpp/wire.h"

#include <algorithm>
#include <utility>

#include "backends/core/error.h"
#include "client/cpp/status.h"

namespace tenon::client {

v1::TensorSpec ToWire(const TensorSpec& spec) {
  v1::TensorSpec wire;
  wire.set_dtype(static_cast<v1::DataType>(spec.dtype));
  wire.mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
  return wire;
}

absl::StatusOr<TensorSpec> FromWire(const v1::TensorSpec& wire) {
  TensorSpec spec;
  spec.dtype = static_cast<DType>(wire.dtype());
  spec.shape.assign(wire.shape().begin(), wire.shape().end());
  if (!v1::DataType_IsValid(wire.dtype()) || spec.dtype == DType::kUnspecified) {
    return BrokenContract(
        StrCat("a tensor has the unknown element type ", static_cast<int>(wire.dtype())));
  }
  if (spec.shape.size() > kMaxRank) {
    return BrokenContract(StrCat("a tensor has ", spec.shape.size(), " axes"));
  }
  const absl::StatusOr<int64_t> bytes = CheckedByteCount(spec);
  if (!bytes.ok()) return BrokenContract(ToStd(bytes.status().message()));
  return spec;
}

v1::ExplicitPlan ToWire(const PathSteps& path, std::span<const std::string> sliced) {
  v1::ExplicitPlan plan;
  plan.mutable_path()->set_format(path.format == PathSteps::Format::kSsa ? v1::PATH_FORMAT_SSA
                                                                         : v1::PATH_FORMAT_LINEAR);
  for (const std::vector<int64_t>& step : path.steps) {
    plan.mutable_path()->add_steps()->mutable_operands()->Add(step.begin(), step.end());
  }
  for (const std::string& name : sliced) plan.add_sliced_indices(name);
  return plan;
}

absl::Status CheckView(const TensorView& view, std::string_view field) {
  const std::string path(field);
  if (view.spec.dtype == DType::kUnspecified) {
    return Error(Reason::kMissingField, "the tensor has no element type")
        .Field(StrCat(path, ".dtype"));
  }
  const absl::StatusOr<int64_t> bytes = CheckedByteCount(view.spec);
  if (!bytes.ok()) {
    return Error(GetErrorDetails(bytes.status()).reason, std::string(bytes.status().message()))
        .Field(path);
  }
  const auto given = static_cast<int64_t>(view.bytes.size());
  if (given == *bytes) return absl::OkStatus();
  return Error(Reason::kShapeMismatch,
               StrCat("the shape needs ", *bytes, " bytes, but ", given, " are given"))
      .Field(path)
      .Meta("expected_bytes", *bytes)
      .Meta("actual_bytes", given);
}

absl::Status TensorAssembler::Begin(const TensorSpec& spec) {
  filled_bytes_ = 0;
  TENON_ASSIGN_OR_RETURN(tensor_, Tensor::Allocate(spec));
  return absl::OkStatus();
}

absl::Status TensorAssembler::Append(const v1::TensorChunk& chunk) {
  const std::string& data = chunk.data();
  if (chunk.offset_bytes() != filled_bytes_) {
    return BrokenContract(
        StrCat("a chunk begins at byte ", chunk.offset_bytes(), " instead of ", filled_bytes_));
  }
  const auto size = static_cast<int64_t>(data.size());
  if (size > size_bytes() - filled_bytes_) {
    return BrokenContract(StrCat("a chunk of ", size, " bytes at byte ", filled_bytes_,
                                 " passes the end of a tensor of ", size_bytes()));
  }
  if (chunk.has_crc32c() && Crc32c(data) != chunk.crc32c()) {
    return BadChecksum(StrCat("the chunk at byte ", filled_bytes_));
  }
  std::copy_n(data.data(), data.size(), tensor_.buffer.as<char>() + filled_bytes_);
  filled_bytes_ += size;
  return absl::OkStatus();
}

absl::Status TensorAssembler::SetInline(std::string_view data) {
  if (static_cast<int64_t>(data.size()) != size_bytes()) {
    return BrokenContract(
        StrCat("an inline tensor has ", data.size(), " bytes instead of ", size_bytes()));
  }
  std::copy_n(data.data(), data.size(), tensor_.buffer.as<char>());
  filled_bytes_ = size_bytes();
  return absl::OkStatus();
}

}  // namespace tenon::client
