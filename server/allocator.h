// Tuning of the C library's allocator, for the server's process only.

#ifndef TENON_SERVER_ALLOCATOR_H_
#define TENON_SERVER_ALLOCATOR_H_

namespace tenon::server {

// Called in main before any thread exists; false when the allocator refuses a setting.
//
// By default every buffer of a message above 128 KiB is mapped anew and its pages are cleared by
// the kernel. Kept in the heap instead, downloads of 1 MiB chunks went from 1.2-1.5 GB/s to
// 2.6-2.9 GB/s and uploads from 1.9-2.3 to 3.3 (loopback TCP, one stream). What the heap keeps
// beyond need is bounded by the trim threshold per arena, and the number of arenas is bounded.
bool TuneAllocator();

}  // namespace tenon::server

#endif  // TENON_SERVER_ALLOCATOR_H_
