// Admission by memory: the planned bytes of all admitted work stay under one budget.

#ifndef TENON_SERVER_ADMISSION_H_
#define TENON_SERVER_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"

namespace tenon::server {

class MemoryBudget;

// Bytes held for one request; given back when destroyed. Movable.
class Reservation {
 public:
  Reservation() = default;
  ~Reservation() { Release(); }
  Reservation(Reservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    if (this != &other) {
      Release();
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  int64_t bytes() const { return bytes_; }
  void Release();

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}
  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

// Thread-safe. Outlives its reservations.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Called by Reserve, without a lock held, to give back at least that many bytes of what is only
  // kept for later. Set once, before the first Reserve.
  void SetReclaimer(std::function<void(int64_t bytes)> reclaim) { reclaim_ = std::move(reclaim); }

  // Called by Reserve, without a lock held, with the bytes that are not reserved: what is kept warm
  // for later must fit into them. Set once, before the first Reserve.
  void SetShrinker(std::function<void(int64_t free_bytes)> shrink) { shrink_ = std::move(shrink); }

  // EXCEEDS_SERVER_LIMIT when `bytes` can never fit, OVERLOADED with a retry delay when they do not
  // fit now.
  absl::StatusOr<Reservation> Reserve(int64_t bytes);

  // Reserves only what is free now; null otherwise. Gives nothing back to make room.
  std::optional<Reservation> ReserveFree(int64_t bytes);

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t reserved_bytes() const;

 private:
  friend class Reservation;
  // Bytes that lack for `bytes` more; takes them when none do.
  int64_t Take(int64_t bytes);

  const int64_t limit_bytes_;
  std::function<void(int64_t)> reclaim_, shrink_;
  mutable std::mutex mutex_;
  int64_t reserved_ = 0;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_ADMISSION_H_
