// Admission by memory: the planned bytes of all admitted work stay under one budget.

#ifndef TENON_SERVER_ADMISSION_H_
#define TENON_SERVER_ADMISSION_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/expiry_timer.h"
#include "server/waiting_line.h"

namespace tenon::server {

class MemoryBudget;

// Bytes held for one request; given back when destroyed. Movable.
class Reservation {
 public:
  Reservation() = default;
  ~Reservation() { Release(); }
  Reservation(Reservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        epoch_(other.epoch_) {}
  Reservation& operator=(Reservation&& other) noexcept {
    if (this != &other) {
      Release();
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      epoch_ = other.epoch_;
    }
    return *this;
  }
  int64_t bytes() const { return bytes_; }
  void Release();
  // Gives back so many of the bytes, at most all.
  void Shrink(int64_t bytes);
  // So many of the bytes, at most all, as a reservation of their own.
  Reservation Split(int64_t bytes);

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, int64_t bytes, uint64_t epoch)
      : budget_(budget), bytes_(bytes), epoch_(epoch) {}
  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t epoch_ = 0;  // MemoryBudget::epoch_ when it overtook the first of the line; else 0
};

// Thread-safe. Outlives its reservations.
//
// Work that does not fit now may wait in line (WaitingLine tells the order). What comes later, and
// would fit, overtakes the first of the line only where that does not make the first one wait
// longer: together with all that has overtaken it, it must leave room for the first one. So small
// calls go on while a large one waits for others to end, and cannot keep it waiting.
class MemoryBudget {
 public:
  using Now = std::function<WaitTime()>;

  // `max_waiting` requests of each class may wait for bytes.
  explicit MemoryBudget(int64_t limit_bytes, size_t max_waiting = 64,
                        Now now = std::chrono::steady_clock::now)
      : limit_bytes_(limit_bytes), now_(std::move(now)), line_(max_waiting) {}
  ~MemoryBudget() { timer_.reset(); }

  // Called to give back at least that many bytes of what is only kept for later; without a lock
  // held. Set once, before the first Reserve.
  void SetReclaimer(std::function<void(int64_t bytes)> reclaim) { reclaim_ = std::move(reclaim); }

  // Called after bytes were reserved, without a lock held, with the bytes that are not: what is
  // kept warm for later must fit into them. Set once, before the first Reserve.
  void SetShrinker(std::function<void(int64_t free_bytes)> shrink) { shrink_ = std::move(shrink); }

  // What a refused request should wait, in seconds; 1 unless set. Set once, before the first
  // Reserve.
  void SetRetryDelay(std::function<double()> seconds) { retry_delay_ = std::move(seconds); }

  // For work that was admitted before, or that can't wait: it does not stand in line.
  // EXCEEDS_SERVER_LIMIT when `bytes` can never fit, OVERLOADED with a retry delay when they do not
  // fit now.
  absl::StatusOr<Reservation> Reserve(int64_t bytes);

  // EXCEEDS_SERVER_LIMIT when so many bytes can never fit.
  absl::Status CheckFits(int64_t bytes) const;

  // Reserves only what is free now; null otherwise. Gives nothing back to make room.
  std::optional<Reservation> ReserveFree(int64_t bytes);

  // New work that wants to be admitted.
  struct Request {
    uint64_t ticket = 0;  // from NewTicket
    Priority priority = Priority::kDefault;
    WaitTime until = WaitTime::max();
    int64_t bytes = 0;
    // False: it finds a place in the line however many wait, since it was accepted before.
    bool bounded = true;
    // Exactly one of both is called, once, unless the request leaves; on a thread of the budget's
    // that must not be held up. Null: it does not wait.
    std::function<void(Reservation)> granted = nullptr;
    // OVERLOADED, when `until` has come.
    std::function<void(const absl::Status&)> refused = nullptr;
  };
  // The bytes; nothing when the request waits for them from now on. Errors as Reserve, OVERLOADED
  // only where it does not wait or its class has no place in the line.
  absl::StatusOr<std::optional<Reservation>> ReserveInTurn(Request request);
  // Takes a request out of the line: true means that it waited and neither of both will be called.
  bool Leave(uint64_t ticket);
  // How many are before it in the line; absent: it does not wait (any more).
  std::optional<size_t> Position(uint64_t ticket) const;
  // Does what the budget's thread does: grants what fits now, refuses those whose time has come.
  // For tests with a clock of their own.
  void Serve();

  // What is reserved stays, also beyond a smaller limit: nothing more is granted until enough of it
  // has been given back. Who waits for more than it allows at all is refused.
  void SetLimit(int64_t bytes);
  // Requests that wait already stay.
  void SetMaxWaiting(size_t max_waiting);

  int64_t limit_bytes() const { return limit_bytes_; }
  // 0 when a smaller limit leaves nothing.
  int64_t free_bytes() const;
  int64_t reserved_bytes() const;
  size_t waiting(Priority priority) const;
  int64_t waiting_bytes(Priority priority) const;
  int64_t refused(Priority priority) const;  // because the line was full, since the start

 private:
  friend class Reservation;
  struct Wanted {
    int64_t bytes = 0;
    std::function<void(Reservation)> granted;
    std::function<void(const absl::Status&)> refused;
  };
  using Entry = WaitingLine<Wanted>::Entry;

  absl::Status Overloaded(int64_t bytes, int64_t free, std::string_view why) const;
  // Bytes that lack for `bytes` more; takes them when none do.
  int64_t Take(int64_t bytes);
  // The bytes, unless the first of the line does not let them pass, or `missing` bytes lack.
  std::optional<Reservation> TakeInTurn(int64_t bytes, int64_t* missing);
  void LineChanged();  // with mutex_ held
  void GiveBack(int64_t bytes, uint64_t epoch);
  void Wait(Request request);  // with mutex_ held
  // Those of the line that can never have what they wait for; with mutex_ held.
  std::vector<Entry> TakeHopeless();
  // Grants the first of the line; false when it does not fit, even after giving back.
  bool GrantFirst();
  void Warm();  // calls shrink_

  std::atomic<int64_t> limit_bytes_;  // changes with mutex_ held
  const Now now_;
  std::function<void(int64_t)> reclaim_, shrink_;
  std::function<double()> retry_delay_;
  mutable std::mutex mutex_;
  int64_t reserved_ = 0;
  WaitingLine<Wanted> line_;
  uint64_t first_ = 0;     // ticket of the first of the line; 0: nobody waits
  uint64_t epoch_ = 0;     // changes with the first of the line
  int64_t overtaken_ = 0;  // bytes held by what has overtaken it
  std::array<int64_t, kPriorities> refused_{};
  std::unique_ptr<ExpiryTimer> timer_;  // from the first request on that waits
};

}  // namespace tenon::server

#endif  // TENON_SERVER_ADMISSION_H_
