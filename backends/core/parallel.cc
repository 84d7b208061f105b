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

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace tenon {
namespace {

// Tells the thread sanitizer what it cannot see, because the distribution's oneTBB is not built for
// it: what comes before a loop is known to all of its blocks, and they to what comes after.
class LoopOrder {
 public:
#if defined(__SANITIZE_THREAD__)
  void LoopBegins() { __tsan_release(&begin_); }
  void BlockBegins() { __tsan_acquire(&begin_); }
  void BlockEnds() { __tsan_release(&end_); }
  void LoopEnds() { __tsan_acquire(&end_); }

 private:
  char begin_ = 0, end_ = 0;
#else
  void LoopBegins() {}
  void BlockBegins() {}
  void BlockEnds() {}
  void LoopEnds() {}
#endif
};

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
  if (threads_ == 1 || blocks <= 1) {
    for (int64_t block = 0; block < blocks; ++block) {
      TENON_RETURN_IF_ERROR(CheckCancelled());
      body(block, 0);
    }
    return CheckCancelled();
  }
  LoopOrder order;
  order.LoopBegins();
  try {
    const ArenaLease arena = LeaseArena(threads_);
    arena->execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<int64_t>(0, blocks, 1),
          [&](const tbb::blocked_range<int64_t>& range) {
            order.BlockBegins();
            for (int64_t block = range.begin(); block < range.end() && !cancelled(); ++block) {
              body(block, tbb::this_task_arena::current_thread_index());
            }
            order.BlockEnds();
          },
          tbb::simple_partitioner());
    });
    order.LoopEnds();
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "the system refused memory for parallel work");
  } catch (const std::exception& error) {
    return Error(Reason::kInternal, absl::StrCat("parallel work failed: ", error.what()));
  }
  return CheckCancelled();
}

}  // namespace tenon
