#include "backends/core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace tenon {

void* AllocateMemory(int64_t bytes, int64_t alignment) {
  if (bytes < 0 || alignment <= 0 || alignment > kHugePageBytes ||
      (alignment & (alignment - 1)) != 0) {
    return nullptr;
  }
  alignment = std::max(alignment, bytes >= kHugePageBytes ? kHugePageBytes : kCacheLineBytes);
  if (bytes > std::numeric_limits<int64_t>::max() - alignment) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, std::max<int64_t>(bytes, 1)) != 0) return nullptr;
  // Advice only: a kernel without huge pages gives ordinary ones.
  if (bytes >= kHugePageBytes) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void ReleaseMemory(void* memory) { std::free(memory); }

}  // namespace tenon
