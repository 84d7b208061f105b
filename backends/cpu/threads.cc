#include "backends/cpu/threads.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "backends/core/cpu_share.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/global_control.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/partitioner.h"

namespace tenon::cpu {
namespace {

// Threads that the library starts at all: one for each core, unless the process says otherwise.
int LargestTeam() {
  return static_cast<int>(
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
}

// The team that the thread has entered, and its place there.
struct Seat {
  const ThreadTeam* team = nullptr;
  int slot = 0;
};
thread_local Seat seat;

}  // namespace

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return std::max(1, tbb::info::default_concurrency());
  return std::max(1, CPU_COUNT(&set));
}

int ThreadTeam::Threads(int threads) { return std::clamp(threads, 1, LargestTeam()); }

ThreadTeam::ThreadTeam(int threads, std::byte* scratch, int64_t scratch_bytes)
    : threads_(Threads(threads)),
      scratch_(scratch),
      scratch_bytes_(scratch_bytes),
      loops_(threads_) {
  if (threads > 1) arena_ = LeaseArena(threads_);
}

void ThreadTeam::Enter(absl::FunctionRef<void()> body) {
  if (arena_ == nullptr) return body();
  arena_->execute([&] {
    ++busy_;
    const Seat outside = std::exchange(seat, {this, tbb::this_task_arena::current_thread_index()});
    const absl::Cleanup leave = [this, outside] {
      seat = outside;
      --busy_;
    };
    body();
  });
}

void ThreadTeam::For(int64_t count, int64_t grain, Body body) {
  grain = std::max<int64_t>(grain, 1);
  if (count <= 0) return;
  if (arena_ == nullptr) return body(0, count, {scratch_, false});
  const int share = std::min(threads_, CpuShare::Threads());
  const bool is_alone = count <= grain || busy_.load(std::memory_order_relaxed) >= share;
  const int64_t alone = 0;  // no loop's number
  if (is_alone && seat.team == this)
    return body(0, count, {ScratchFor(seat.slot, alone).data, false});
  arena_->execute([&] {
    if (!is_alone) return RunLoop(count, grain, body);
    body(0, count, {ScratchFor(tbb::this_task_arena::current_thread_index(), alone).data, false});
  });
}

// Inside the arena.
void ThreadTeam::RunLoop(int64_t count, int64_t grain, Body body) {
  // A few ranges per thread even out their speeds; more would only cost.
  constexpr int64_t kRangesPerThread = 8;
  grain = std::max(grain, count / (threads_ * kRangesPerThread));
  const int64_t loop = next_loop_.fetch_add(1, std::memory_order_relaxed);
  // While it waits, a thread must not begin the work of another caller: that could take long.
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, count, static_cast<size_t>(grain)),
        [&](const tbb::blocked_range<int64_t>& range) {
          body(range.begin(), range.end(),
               ScratchFor(tbb::this_task_arena::current_thread_index(), loop));
        },
        tbb::simple_partitioner());
  });
}

}  // namespace tenon::cpu
