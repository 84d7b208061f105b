#include "client/cpp/contract_reader.h"

#include <utility>

#include "backends/core/error.h"
#include "client/cpp/status.h"

namespace tenon::client {

absl::Status ContractReader::Add(const v1::ContractResponse& frame) {
  using Frame = v1::ContractResponse::FrameCase;
  if (reported_) return BrokenContract("a frame follows the report");
  if (frame.has_progress() && !accepted_) {  // of the queue, or of the search for a plan
    if (callbacks_.on_progress) callbacks_.on_progress(frame.progress());
    return absl::OkStatus();
  }
  const bool opens = frame.frame_case() == Frame::kAccepted || frame.frame_case() == Frame::kSingle;
  if (opens == accepted_) {
    return BrokenContract(accepted_ ? "the request is accepted twice"
                                    : "a frame comes before the request is accepted");
  }
  switch (frame.frame_case()) {
    case Frame::kAccepted:
      return AddAccepted(frame.accepted());
    case Frame::kProgress:
      if (callbacks_.on_progress) callbacks_.on_progress(frame.progress());
      return absl::OkStatus();
    case Frame::kResult:
      return AddResult(frame.result());
    case Frame::kChunk:
      return AddChunk(frame.chunk());
    case Frame::kSetReport:
      return AddSetReport(frame.set_report());
    case Frame::kReport:
      return AddReport(frame.report());
    case Frame::kSingle:
      return AddSingle(frame.single());
    case Frame::FRAME_NOT_SET:
      break;
  }
  return BrokenContract("a frame is empty or of an unknown kind");
}

absl::Status ContractReader::AddAccepted(const v1::ContractAccepted& accepted) {
  accepted_ = true;
  outcome_.accepted = accepted;
  if (callbacks_.on_accepted) callbacks_.on_accepted(accepted);
  return absl::OkStatus();
}

absl::Status ContractReader::AddResult(const v1::ContractResult& result) {
  if (current_.has_value()) {
    return BrokenContract(StrCat("a result comes before that of set ", sets_, " is complete"));
  }
  if (result.set() != sets_) {
    return BrokenContract(
        StrCat("the result of set ", result.set(), " comes in the place of set ", sets_));
  }
  TENON_ASSIGN_OR_RETURN(const TensorSpec spec, FromWire(result.spec()));
  current_.emplace();
  current_->set = result.set();
  if (result.has_log10_scale()) current_->log10_scale = result.log10_scale();
  if (result.has_shared()) return AddSharedResult(result, spec);
  TENON_RETURN_IF_ERROR(assembler_.Begin(spec));
  if (result.has_inline_data()) {
    TENON_RETURN_IF_ERROR(assembler_.SetInline(result.inline_data()));
  }
  return assembler_.complete() ? CloseResult(result.report()) : absl::OkStatus();
}

absl::Status ContractReader::AddSharedResult(const v1::ContractResult& result,
                                             const TensorSpec& spec) {
  TENON_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteCount(spec));
  if (placement_ != nullptr && result.shared().size_bytes() == bytes) {
    current_->block = placement_->TakeResult(sets_, result.shared());
  }
  if (current_->block == nullptr) {
    return BrokenContract(StrCat("the result of set ", sets_,
                                 " lies in shared memory, but not where it was asked for"));
  }
  current_->tensor.spec = spec;
  return CloseResult(result.report());
}

absl::Status ContractReader::AddChunk(const v1::TensorChunk& chunk) {
  if (!current_.has_value() || assembler_.complete()) {
    return BrokenContract("a chunk comes that belongs to no result");
  }
  if (chunk.set() != sets_ || chunk.operand() != 0) {
    return BrokenContract(StrCat("a chunk of set ", chunk.set(), ", operand ", chunk.operand(),
                                 " comes within the result of set ", sets_));
  }
  return assembler_.Append(chunk);
}

absl::Status ContractReader::AddSetReport(const v1::SetReport& report) {
  if (!current_.has_value()) return BrokenContract("a set report comes that closes no result");
  if (!assembler_.complete()) {
    return BrokenContract(StrCat("the result of set ", sets_, " ends after ",
                                 assembler_.filled_bytes(), " of ", assembler_.size_bytes(),
                                 " bytes"));
  }
  return CloseResult(report);
}

absl::Status ContractReader::CloseResult(const v1::SetReport& report) {
  if (report.set() != sets_) {
    return BrokenContract(StrCat("the report of set ", report.set(), " stands with set ", sets_));
  }
  const std::span<const std::byte> bytes =
      current_->block != nullptr ? current_->block->bytes() : assembler_.bytes();
  if (report.result_bytes() != static_cast<int64_t>(bytes.size())) {
    return BrokenContract(StrCat("the report of set ", sets_, " tells ", report.result_bytes(),
                                 " bytes, but ", bytes.size(), " came"));
  }
  if (report.has_result_crc32c() && Crc32c(AsText(bytes)) != report.result_crc32c()) {
    return BadChecksum(StrCat("the result of set ", sets_));
  }
  if (current_->block == nullptr) current_->tensor = assembler_.Take();
  current_->report = report;
  if (placement_ != nullptr) placement_->Release(sets_);
  ++sets_;
  ContractResult result = std::move(*current_);
  current_.reset();
  if (callbacks_.on_result) {
    has_handed_out_ = true;
    return callbacks_.on_result(std::move(result));
  }
  outcome_.results.push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status ContractReader::AddReport(const v1::ContractionReport& report) {
  if (current_.has_value()) {
    return BrokenContract(
        StrCat("the report comes before the result of set ", sets_, " is complete"));
  }
  if (report.sets() != sets_) {
    return BrokenContract(
        StrCat("the report tells ", report.sets(), " sets, but ", sets_, " results came"));
  }
  reported_ = true;
  outcome_.report = report;
  return absl::OkStatus();
}

absl::Status ContractReader::AddSingle(const v1::ContractSingle& single) {
  TENON_RETURN_IF_ERROR(AddAccepted(single.accepted()));
  for (const v1::ContractResult& result : single.results()) {
    TENON_RETURN_IF_ERROR(AddResult(result));
  }
  return AddReport(single.report());
}

absl::StatusOr<ContractOutcome> ContractReader::Take() {
  if (!reported_) return BrokenContract("the stream ended with OK before the report");
  return std::move(outcome_);
}

}  // namespace tenon::client
