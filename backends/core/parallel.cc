#include "backends/core/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <exception>
#include <new>

#include "backends/core/arena_pool.h"
#include "backends/core/cancel.h"
#include "backends/core/error.h"

namespace tenon {

Parallel Parallel::Limited(int64_t threads) const {
  return Parallel(static_cast<int>(std::min(threads, int64_t{threads_})), cancel_);
}

bool Parallel::cancelled() const { return IsCancelled(cancel_); }

absl::Status Parallel::CheckCancelled() const {
  if (!cancelled()) return absl::OkStatus();
  return Error(Reason::kClientCancelled, "the request was cancelled while it was running");
}

absl::Status Parallel::ForEach(int64_t blocks,
                               const std::function<void(int64_t, int)>& body) const {
  if (threads_ == 1 || blocks <= 1) {
    for (int64_t block = 0; block < blocks; ++block) {
      TENON_RETURN_IF_ERROR(CheckCancelled());
      body(block, 0);
    }
    return CheckCancelled();
  }
  try {
    const ArenaLease arena = LeaseArena(threads_);
    arena->execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<int64_t>(0, blocks, 1),
          [&](const tbb::blocked_range<int64_t>& range) {
            for (int64_t block = range.begin(); block < range.end() && !cancelled(); ++block) {
              body(block, tbb::this_task_arena::current_thread_index());
            }
          },
          tbb::simple_partitioner());
    });
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "the system refused memory for parallel work");
  } catch (const std::exception& error) {
    return Error(Reason::kInternal, absl::StrCat("parallel work failed: ", error.what()));
  }
  return CheckCancelled();
}

}  // namespace tenon
