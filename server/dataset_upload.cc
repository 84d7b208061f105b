#include "server/dataset_upload.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "backends/core/error.h"
#include "server/measurement_codec.h"
#include "server/measurement_resources.h"
#include "server/tensor_codec.h"

namespace tenon::server {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxDisplayNameBytes = 256;
constexpr size_t kSha256Digits = 64;

google::protobuf::Timestamp WireTime(std::chrono::system_clock::time_point time) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

template <typename Message>
void WriteCommon(const ContentStore::Description& description, Message* out) {
  out->set_name(description.handle);
  out->set_display_name(description.display_name);
  out->set_owner(description.owner);
  WriteTensorSpec(description.spec, out->mutable_spec());
  out->set_size_bytes(description.size_bytes);
  *out->mutable_create_time() = WireTime(description.created);
  *out->mutable_last_use_time() = WireTime(description.last_used);
  *out->mutable_expire_time() = WireTime(description.expires);
  out->set_active_calls(static_cast<int32_t>(description.active_uses));
}

absl::Status CheckLength(const std::string& text, size_t limit, const char* field) {
  if (text.size() <= limit) return absl::OkStatus();
  return Error(Reason::kBadParameter,
               StrCat(field, " has ", text.size(), " bytes; at most ", limit, " are taken"))
      .Field(StrCat("header.", field))
      .Meta("limit_bytes", limit)
      .Meta("actual_bytes", text.size());
}

absl::StatusOr<TensorSpec> ReadOperandSpec(const v1::TensorSpec& spec, const Limits& limits) {
  TENON_ASSIGN_OR_RETURN(TensorSpec result, ReadTensorSpec(spec, "header.spec", limits));
  if (IsContractionDType(result.dtype)) return result;
  return Error(Reason::kUnsupportedDtype,
               StrCat("contractions take float32, float64, complex64 and complex128; ",
                      DTypeName(result.dtype), " came"))
      .Field("header.spec.dtype");
}

absl::StatusOr<TensorSpec> ReadDatasetSpec(const v1::TensorSpec& spec, const Limits& limits) {
  TENON_ASSIGN_OR_RETURN(TensorSpec result, ReadMatrixSpec(spec, "header.spec", limits));
  if (result.shape[0] >= 2) return result;
  return Error(Reason::kTooFewRows,
               StrCat("the data set has ", result.shape[0], " rows; at least 2 are needed"))
      .Field("header.spec.shape[0]")
      .Meta("minimum_rows", 2)
      .Meta("rows", result.shape[0]);
}

}  // namespace

void WriteDescription(const ContentStore::Description& description, v1::Dataset* out) {
  WriteCommon(description, out);
  out->set_resource_bytes(description.resource_bytes);
  for (const auto& kept : description.resources) WriteKept(*kept, out->add_resources());
}
void WriteDescription(const ContentStore::Description& description, v1::StoredTensor* out) {
  WriteCommon(description, out);
}

std::string_view UploadState::StateName() const {
  static constexpr std::string_view kNames[] = {"START", "UPLOAD", "COMPLETE"};
  return kNames[static_cast<int>(upload_)];
}

absl::Status UploadState::CheckHeader(const Header& header) const {
  TENON_RETURN_IF_ERROR(CheckLength(header.request_id, kMaxRequestIdBytes, "request_id"));
  TENON_RETURN_IF_ERROR(CheckLength(header.display_name, kMaxDisplayNameBytes, "display_name"));
  if (header.ttl_seconds.has_value() &&
      !(*header.ttl_seconds > 0 && std::isfinite(*header.ttl_seconds))) {
    return Error(Reason::kBadParameter, StrCat("the time to live is ", *header.ttl_seconds,
                                               " seconds; it must be positive and finite"))
        .Field("header.ttl_seconds")
        .Meta("actual_seconds", *header.ttl_seconds);
  }
  const std::string& hash = header.expected_sha256;
  const bool hexadecimal = std::all_of(hash.begin(), hash.end(), [](char digit) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(digit));
  });
  if (hash.empty() || (hexadecimal && hash.size() == kSha256Digits)) return absl::OkStatus();
  return Error(Reason::kBadParameter,
               StrCat("a SHA-256 has ", kSha256Digits, " hexadecimal digits; '", hash, "' came"))
      .Field("header.expected_sha256");
}

absl::StatusOr<int64_t> UploadState::OnHeader(const Header& header) {
  if (upload_ != State::kStart) return FrameOrderError(StateName(), "header");
  TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
  TENON_RETURN_IF_ERROR(CheckHeader(header));
  TENON_ASSIGN_OR_RETURN(spec_, kind_ == ContentStore::Kind::kDataset
                                    ? ReadDatasetSpec(*header.spec, state_->limits)
                                    : ReadOperandSpec(*header.spec, state_->limits));
  TENON_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteCount(spec_));
  if (header.inline_data != nullptr) {
    TENON_RETURN_IF_ERROR(CheckInlineSize(static_cast<int64_t>(header.inline_data->size()),
                                          "header.inline_data", state_->limits));
  }
  const int64_t entry_bytes =
      ContentStore::EntryBytes(bytes, static_cast<int64_t>(spec_.shape.size()));
  TENON_RETURN_IF_ERROR(AtField(state_->store->CheckQuota(owner_, entry_bytes), "header.spec"));
  request_id_ = header.request_id.empty() ? NewRequestId() : header.request_id;
  options_.display_name = header.display_name;
  options_.expected_sha256 = header.expected_sha256;
  if (header.ttl_seconds) options_.ttl = std::chrono::duration<double>(*header.ttl_seconds);
  return entry_bytes;
}

absl::Status UploadState::Admit(Reservation memory, const std::string* inline_data) {
  options_.reservation = std::move(memory);
  TENON_ASSIGN_OR_RETURN(data_, TensorReceiver::Create(std::move(spec_)));
  if (inline_data != nullptr) {
    TENON_RETURN_IF_ERROR(AtField(data_.AcceptAll(*inline_data), "header.inline_data"));
    state_->metrics.AddPayloadBytes(Method::kDataset, Direction::kReceived, data_.size_bytes());
  }
  upload_ = data_.complete() ? State::kComplete : State::kUpload;
  return absl::OkStatus();
}

absl::Status UploadState::OnChunk(const ChunkView& chunk) {
  if (upload_ != State::kUpload) return FrameOrderError(StateName(), "chunk");
  TENON_RETURN_IF_ERROR(CheckTurn(chunk, 0, "chunk"));
  const absl::Status accepted = data_.Accept(chunk, state_->limits.max_chunk_bytes);
  if (!accepted.ok()) return PrefixFields(accepted, "chunk.");
  state_->metrics.AddPayloadBytes(Method::kDataset, Direction::kReceived, chunk.size_bytes());
  if (data_.complete()) upload_ = State::kComplete;
  return absl::OkStatus();
}

absl::Status UploadState::OnHalfClose() const {
  if (upload_ == State::kComplete) return absl::OkStatus();
  return Error(Reason::kTruncatedUpload,
               StrCat("the stream ended in state ", StateName(), " after ", data_.received_bytes(),
                      " of ", data_.size_bytes(), " bytes"))
      .Field(upload_ == State::kStart ? "header" : "chunk")
      .Meta("state", StateName())
      .Meta("expected_bytes", data_.size_bytes())
      .Meta("actual_bytes", data_.received_bytes());
}

absl::StatusOr<ContentStore::Description> UploadState::Store(const CancelToken* cancel,
                                                             bool* created) {
  TENON_RETURN_IF_ERROR(cancel->Check());
  if (kind_ == ContentStore::Kind::kDataset) {
    TENON_RETURN_IF_ERROR(CheckValues(data_.tensor(), true, "header.spec", cancel));
  }
  options_.cancel = cancel;
  auto stored = state_->store->Put(kind_, owner_, data_.Take(), std::move(options_), created);
  if (!stored.ok()) return PrefixFields(stored.status(), "header.");
  // While the share is held the content can't go, however short its time to live is.
  TENON_ASSIGN_OR_RETURN(ContentStore::Description description,
                         state_->store->Describe(kind_, owner_, (*stored)->handle));
  --description.active_uses;  // the upload is no use
  return description;
}

}  // namespace tenon::server
