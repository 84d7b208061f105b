// The threads of one execution, with their scratch.

#ifndef TENON_BACKENDS_CPU_THREADS_H_
#define TENON_BACKENDS_CPU_THREADS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "backends/core/arena_pool.h"
#include "backends/core/cancel.h"

namespace tenon::cpu {

// Cores this process may run on, at least 1.
int UsableCores();

// Memory that a thread has to itself while it runs a range of a loop.
struct Scratch {
  std::byte* data = nullptr;
  bool is_kept = false;  // holds what the thread's last range of the same loop has left
};

// Runs loops on a fixed number of threads, which several callers may share: while as many of them
// are at work as there are threads, each runs its loops alone; a thread that has nothing to do
// helps the others with theirs. Thread-safe.
class ThreadTeam {
 public:
  // Of `threads`, those that a team gets: no more than the process allows (by default, one for each
  // core).
  static int Threads(int threads);

  // Threads(threads) of them.
  // `scratch` holds `threads` pieces of `scratch_bytes` each (a multiple of 64); the caller's.
  ThreadTeam(int threads, std::byte* scratch, int64_t scratch_bytes);

  int threads() const { return threads_; }

  // Runs `body`, which may call For, on one of the threads, once one is free.
  void Enter(absl::FunctionRef<void()> body);

  // One range of a loop and the scratch of the thread that runs it.
  using Body = absl::FunctionRef<void(int64_t begin, int64_t end, Scratch scratch)>;

  // Calls `body` for disjoint ranges that cover [0, count), each at least `grain` long but the
  // last. Ranges depend on the number of threads; so `body` must do the same for every index
  // whatever range it lies in. Exceptions of `body` are rethrown.
  void For(int64_t count, int64_t grain, Body body);

 private:
  void RunLoop(int64_t count, int64_t grain, Body body);
  // Of the thread in `slot`, which begins a range of loop number `loop`.
  Scratch ScratchFor(int slot, int64_t loop) {
    return {scratch_ + slot * scratch_bytes_, std::exchange(loops_[slot], loop) == loop};
  }

  const int threads_;
  std::atomic<int> busy_{0};  // threads that have entered
  std::byte* const scratch_;
  const int64_t scratch_bytes_;
  std::atomic<int64_t> next_loop_{1};
  std::vector<int64_t> loops_;  // that last used the scratch, by thread
  ArenaLease arena_;            // null where one thread is all that was asked for
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_THREADS_H_
