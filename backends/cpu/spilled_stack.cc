#include "backends/cpu/spilled_stack.h"

#include <algorithm>

#include "backends/core/error.h"

namespace tenon::cpu {

absl::StatusOr<SpilledStack> SpilledStack::Create(const std::string& folder, int64_t pushes) {
  SpilledStack stack;
  TENON_ASSIGN_OR_RETURN(
      stack.file_,
      SpillFile::Open(folder, kPart * static_cast<int64_t>(sizeof(FitBlock)), FileBytes(pushes)));
  stack.top_.reserve(2 * kPart);
  return stack;
}

void SpilledStack::Refill() {
  if (!top_.empty()) return;
  top_.resize(kPart);
  status_.Update(file_->Read(parts_.back(), top_.data()));
  parts_.pop_back();
}

FitBlock SpilledStack::Top() {
  Refill();
  return top_.back();
}

void SpilledStack::Pop() {
  Refill();
  top_.pop_back();
}

void SpilledStack::Push(FitBlock block) {
  if (static_cast<int64_t>(top_.size()) == 2 * kPart) {
    // Every part is written after as many pushes, so the file stays within its plan.
    parts_.push_back(file_->Write(top_.data()));
    std::copy(top_.begin() + kPart, top_.end(), top_.begin());
    top_.resize(kPart);
  }
  top_.push_back(block);
}

absl::Status SpilledStack::status() const {
  absl::Status status = file_->status();  // what was not written cannot be read
  status.Update(status_);
  return status;
}

}  // namespace tenon::cpu
