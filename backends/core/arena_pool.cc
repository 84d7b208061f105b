#include "backends/core/arena_pool.h"

#include <tbb/global_control.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace tenon {
namespace {

using Arenas = std::vector<std::unique_ptr<tbb::task_arena>>;

struct Pool {
  std::mutex mutex;
  std::map<int, Arenas> idle;  // by number of threads
  int64_t made = 0;
};

// Never destroyed: threads of the library may outlive static objects.
Pool& TheOne() {
  static Pool& pool = *new Pool;
  return pool;
}

}  // namespace

ArenaLease LeaseArena(int threads) {
  // TBB complains about arenas that are larger than the process allows.
  const auto allowed = static_cast<int>(
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
  const int size = std::clamp(threads, 1, allowed);
  Pool& pool = TheOne();
  const std::lock_guard lock(pool.mutex);
  Arenas& idle = pool.idle[size];
  if (idle.empty()) {
    auto arena = std::make_unique<tbb::task_arena>(size);
    idle.reserve(pool.made + 1);  // giving it back must not need memory
    ++pool.made;
    return ArenaLease(arena.release());
  }
  ArenaLease lease(idle.back().release());
  idle.pop_back();
  return lease;
}

void ReturnArena::operator()(tbb::task_arena* arena) const {
  Pool& pool = TheOne();
  const std::lock_guard lock(pool.mutex);
  pool.idle[arena->max_concurrency()].emplace_back(arena);
}

int64_t ArenasMade() {
  Pool& pool = TheOne();
  const std::lock_guard lock(pool.mutex);
  return pool.made;
}

}  // namespace tenon
