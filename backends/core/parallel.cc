#include "backends/core/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "backends/core/arena_pool.h"
#include "backends/core/cancel.h"
#include "backends/core/cpu_share.h"
#include "backends/core/error.h"

namespace tenon {
namespace {

using Body = std::function<void(int64_t, int)>;

#if defined(__SANITIZE_THREAD__)
// The distribution's oneTBB is not built for the thread sanitizer, which sees races in its
// hand-over of tasks. Plain threads share the same data between the same blocks.
void Loop(int threads, int64_t blocks, const Parallel& parallel, const Body& body) {
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> workers;
  for (int slot = 0; slot < std::min<int64_t>(threads, blocks); ++slot) {
    workers.emplace_back([&, slot] {
      while (!parallel.cancelled()) {
        const int64_t block = next++;
        if (block >= blocks) return;
        body(block, slot);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}
#else
void Loop(int threads, int64_t blocks, const Parallel& parallel, const Body& body) {
  const ArenaLease arena = LeaseArena(threads);
  arena->execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, blocks, 1),
        [&](const tbb::blocked_range<int64_t>& range) {
          for (int64_t block = range.begin(); block < range.end() && !parallel.cancelled();
               ++block) {
            body(block, tbb::this_task_arena::current_thread_index());
          }
        },
        tbb::simple_partitioner());
  });
}
#endif

}  // namespace

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
  const int threads = std::min(threads_, CpuShare::Threads());
  if (threads == 1 || blocks <= 1) {
    for (int64_t block = 0; block < blocks; ++block) {
      TENON_RETURN_IF_ERROR(CheckCancelled());
      body(block, 0);
    }
    return CheckCancelled();
  }
  try {
    Loop(threads, blocks, *this, body);
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "the system refused memory for parallel work");
  } catch (const std::exception& error) {
    return Error(Reason::kInternal, absl::StrCat("parallel work failed: ", error.what()));
  }
  return CheckCancelled();
}

}  // namespace tenon
