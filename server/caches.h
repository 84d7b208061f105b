// What the server keeps for later requests, in figures: for metrics and statistics alike.

#ifndef TENON_SERVER_CACHES_H_
#define TENON_SERVER_CACHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/state.h"

namespace tenon::server {

// One cache or store. Counts are since the start, the rest is now. A limit of 0: it has none of its
// own and lives in the memory budget.
struct CacheFigures {
  std::string name;
  int64_t hits = 0, misses = 0, evictions = 0;
  int64_t entries = 0, bytes = 0, limit_bytes = 0;
};

// "plan_cache", "program_cache", "datasets", "tensors", "resources", always all and in this order.
// A resource that was found built is a hit, one that was built a miss.
std::vector<CacheFigures> ReadCaches(ServerState& state);

}  // namespace tenon::server

#endif  // TENON_SERVER_CACHES_H_
