// Which of several jobs may run its next group of slices on a provider.

#ifndef TENON_BACKENDS_PLUGIN_WORKER_GATE_H_
#define TENON_BACKENDS_PLUGIN_WORKER_GATE_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/cancel.h"

namespace tenon::plugin {

// At most `slots` groups run at once, of all jobs together. A slot that gets free goes to the
// waiting job that holds the fewest, and among equals to the one that got one least recently: jobs
// share a provider evenly whatever their numbers of workers, and a job alone never waits as long as
// it has no more workers than there are slots. Thread-safe; outlives its slots.
class WorkerGate {
 public:
  explicit WorkerGate(int slots) : free_(slots) {}

  // A slot, given back when it goes.
  class Slot {
   public:
    Slot(Slot&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), job_(other.job_) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (gate_ != nullptr) gate_->Leave(job_);
    }

   private:
    friend class WorkerGate;
    Slot(WorkerGate* gate, const void* job) : gate_(gate), job_(job) {}
    WorkerGate* gate_;
    const void* job_;
  };

  // Waits for a slot for `job`, which is only an identity. The error of `cancel` when that stops
  // first, or has already.
  absl::StatusOr<Slot> Enter(const void* job, const CancelToken& cancel);
  // Callers that wait in Enter.
  int waiting() const;

 private:
  // A job that holds slots or waits for some.
  struct Share {
    const void* job = nullptr;
    int held = 0, waiting = 0;
    int64_t last_turn = 0;
  };

  Share& ShareOf(const void* job);
  bool IsNext(const void* job) const;
  void Forget(const void* job);
  void Leave(const void* job);

  mutable std::mutex mutex_;
  std::condition_variable freed_;
  int free_;
  int64_t turn_ = 0;
  std::vector<Share> shares_;
};

}  // namespace tenon::plugin

#endif  // TENON_BACKENDS_PLUGIN_WORKER_GATE_H_
