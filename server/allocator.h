// The C library's allocator: its tuning, for the server's process only, and what it holds.

#ifndef TENON_SERVER_ALLOCATOR_H_
#define TENON_SERVER_ALLOCATOR_H_

#include <cstdint>

namespace tenon::server {

// Called in main before any thread exists; false when the allocator refuses a setting.
//
// By default every buffer of a message above 128 KiB is mapped anew and its pages are cleared by
// the kernel. Kept in the heap instead, downloads of 1 MiB chunks went from 1.2-1.5 GB/s to
// 2.6-2.9 GB/s and uploads from 1.9-2.3 to 3.3 (loopback TCP, one stream). What the heap keeps
// beyond need is bounded by the trim threshold per arena, and the number of arenas is bounded.
bool TuneAllocator();

// What the allocator holds now, all arenas together, in bytes. Requests' tensors are not in it:
// BlockPool counts those. Takes each arena's lock for a moment; thread-safe.
struct AllocatorStats {
  int64_t arena_bytes = 0;   // of the heaps: in_use_bytes and what they keep beside that
  int64_t in_use_bytes = 0;  // in the heaps
  int64_t mapped_bytes = 0;  // mapped one by one, beside the heaps
};
AllocatorStats ReadAllocatorStats();

}  // namespace tenon::server

#endif  // TENON_SERVER_ALLOCATOR_H_
