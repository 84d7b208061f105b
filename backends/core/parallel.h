// Loops over independent blocks on the threads of one request.

#ifndef TENON_BACKENDS_CORE_PARALLEL_H_
#define TENON_BACKENDS_CORE_PARALLEL_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace tenon {

// `threads` threads and the request's cancellation flag (may be null). Thread-safe.
class Parallel {
 public:
  Parallel(int threads, const int32_t* cancel) : threads_(threads), cancel_(cancel) {}

  int threads() const { return threads_; }

  // The same with at most `threads` (>= 1) threads.
  Parallel Limited(int64_t threads) const;

  // For blocks that take long.
  bool cancelled() const;

  // CLIENT_CANCELLED once the flag is set.
  absl::Status CheckCancelled() const;

  // Calls body(block, slot) for every block in [0, blocks), in any order, on at most threads()
  // threads; `slot` < threads() is not used by two calls at once, so it can own scratch memory.
  // Stops early, with the error, when cancelled or when memory for the scheduler is refused.
  absl::Status ForEach(int64_t blocks,
                       const std::function<void(int64_t block, int slot)>& body) const;

 private:
  const int threads_;
  const int32_t* const cancel_;
};

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_PARALLEL_H_
