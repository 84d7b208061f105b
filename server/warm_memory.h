// Lets the process keep memory for the next request, for a while.

#ifndef TENON_SERVER_WARM_MEMORY_H_
#define TENON_SERVER_WARM_MEMORY_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "backends/core/block_pool.h"

namespace tenon::server {

// While it lives, `pool` keeps up to `limit_bytes` of released blocks, each until it has not been
// used for kIdle. Afterwards the pool keeps nothing.
class WarmMemory {
 public:
  static constexpr std::chrono::seconds kIdle{10};

  // `pool` outlives this.
  WarmMemory(BlockPool* pool, int64_t limit_bytes);
  ~WarmMemory();
  WarmMemory(const WarmMemory&) = delete;
  WarmMemory& operator=(const WarmMemory&) = delete;

 private:
  void Run();

  BlockPool* const pool_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_WARM_MEMORY_H_
