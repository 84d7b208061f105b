// A lock that nobody starves at.

#ifndef TENON_SERVER_FAIR_MUTEX_H_
#define TENON_SERVER_FAIR_MUTEX_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tenon::server {

// Whoever waits gets it in the order of coming. Of a std::mutex, a thread that gives it back and
// takes it again at once, as one that writes much in many short steps does, leaves nothing to those
// that wait. Thread-safe; for std::lock_guard.
class FairMutex {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t turn = last_++;
    changed_.wait(lock, [&] { return turn == now_; });
  }
  void unlock() {
    {
      std::lock_guard lock(mutex_);
      ++now_;
    }
    changed_.notify_all();
  }
  // Those that hold it or wait for it.
  uint64_t users() const {
    std::lock_guard lock(mutex_);
    return last_ - now_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t last_ = 0;  // turn of who comes next
  uint64_t now_ = 0;   // whose turn it is
};

}  // namespace tenon::server

#endif  // TENON_SERVER_FAIR_MUTEX_H_
