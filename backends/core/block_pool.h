// Large blocks of memory that stay mapped between uses, so that their pages are not cleared anew.

#ifndef TENON_BACKENDS_CORE_BLOCK_POOL_H_
#define TENON_BACKENDS_CORE_BLOCK_POOL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tenon {

// Blocks come from the system aligned to, and asking for, huge pages. A block that is given back is
// kept while all kept ones together stay within the limit, the least recently used go first; it
// serves a later request for its size or little less, and what it has too much goes back to the
// system: so a block never holds more than was asked for. Thread-safe; outlives its blocks.
class BlockPool {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit BlockPool(std::function<TimePoint()> now = std::chrono::steady_clock::now)
      : now_(std::move(now)) {}
  ~BlockPool() { Trim(0); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // The pool of the process; it keeps nothing until it is given a limit. Never destroyed.
  static BlockPool& Shared();

  // Uninitialised memory of `bytes` (> 0) bytes, aligned to 2 MiB; null when the system refuses.
  void* Take(int64_t bytes);
  // Takes back what Take gave for as many bytes.
  void Give(void* memory, int64_t bytes);

  // Bytes to keep at most, 0 at first. What is kept beyond goes back to the system.
  void SetLimit(int64_t bytes);
  // Gives kept blocks back to the system, least recently used first, until at most `keep_bytes`
  // are kept.
  void Trim(int64_t keep_bytes);
  // The same with all blocks that nobody has used for `idle`.
  void TrimIdle(std::chrono::steady_clock::duration idle);
  // Bytes kept, in use by nobody.
  int64_t kept_bytes() const;
  // Bytes taken and not given back.
  int64_t taken_bytes() const;

 private:
  struct Block {
    char* memory;
    int64_t bytes;  // a multiple of the page size
    TimePoint given;
  };

  // Those at the front that exceed `keep_bytes`, removed from kept_; with mutex_ held.
  std::vector<Block> Excess(int64_t keep_bytes);
  static void Unmap(const std::vector<Block>& blocks);

  const std::function<TimePoint()> now_;
  mutable std::mutex mutex_;
  int64_t limit_bytes_ = 0, kept_bytes_ = 0, taken_bytes_ = 0;
  std::vector<Block> kept_;  // least recently used first
};

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_BLOCK_POOL_H_
