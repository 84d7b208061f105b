#include "server/allocator.h"

#include <malloc.h>

namespace tenon::server {

bool TuneAllocator() {
  constexpr int kMiB = 1 << 20;
  // Buffers of messages are far smaller than this; requests' tensors do not come from here.
  constexpr int kMmapThreshold = 1024 * kMiB;
  constexpr int kTrimThreshold = 32 * kMiB;
  constexpr int kTopPad = 4 * kMiB;
  constexpr int kArenas = 4;
  const bool arenas = mallopt(M_ARENA_MAX, kArenas) == 1;
  const bool trim = mallopt(M_TRIM_THRESHOLD, kTrimThreshold) == 1;
  const bool pad = mallopt(M_TOP_PAD, kTopPad) == 1;
  return mallopt(M_MMAP_THRESHOLD, kMmapThreshold) == 1 && arenas && trim && pad;
}

AllocatorStats ReadAllocatorStats() {
  const struct mallinfo2 info = mallinfo2();
  return {static_cast<int64_t>(info.arena), static_cast<int64_t>(info.uordblks),
          static_cast<int64_t>(info.hblkhd)};
}

}  // namespace tenon::server
