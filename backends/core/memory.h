// The one place where host memory of request size comes from.

#ifndef TENON_BACKENDS_CORE_MEMORY_H_
#define TENON_BACKENDS_CORE_MEMORY_H_

#include <cstdint>

namespace tenon {

constexpr int64_t kCacheLineBytes = 64;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// Uninitialised memory of `bytes` bytes, aligned to the larger of `alignment` (a power of two, at
// most 2 MiB) and a cache line; blocks of at least 2 MiB come from BlockPool::Shared() (core/
// block_pool.h), aligned to huge pages. 0 bytes give a pointer that is not null. Null when the
// system refuses, when `bytes` is negative or when `alignment` is not as said. Thread-safe.
void* AllocateMemory(int64_t bytes, int64_t alignment);

// Gives back what AllocateMemory gave for as many bytes; null is ignored.
void ReleaseMemory(void* memory, int64_t bytes);

// Has the system provide the pages of [begin, begin + bytes) now, if it can. Contents stay.
// Thread-safe.
void PopulateMemory(void* begin, int64_t bytes);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_MEMORY_H_
