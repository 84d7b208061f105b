#include "server/admission.h"

#include <algorithm>

#include "backends/core/error.h"

namespace tenon::server {

void Reservation::Release() {
  if (budget_ == nullptr) return;
  std::lock_guard lock(budget_->mutex_);
  budget_->reserved_ -= bytes_;
  budget_ = nullptr;
  bytes_ = 0;
}

void Reservation::Shrink(int64_t bytes) {
  if (budget_ == nullptr) return;
  std::lock_guard lock(budget_->mutex_);
  bytes = std::clamp<int64_t>(bytes, 0, bytes_);
  budget_->reserved_ -= bytes;
  bytes_ -= bytes;
}

absl::StatusOr<Reservation> MemoryBudget::Reserve(int64_t bytes) {
  if (bytes < 0) return Error(Reason::kInternal, "a negative number of bytes is planned");
  if (bytes > limit_bytes_) {
    return Error(Reason::kExceedsServerLimit,
                 StrCat("the request plans ", bytes, " bytes; this server has ", limit_bytes_))
        .Meta("planned_peak_bytes", bytes)
        .Meta("limit_bytes", limit_bytes_);
  }
  int64_t missing = Take(bytes);
  if (missing > 0 && reclaim_ != nullptr) {
    reclaim_(missing);
    missing = Take(bytes);
  }
  if (missing == 0) {
    if (shrink_ != nullptr) shrink_(limit_bytes_ - reserved_bytes());
    return Reservation(this, bytes);
  }
  return Error(Reason::kOverloaded, StrCat("the request plans ", bytes, " bytes; ", bytes - missing,
                                           " of ", limit_bytes_, " are free now"))
      .Meta("planned_peak_bytes", bytes)
      .Meta("free_bytes", bytes - missing)
      .Meta("limit_bytes", limit_bytes_)
      .Meta("retry_delay_seconds", 1);
}

std::optional<Reservation> MemoryBudget::ReserveFree(int64_t bytes) {
  if (bytes < 0 || Take(bytes) > 0) return std::nullopt;
  return Reservation(this, bytes);
}

int64_t MemoryBudget::Take(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - reserved_) return bytes - (limit_bytes_ - reserved_);
  reserved_ += bytes;
  return 0;
}

int64_t MemoryBudget::reserved_bytes() const {
  std::lock_guard lock(mutex_);
  return reserved_;
}

}  // namespace tenon::server
