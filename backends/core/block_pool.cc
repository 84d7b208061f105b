#include "backends/core/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "backends/core/memory.h"

namespace tenon {
namespace {

constexpr int64_t kPageBytes = 4096;
// A kept block serves requests that are up to an eighth smaller: a block is not cut to pieces for
// small ones while its next user has to map anew.
constexpr int64_t kFitDivisor = 8;

int64_t RoundToPages(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Maps more than is wanted and cuts off what is not aligned.
char* Map(int64_t bytes) {
  const int64_t mapped = bytes + kHugePageBytes;
  void* const whole =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(whole);
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(whole) % kHugePageBytes);
  const int64_t head = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + bytes, mapped - head - bytes);
  // Advice only: a kernel without huge pages gives ordinary ones.
  madvise(begin + head, bytes, MADV_HUGEPAGE);
  return begin + head;
}

}  // namespace

BlockPool& BlockPool::Shared() {
  static auto& pool = *new BlockPool();
  return pool;
}

void* BlockPool::Take(int64_t bytes) {
  if (bytes <= 0 || bytes > std::numeric_limits<int64_t>::max() / 2) return nullptr;
  bytes = RoundToPages(bytes);
  Block found{nullptr, 0, {}};
  {
    std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto block = kept_.begin(); block != kept_.end(); ++block) {
      if (block->bytes < bytes || block->bytes - bytes > block->bytes / kFitDivisor) continue;
      // Of equal ones the latest, whose pages may still be in a cache.
      if (best == kept_.end() || block->bytes <= best->bytes) best = block;
    }
    if (best != kept_.end()) {
      found = *best;
      kept_bytes_ -= found.bytes;
      kept_.erase(best);
    }
    taken_bytes_ += bytes;
  }
  if (found.memory == nullptr) {
    char* const mapped = Map(bytes);
    if (mapped != nullptr) return mapped;
    std::lock_guard lock(mutex_);
    taken_bytes_ -= bytes;
    return nullptr;
  }
  if (found.bytes > bytes) munmap(found.memory + bytes, found.bytes - bytes);
  return found.memory;
}

void BlockPool::Give(void* memory, int64_t bytes) {
  std::vector<Block> excess;
  {
    const Block block{static_cast<char*>(memory), RoundToPages(bytes), now_()};
    std::lock_guard lock(mutex_);
    taken_bytes_ -= block.bytes;
    if (block.bytes > limit_bytes_) {
      excess.push_back(block);
    } else {
      excess = Excess(limit_bytes_ - block.bytes);
      kept_.push_back(block);
      kept_bytes_ += block.bytes;
    }
  }
  Unmap(excess);
}

void BlockPool::SetLimit(int64_t bytes) {
  std::vector<Block> excess;
  {
    std::lock_guard lock(mutex_);
    limit_bytes_ = bytes;
    excess = Excess(bytes);
  }
  Unmap(excess);
}

void BlockPool::Trim(int64_t keep_bytes) {
  std::vector<Block> excess;
  {
    std::lock_guard lock(mutex_);
    excess = Excess(keep_bytes);
  }
  Unmap(excess);
}

void BlockPool::TrimIdle(std::chrono::steady_clock::duration idle) {
  std::vector<Block> excess;
  const TimePoint limit = now_() - idle;
  {
    std::lock_guard lock(mutex_);
    int64_t younger = 0;
    for (const Block& block : kept_) younger += block.given > limit ? block.bytes : 0;
    excess = Excess(younger);
  }
  Unmap(excess);
}

int64_t BlockPool::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return kept_bytes_;
}

int64_t BlockPool::taken_bytes() const {
  std::lock_guard lock(mutex_);
  return taken_bytes_;
}

std::vector<BlockPool::Block> BlockPool::Excess(int64_t keep_bytes) {
  auto last = kept_.begin();
  while (kept_bytes_ > std::max<int64_t>(keep_bytes, 0) && last != kept_.end()) {
    kept_bytes_ -= last->bytes;
    ++last;
  }
  std::vector<Block> excess(kept_.begin(), last);
  kept_.erase(kept_.begin(), last);
  return excess;
}

// Without the lock: the system takes milliseconds for large blocks.
void BlockPool::Unmap(const std::vector<Block>& blocks) {
  for (const Block& block : blocks) munmap(block.memory, block.bytes);
}

}  // namespace tenon
