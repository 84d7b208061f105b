#include "backends/core/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace tenon {
namespace {

int CoresOfProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Never destroyed: threads may outlive static objects.
struct Shares {
  std::atomic<int> cores{CoresOfProcess()};
  std::atomic<int> requests{0};
  // Threads that are held back. Raised before a thread looks at its share for the last time, and
  // read after shares have changed: one of the two sees the other.
  std::atomic<int> held{0};
  std::mutex mutex;
  std::condition_variable changed;
};

Shares& TheOne() {
  static Shares& shares = *new Shares;
  return shares;
}

}  // namespace

CpuShare::CpuShare() { TheOne().requests.fetch_add(1); }

CpuShare::~CpuShare() {
  TheOne().requests.fetch_sub(1);
  WakeAll();
}

int CpuShare::Threads() {
  const Shares& shares = TheOne();
  return std::max(1, shares.cores.load() / std::max(1, shares.requests.load()));
}

void CpuShare::AwaitTurn(int worker, const std::atomic<bool>& over) {
  if (worker < Threads()) return;
  Shares& shares = TheOne();
  std::unique_lock lock(shares.mutex);
  shares.held.fetch_add(1);
  shares.changed.wait(lock, [&] { return worker < Threads() || over.load(); });
  shares.held.fetch_sub(1);
}

void CpuShare::WakeAll() {
  Shares& shares = TheOne();
  if (shares.held.load() == 0) return;
  { const std::lock_guard lock(shares.mutex); }  // whoever was about to wait does so now
  shares.changed.notify_all();
}

void CpuShare::SetCores(int cores) {
  TheOne().cores.store(std::max(1, cores));
  WakeAll();
}

}  // namespace tenon
