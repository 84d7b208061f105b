// Divides the cores among the requests that compute, so that many of them together run no more
// threads than there are cores.

#ifndef TENON_BACKENDS_CORE_CPU_SHARE_H_
#define TENON_BACKENDS_CORE_CPU_SHARE_H_

#include <atomic>

namespace tenon {

// One request that computes, while this lives. A lone request has all cores; of several each has
// its part from its next loop, or group of slices, on, and gets back what others leave. Results
// never depend on it.
//
// One for the process; entering, leaving and asking cost an atomic or two. What computes without
// such an object (a command, a test) has all cores.
class CpuShare {
 public:
  CpuShare();
  ~CpuShare();
  CpuShare(const CpuShare&) = delete;
  CpuShare& operator=(const CpuShare&) = delete;

  // Threads that each request may run now: the cores divided by the requests, at least 1.
  static int Threads();

  // Holds back the `worker`-th thread of a request (from 0) until that many threads are its share,
  // or `over` is set, after which WakeAll must be called. The first one never waits. To be called
  // where the thread holds nothing that others of its request wait for.
  static void AwaitTurn(int worker, const std::atomic<bool>& over);
  static void WakeAll();

  // The cores there are to divide, >= 1. Until it is called: those this process may run on.
  static void SetCores(int cores);
};

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_CPU_SHARE_H_
