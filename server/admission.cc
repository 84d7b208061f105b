#include "server/admission.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/figure.h"

namespace tenon::server {
namespace {

// What makes room without a reservation's end (content that nobody uses any more can be evicted)
// is noticed this soon.
constexpr std::chrono::milliseconds kLookAgain(100);

}  // namespace

void Reservation::Release() {
  if (budget_ == nullptr) return;
  budget_->GiveBack(bytes_, epoch_);
  budget_ = nullptr;
  bytes_ = 0;
}

void Reservation::Shrink(int64_t bytes) {
  if (budget_ == nullptr) return;
  bytes = std::clamp<int64_t>(bytes, 0, bytes_);
  budget_->GiveBack(bytes, epoch_);
  bytes_ -= bytes;
}

Reservation Reservation::Split(int64_t bytes) {
  bytes = std::clamp<int64_t>(bytes, 0, bytes_);
  bytes_ -= bytes;
  return Reservation(budget_, bytes, epoch_);
}

absl::Status MemoryBudget::CheckFits(int64_t bytes) const {
  if (bytes < 0)
    return Error(Reason::kInternal, StrCat(bytes, " bytes are planned, fewer than none"));
  const int64_t limit = limit_bytes_;
  if (bytes <= limit) return absl::OkStatus();
  Error error =
      Error(Reason::kExceedsServerLimit, StrCat("the request plans ", PlannedBytesText(bytes),
                                                "; this server has ", limit, " bytes"))
          .Meta("planned_peak_bytes", bytes)
          .Meta("limit_bytes", limit);
  if (bytes < kMostPlannedBytes) return error;
  return std::move(error).Meta("planned_peak_is_lower_bound", "true");
}

absl::Status MemoryBudget::Overloaded(int64_t bytes, int64_t free, std::string_view why) const {
  const int64_t limit = limit_bytes_;
  return Error(Reason::kOverloaded, StrCat("the request plans ", bytes, " bytes; ", free, " of ",
                                           limit, " are free now", why))
      .Meta("planned_peak_bytes", bytes)
      .Meta("free_bytes", free)
      .Meta("limit_bytes", limit)
      .Meta("retry_delay_seconds", retry_delay_ == nullptr ? 1 : retry_delay_());
}

absl::StatusOr<Reservation> MemoryBudget::Reserve(int64_t bytes) {
  TENON_RETURN_IF_ERROR(CheckFits(bytes));
  int64_t missing = Take(bytes);
  if (missing > 0 && reclaim_ != nullptr) {
    reclaim_(missing);
    missing = Take(bytes);
  }
  if (missing > 0) return Overloaded(bytes, std::max<int64_t>(0, bytes - missing), "");
  Warm();
  return Reservation(this, bytes, 0);
}

std::optional<Reservation> MemoryBudget::ReserveFree(int64_t bytes) {
  if (bytes < 0 || Take(bytes) > 0) return std::nullopt;
  return Reservation(this, bytes, 0);
}

int64_t MemoryBudget::Take(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - reserved_) return bytes - (limit_bytes_ - reserved_);
  reserved_ += bytes;
  return 0;
}

void MemoryBudget::GiveBack(int64_t bytes, uint64_t epoch) {
  std::lock_guard lock(mutex_);
  reserved_ -= bytes;
  if (epoch != 0 && epoch == epoch_) overtaken_ -= bytes;
  // Not here: whoever ends may hold locks.
  if (first_ != 0 && timer_ != nullptr) timer_->Wake();
}

void MemoryBudget::Warm() {
  if (shrink_ != nullptr) shrink_(free_bytes());
}

void MemoryBudget::LineChanged() {
  const uint64_t first = line_.empty() ? 0 : line_.front().ticket;
  if (std::exchange(first_, first) == first) return;
  ++epoch_;
  overtaken_ = 0;
}

std::optional<Reservation> MemoryBudget::TakeInTurn(int64_t bytes, int64_t* missing) {
  std::lock_guard lock(mutex_);
  *missing = 0;
  if (first_ != 0 && bytes > limit_bytes_ - line_.front().item.bytes - overtaken_) {
    return std::nullopt;
  }
  *missing = std::max<int64_t>(0, bytes - (limit_bytes_ - reserved_));
  if (*missing > 0) return std::nullopt;
  reserved_ += bytes;
  if (first_ == 0) return Reservation(this, bytes, 0);
  overtaken_ += bytes;
  return Reservation(this, bytes, epoch_);
}

absl::StatusOr<std::optional<Reservation>> MemoryBudget::ReserveInTurn(Request request) {
  TENON_RETURN_IF_ERROR(CheckFits(request.bytes));
  int64_t missing = 0;
  std::optional<Reservation> taken = TakeInTurn(request.bytes, &missing);
  if (missing > 0 && reclaim_ != nullptr) {
    reclaim_(missing);
    taken = TakeInTurn(request.bytes, &missing);
  }
  if (taken.has_value()) {
    Warm();
    return taken;
  }
  const bool waits = request.granted != nullptr;
  if (waits) {
    std::lock_guard lock(mutex_);
    if (!request.bounded || !line_.full(request.priority)) {
      Wait(std::move(request));
      return std::nullopt;
    }
    ++refused_[static_cast<size_t>(request.priority)];
  }
  return Overloaded(request.bytes, free_bytes(),
                    waits ? ", and the line of those that wait is full" : "");
}

void MemoryBudget::Wait(Request request) {
  line_.Push({{request.ticket, request.priority, now_(), request.until},
              {request.bytes, std::move(request.granted), std::move(request.refused)}});
  LineChanged();
  if (timer_ == nullptr) {
    timer_ = std::make_unique<ExpiryTimer>([this] {
      Serve();
      std::lock_guard lock(mutex_);
      if (line_.empty()) return WaitTime::max();
      return std::min(line_.next_expiry(), std::chrono::steady_clock::now() + kLookAgain);
    });
  }
  timer_->Wake();
}

bool MemoryBudget::Leave(uint64_t ticket) {
  std::optional<Entry> left;  // destroyed without the lock: it may own much
  std::lock_guard lock(mutex_);
  left = line_.Remove(ticket);
  LineChanged();
  if (left.has_value() && first_ != 0) timer_->Wake();  // the next one may be smaller
  return left.has_value();
}

std::optional<size_t> MemoryBudget::Position(uint64_t ticket) const {
  std::lock_guard lock(mutex_);
  return line_.Position(ticket);
}

void MemoryBudget::Serve() {
  std::vector<Entry> expired, hopeless;
  int64_t free = 0;
  {
    std::lock_guard lock(mutex_);
    expired = line_.TakeExpired(now_());
    hopeless = TakeHopeless();
    LineChanged();
    free = std::max<int64_t>(0, limit_bytes_ - reserved_);
  }
  for (Entry& entry : hopeless) {
    if (entry.item.refused != nullptr) entry.item.refused(CheckFits(entry.item.bytes));
  }
  for (Entry& entry : expired) {
    if (entry.item.refused == nullptr) continue;
    const double waited = std::chrono::duration<double>(now_() - entry.arrived).count();
    entry.item.refused(
        Overloaded(entry.item.bytes, free, StrCat("; it waited ", waited, " seconds for them")));
  }
  while (GrantFirst()) {
  }
}

bool MemoryBudget::GrantFirst() {
  uint64_t given_back_for = 0;  // a ticket
  for (;;) {
    std::optional<Entry> granted;
    int64_t missing = 0;
    {
      std::lock_guard lock(mutex_);
      if (line_.empty()) return false;
      missing = line_.front().item.bytes - (limit_bytes_ - reserved_);
      if (missing > 0 && (reclaim_ == nullptr || given_back_for == first_)) return false;
      if (missing <= 0) {
        granted = line_.TakeFront();
        reserved_ += granted->item.bytes;
        LineChanged();
      } else {
        given_back_for = first_;
      }
    }
    if (granted.has_value()) {
      Warm();
      granted->item.granted(Reservation(this, granted->item.bytes, 0));
      return true;
    }
    reclaim_(missing);
  }
}

std::vector<MemoryBudget::Entry> MemoryBudget::TakeHopeless() {
  std::vector<uint64_t> tickets;
  line_.ForEach([&](const Entry& entry) {
    if (entry.item.bytes > limit_bytes_) tickets.push_back(entry.ticket);
  });
  std::vector<Entry> hopeless;
  hopeless.reserve(tickets.size());
  for (const uint64_t ticket : tickets) hopeless.push_back(*line_.Remove(ticket));
  return hopeless;
}

void MemoryBudget::SetLimit(int64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    limit_bytes_ = bytes;
    if (first_ != 0) timer_->Wake();
  }
  Warm();
}

void MemoryBudget::SetMaxWaiting(size_t max_waiting) {
  std::lock_guard lock(mutex_);
  line_.SetMaxPerClass(max_waiting);
}

int64_t MemoryBudget::free_bytes() const {
  std::lock_guard lock(mutex_);
  return std::max<int64_t>(0, limit_bytes_ - reserved_);
}

int64_t MemoryBudget::reserved_bytes() const {
  std::lock_guard lock(mutex_);
  return reserved_;
}

size_t MemoryBudget::waiting(Priority priority) const {
  std::lock_guard lock(mutex_);
  return line_.size(priority);
}

int64_t MemoryBudget::waiting_bytes(Priority priority) const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  line_.ForEach([&](const Entry& entry) {
    if (entry.priority == priority) bytes += entry.item.bytes;
  });
  return bytes;
}

int64_t MemoryBudget::refused(Priority priority) const {
  std::lock_guard lock(mutex_);
  return refused_[static_cast<size_t>(priority)];
}

}  // namespace tenon::server
