#include "client/cpp/measure_reader.h"

#include <utility>

#include "backends/core/error.h"
#include "client/cpp/status.h"
#include "tenon/call.h"

namespace tenon::client {

absl::Status MeasureReader::Add(const v1::MeasureResponse& frame) {
  using Frame = v1::MeasureResponse::FrameCase;
  if (summary_.has_value()) return BrokenContract("a frame follows the summary");
  const bool opens = frame.frame_case() == Frame::kAccepted || frame.frame_case() == Frame::kSingle;
  if (opens == accepted_.has_value()) {
    return BrokenContract(opens ? "the request is accepted twice"
                                : "a frame comes before the request is accepted");
  }
  switch (frame.frame_case()) {
    case Frame::kAccepted:
      accepted_ = frame.accepted();
      return absl::OkStatus();
    case Frame::kScores:
      return AddScores(frame.scores());
    case Frame::kItemError:
      return AddError(frame.item_error());
    case Frame::kLocalChunk:
      return AddLocalChunk(frame.local_chunk());
    case Frame::kSummary:
      return AddSummary(frame.summary());
    case Frame::kProgress:
      if (on_progress_) on_progress_(frame.progress());
      return absl::OkStatus();
    case Frame::kSingle:
      return AddSingle(frame.single());
    case Frame::FRAME_NOT_SET:
      break;
  }
  return BrokenContract("a frame is empty or of an unknown kind");
}

absl::Status MeasureReader::OpenItem(int64_t index, const std::string& name) {
  const int64_t expected = scored_ + failed_;
  if (current_.has_value()) {
    return BrokenContract(StrCat("projection ", index, " is answered before the local arrays of ",
                                 current_->index, " are complete"));
  }
  if (index != expected) {
    return BrokenContract(StrCat("projection ", index, " is answered in the place of ", expected));
  }
  current_.emplace();
  current_->index = index;
  current_->name = name;
  return absl::OkStatus();
}

absl::Status MeasureReader::AddScores(const v1::MeasureScores& scores) {
  TENON_RETURN_IF_ERROR(OpenItem(scores.index(), scores.name()));
  ++scored_;
  current_->scores = scores;
  next_local_ = 0;
  local_open_ = false;
  return AdvanceLocal();
}

absl::Status MeasureReader::AdvanceLocal() {
  v1::MeasureScores& scores = current_->scores;
  for (; next_local_ < scores.local_arrays_size(); ++next_local_) {
    const v1::LocalArray& array = scores.local_arrays(next_local_);
    if (!local_open_) {
      TENON_ASSIGN_OR_RETURN(const TensorSpec spec, FromWire(array.tensor()));
      TENON_RETURN_IF_ERROR(assembler_.Begin(spec));
      if (array.has_inline_data()) TENON_RETURN_IF_ERROR(assembler_.SetInline(array.inline_data()));
      local_open_ = true;
    }
    if (!assembler_.complete()) return absl::OkStatus();
    current_->local.push_back({array.spec(), array.key(), assembler_.Take()});
    local_open_ = false;
  }
  scores.clear_local_arrays();
  items_.push_back(std::move(*current_));
  current_.reset();
  return absl::OkStatus();
}

absl::Status MeasureReader::AddLocalChunk(const v1::TensorChunk& chunk) {
  if (!current_.has_value()) return BrokenContract("a local chunk comes that belongs to no scores");
  if (chunk.set() != current_->index || chunk.operand() != next_local_) {
    return BrokenContract(StrCat("a local chunk of projection ", chunk.set(), ", array ",
                                 chunk.operand(), " comes in the place of ", current_->index, ", ",
                                 next_local_));
  }
  TENON_RETURN_IF_ERROR(assembler_.Append(chunk));
  return AdvanceLocal();
}

absl::Status MeasureReader::AddError(const v1::MeasureItemError& error) {
  TENON_RETURN_IF_ERROR(OpenItem(error.index(), error.name()));
  ++failed_;
  current_->status = StatusFromDetail(error.error());
  items_.push_back(std::move(*current_));
  current_.reset();
  return absl::OkStatus();
}

absl::Status MeasureReader::AddSummary(const v1::MeasureSummary& summary) {
  if (current_.has_value()) {
    return BrokenContract("the summary comes before the local arrays are complete");
  }
  if (summary.scored_count() != scored_ || summary.error_count() != failed_) {
    return BrokenContract(StrCat("the summary tells ", summary.scored_count(), " scores and ",
                                 summary.error_count(), " errors, but ", scored_, " and ", failed_,
                                 " came"));
  }
  summary_ = summary;
  return absl::OkStatus();
}

absl::Status MeasureReader::AddSingle(const v1::MeasureSingle& single) {
  accepted_ = single.accepted();
  for (const v1::MeasureItem& item : single.items()) {
    TENON_RETURN_IF_ERROR(item.has_error() ? AddError(item.error()) : AddScores(item.scores()));
  }
  return AddSummary(single.summary());
}

std::optional<MeasureItem> MeasureReader::PopItem() {
  if (items_.empty()) return std::nullopt;
  MeasureItem item = std::move(items_.front());
  items_.pop_front();
  return item;
}

absl::Status MeasureReader::CheckEnd() const {
  if (summary_.has_value()) return absl::OkStatus();
  return BrokenContract("the stream ended with OK before the summary");
}

}  // namespace tenon::client
