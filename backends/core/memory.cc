#include "backends/core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "backends/core/block_pool.h"

namespace tenon {
namespace {

// More than any process can address. Refused here: a sanitizer's allocator ends the process
// instead.
constexpr int64_t kAddressSpaceBytes = int64_t{1} << 47;

#ifdef __SANITIZE_ADDRESS__
#define TENON_ADDRESS_SANITIZER
#elif defined(__has_feature)  // how clang tells
#if __has_feature(address_sanitizer)
#define TENON_ADDRESS_SANITIZER
#endif
#endif

// Under the address sanitizer every block has its guards.
#ifdef TENON_ADDRESS_SANITIZER
bool IsPooled(int64_t) { return false; }
#else
bool IsPooled(int64_t bytes) { return bytes >= kHugePageBytes; }
#endif

}  // namespace

void* AllocateMemory(int64_t bytes, int64_t alignment) {
  if (bytes < 0 || bytes > kAddressSpaceBytes || alignment <= 0 || alignment > kHugePageBytes ||
      (alignment & (alignment - 1)) != 0) {
    return nullptr;
  }
  if (IsPooled(bytes)) return BlockPool::Shared().Take(bytes);
  alignment = std::max(alignment, bytes >= kHugePageBytes ? kHugePageBytes : kCacheLineBytes);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, std::max<int64_t>(bytes, 1)) != 0) return nullptr;
  return memory;
}

void ReleaseMemory(void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  if (IsPooled(bytes)) return BlockPool::Shared().Give(memory, bytes);
  std::free(memory);
}

void PopulateMemory(void* begin, int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  constexpr uintptr_t kPageBytes = 4096;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + kPageBytes - 1) / kPageBytes;
  const uintptr_t last =
      (reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(bytes)) / kPageBytes;
  if (first >= last) return;
  // Refused by older systems: then pages come when they are first written.
  madvise(reinterpret_cast<void*>(first * kPageBytes), (last - first) * kPageBytes,
          MADV_POPULATE_WRITE);
#else
  (void)begin, (void)bytes;
#endif
}

}  // namespace tenon
