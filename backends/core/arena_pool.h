// Thread arenas that are used again and again.

#ifndef TENON_BACKENDS_CORE_ARENA_POOL_H_
#define TENON_BACKENDS_CORE_ARENA_POOL_H_

#include <tbb/task_arena.h>

#include <cstdint>
#include <memory>

namespace tenon {

// Gives an arena back to the pool.
struct ReturnArena {
  void operator()(tbb::task_arena* arena) const;
};

// An arena that nobody else has, until it is destroyed.
using ArenaLease = std::unique_ptr<tbb::task_arena, ReturnArena>;

// An arena of as many threads, or of those that the process allows, if fewer. oneTBB 2021.8 does
// not forget every arena that ends: its memory stays and its workers look through all of them. So
// the process makes no more arenas of a size than are ever leased at once. That each lease is the
// only one keeps a thread that waits in one loop from beginning the work of another request.
// Thread-safe.
ArenaLease LeaseArena(int threads);

// How many arenas the process has made so far.
int64_t ArenasMade();

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_ARENA_POOL_H_
