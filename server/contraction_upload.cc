#include "server/contraction_upload.h"

#include <string>
#include <utility>

#include "backends/core/error.h"
#include "server/tensor_codec.h"
#include "tenon/v1/job.pb.h"

namespace tenon::server {

namespace {

// Relative to a region: the header that lacks the pool has gone by.
absl::Status NoPool() {
  return Error(Reason::kMissingField,
               "a region of shared memory needs the pool that it lies in, in the header")
      .Field("offset_bytes");
}

}  // namespace

std::string_view UploadStateName(UploadState state) {
  switch (state) {
    case UploadState::kStart:
      return "START";
    case UploadState::kReading:
      return "READING";
    case UploadState::kBetweenSets:
      return "BETWEEN_SETS";
    case UploadState::kComplete:
      return "COMPLETE";
    case UploadState::kClosed:
      return "CLOSED";
  }
  return "";
}

template <typename Frame>
std::string_view FrameName(const Frame& frame) {
  if (frame.has_header()) return "header";
  if (frame.has_chunk()) return "chunk";
  return frame.has_operand_set() ? "operand_set" : "";
}

template <typename Frame>
absl::Status IllegalFrame(std::string_view state, const Frame& frame) {
  if (FrameName(frame).empty()) {
    return Error(Reason::kMissingField, "the frame is empty").Field("frame");
  }
  return FrameOrderError(state, FrameName(frame));
}

template std::string_view FrameName(const v1::ContractRequest& frame);
template std::string_view FrameName(const v1::SubmitContractionRequest& frame);
template absl::Status IllegalFrame(std::string_view state, const v1::ContractRequest& frame);
template absl::Status IllegalFrame(std::string_view state,
                                   const v1::SubmitContractionRequest& frame);

absl::StatusOr<std::unique_ptr<ContractUpload>> ContractUpload::Create(
    std::vector<OperandSource>* operands, const Limits& limits, const Shared& shared,
    std::string_view reading) {
  std::unique_ptr<ContractUpload> upload(new ContractUpload(limits, shared, reading));
  upload->fixed_.resize(operands->size());
  for (const OperandSource& source : *operands) {
    upload->stored_.push_back(source.stored != nullptr ||
                              (source.shared.has_value() && !source.varying));
    upload->varying_.push_back(source.varying ? static_cast<int>(upload->varying_specs_.size())
                                              : -1);
    if (source.varying) upload->varying_specs_.push_back(source.spec);
  }
  TENON_ASSIGN_OR_RETURN(upload->inputs_, upload->NewInputs());
  upload->inputs_->result = shared.result;
  for (size_t k = 0; k < operands->size(); ++k) {
    OperandSource& source = (*operands)[k];
    if (upload->stored_[k]) continue;
    if (!source.varying) {
      TENON_ASSIGN_OR_RETURN(upload->fixed_[k], TensorReceiver::Create(source.spec));
    }
    TENON_ASSIGN_OR_RETURN(TensorReceiver * receiver, upload->Find(static_cast<int64_t>(k)));
    int64_t& missing = source.varying ? upload->varying_missing_ : upload->fixed_missing_;
    if (!receiver->complete()) ++missing;
    if (source.shared.has_value() && !receiver->complete()) {
      const SharedSpan& span = *source.shared;
      TENON_RETURN_IF_ERROR(receiver->AcceptShared(span.data, span.size_bytes));
      upload->Received(k, *receiver, span.size_bytes, false);
    }
    if (!source.inline_bytes.has_value()) continue;
    const std::string bytes = *std::exchange(source.inline_bytes, std::nullopt);
    if (receiver->complete()) continue;
    TENON_RETURN_IF_ERROR(receiver->AcceptAll(bytes));
    upload->Received(k, *receiver, receiver->size_bytes());
  }
  upload->CompleteSetIfReady();
  return upload;
}

absl::StatusOr<std::unique_ptr<SetInputs>> ContractUpload::NewInputs() const {
  auto inputs = std::make_unique<SetInputs>();
  for (const TensorSpec& spec : varying_specs_) {
    TENON_ASSIGN_OR_RETURN(TensorReceiver receiver, TensorReceiver::Create(spec));
    inputs->operands.push_back(std::move(receiver));
  }
  return inputs;
}

template <typename Frame>
absl::Status ContractUpload::OnFrame(const Frame& frame) {
  if (frame.has_chunk()) return OnChunk(frame.chunk());
  if (readable() && frame.has_operand_set()) {
    return PrefixFields(OnOperandSet(frame.operand_set()), "operand_set.");
  }
  return IllegalFrame(StateName(), frame);
}

template absl::Status ContractUpload::OnFrame(const v1::ContractRequest& frame);
template absl::Status ContractUpload::OnFrame(const v1::SubmitContractionRequest& frame);

std::string_view ContractUpload::StateName() const {
  return state_ == UploadState::kReading ? reading_ : UploadStateName(state_);
}

absl::Status ContractUpload::OnChunk(const ChunkView& chunk) {
  if (!readable()) return FrameOrderError(StateName(), "chunk");
  return PrefixFields(Accept(chunk), "chunk.");
}

absl::Status ContractUpload::Accept(const ChunkView& chunk) {
  TENON_RETURN_IF_ERROR(CheckSet(chunk.set));
  BeginSet();
  TENON_ASSIGN_OR_RETURN(TensorReceiver * receiver, Find(chunk.operand));
  TENON_RETURN_IF_ERROR(receiver->Accept(chunk, limits_.max_chunk_bytes));
  Received(static_cast<size_t>(chunk.operand), *receiver, chunk.size_bytes());
  CompleteSetIfReady();
  return absl::OkStatus();
}

absl::Status ContractUpload::OnOperandSet(const v1::OperandSet& frame) {
  TENON_RETURN_IF_ERROR(CheckSet(frame.set()));
  BeginSet();
  if (frame.has_result()) {
    const absl::Status status = OnResultRegion(frame.result());
    if (!status.ok()) return PrefixFields(status, "result.");
  }
  for (int i = 0; i < frame.operands_size(); ++i) {
    const absl::Status status = OnData(frame.operands(i));
    if (!status.ok()) return PrefixFields(status, StrCat("operands[", i, "]."));
  }
  CompleteSetIfReady();
  return absl::OkStatus();
}

absl::Status ContractUpload::OnData(const v1::OperandData& data) {
  const auto bytes = static_cast<int64_t>(data.data().size());
  TENON_ASSIGN_OR_RETURN(TensorReceiver * receiver, Find(data.operand()));
  if (data.has_shared()) return OnShared(data, receiver);
  TENON_RETURN_IF_ERROR(CheckInlineSize(bytes, "data", limits_));
  const bool was_complete = receiver->complete();
  const absl::Status status = receiver->AcceptAll(data.data());
  if (!status.ok()) return AtField(status, "data");
  if (!was_complete) Received(static_cast<size_t>(data.operand()), *receiver, bytes);
  return absl::OkStatus();
}

absl::Status ContractUpload::OnShared(const v1::OperandData& data, TensorReceiver* receiver) {
  if (!data.data().empty()) {
    return Error(Reason::kBadParameter, "the bytes come twice: one source is shared memory")
        .Field("shared");
  }
  if (shared_.pool == nullptr) return PrefixFields(NoPool(), "shared.");
  const auto span = shared_.pool->TensorRegion(data.shared(), receiver->size_bytes());
  if (!span.ok()) return PrefixFields(span.status(), "shared.");
  const bool was_complete = receiver->complete();
  const absl::Status status = receiver->AcceptShared(span->data, span->size_bytes);
  if (!status.ok()) return AtField(status, "shared");
  if (!was_complete) {
    Received(static_cast<size_t>(data.operand()), *receiver, span->size_bytes, false);
  }
  return absl::OkStatus();
}

absl::Status ContractUpload::OnResultRegion(const v1::SharedRegion& region) {
  if (shared_.pool == nullptr) return NoPool();
  if (inputs_->result.has_value()) {
    return Error(Reason::kBadParameter,
                 StrCat("set ", set_, " has a region for its result already"))
        .Field("offset_bytes")
        .Meta("set", set_);
  }
  TENON_ASSIGN_OR_RETURN(inputs_->result, shared_.pool->ResultRegion(region, shared_.result_bytes));
  return absl::OkStatus();
}

absl::Status ContractUpload::OnHalfClose() {
  // Only varying operands are missing, and nothing of them has come: the sets before were all.
  const bool at_boundary = fixed_missing_ == 0 && set_bytes_ == 0 && !varying_specs_.empty();
  if (state_ == UploadState::kReading && !at_boundary) return Truncated();
  state_ = UploadState::kClosed;
  return absl::OkStatus();
}

absl::Status ContractUpload::Truncated() const {
  size_t k = 0;
  const TensorReceiver* receiver = nullptr;
  for (; k < fixed_.size(); ++k) {
    if (stored_[k]) continue;
    receiver = varying_[k] < 0 ? &fixed_[k] : &inputs_->operands[varying_[k]];
    if (!receiver->complete()) break;
  }
  return Error(
             Reason::kTruncatedUpload,
             StrCat("the stream ended in state ", reading_, ": operand ", k, " of set ", set_,
                    " has ", receiver->received_bytes(), " of ", receiver->size_bytes(), " bytes"))
      .Field(StrCat("operands[", k, "]"))
      .Meta("state", StateName())
      .Meta("set", set_)
      .Meta("operand", k)
      .Meta("expected_bytes", receiver->size_bytes())
      .Meta("actual_bytes", receiver->received_bytes());
}

std::unique_ptr<SetInputs> ContractUpload::TakeSet() {
  set_ready_ = false;
  inputs_->set = set_;
  inputs_->complete_time = std::chrono::steady_clock::now();
  return std::move(inputs_);
}

void ContractUpload::Provide(std::unique_ptr<SetInputs> inputs) {
  inputs_ = std::move(inputs);
  inputs_->result.reset();
  for (TensorReceiver& receiver : inputs_->operands) receiver.Restart();
}

std::vector<Tensor> ContractUpload::TakeFixed() {
  std::vector<Tensor> tensors;
  tensors.reserve(fixed_.size());
  for (TensorReceiver& receiver : fixed_) tensors.push_back(receiver.Take());
  return tensors;
}

// Between sets a frame begins the next one.
void ContractUpload::BeginSet() {
  if (state_ != UploadState::kBetweenSets) return;
  state_ = UploadState::kReading;
  ++set_;
  set_bytes_ = 0;
  varying_missing_ = 0;
  for (const TensorReceiver& receiver : inputs_->operands) {
    if (!receiver.complete()) ++varying_missing_;
  }
}

absl::Status ContractUpload::CheckSet(int64_t set) const {
  const int64_t expected = state_ == UploadState::kBetweenSets ? set_ + 1 : set_;
  if (set == expected) return absl::OkStatus();
  return Error(Reason::kChunkOrder, StrCat("set ", set, " came; it is set ", expected, "'s turn"))
      .Field("set")
      .Meta("expected_set", expected)
      .Meta("actual_set", set);
}

absl::StatusOr<TensorReceiver*> ContractUpload::Find(int64_t operand) {
  if (operand < 0 || operand >= static_cast<int64_t>(fixed_.size())) {
    return Error(Reason::kChunkOrder, StrCat("operand ", operand, " came; the expression has ",
                                             fixed_.size(), " operands"))
        .Field("operand")
        .Meta("operands", fixed_.size())
        .Meta("actual_operand", operand);
  }
  if (varying_[operand] >= 0) return &inputs_->operands[varying_[operand]];
  if (stored_[operand] || set_ > 0) {
    return Error(
               Reason::kChunkOrder,
               stored_[operand]
                   ? StrCat("operand ", operand, " is a stored or shared tensor; no bytes may come")
                   : StrCat("operand ", operand, " does not vary; all its bytes have come"))
        .Field("operand")
        .Meta("actual_operand", operand);
  }
  return &fixed_[operand];
}

void ContractUpload::Received(size_t operand, const TensorReceiver& receiver, int64_t bytes,
                              bool wire) {
  const bool varies = varying_[operand] >= 0;
  if (wire) received_bytes_ += bytes;
  if (varies) set_bytes_ += bytes;
  if (receiver.complete()) --(varies ? varying_missing_ : fixed_missing_);
}

void ContractUpload::CompleteSetIfReady() {
  if (state_ != UploadState::kReading || fixed_missing_ > 0 || varying_missing_ > 0) return;
  set_ready_ = true;
  state_ = varying_specs_.empty() ? UploadState::kComplete : UploadState::kBetweenSets;
}

}  // namespace tenon::server
