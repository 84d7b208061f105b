// Ends streams from outside: those whose client has stopped reading, and all on the way out.

#ifndef TENON_SERVER_WRITE_WATCHDOG_H_
#define TENON_SERVER_WRITE_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace tenon::server {

// What the watchdog asks a stream; all but the first without the watchdog's lock.
class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  // Whether a write that began before `limit` is still not done.
  virtual bool WriteStalledSince(std::chrono::steady_clock::time_point limit) = 0;
  // Ends the call with SLOW_READER.
  virtual void CutSlowReader() = 0;
  // Ends the call with `why`, an error of the server's.
  virtual void EndCall(const absl::Status& why) = 0;
};

// One thread for all streams. Thread-safe.
class WriteWatchdog {
 public:
  explicit WriteWatchdog(std::chrono::milliseconds stall_limit);
  ~WriteWatchdog();
  WriteWatchdog(const WriteWatchdog&) = delete;
  WriteWatchdog& operator=(const WriteWatchdog&) = delete;

  // Holds for writes that have begun, too.
  void SetStallLimit(std::chrono::milliseconds limit);

  void Add(WatchedStream* stream);
  // Waits while the stream is being looked at or ended, except when that itself leads here.
  void Remove(WatchedStream* stream);
  // Ends all streams that there are.
  void EndAll(const absl::Status& why);

 private:
  void Run();
  // Calls `end` for those of `streams` that still live, with `lock` released meanwhile.
  void End(const std::vector<WatchedStream*>& streams, std::unique_lock<std::mutex>* lock,
           const std::function<void(WatchedStream*)>& end);

  std::mutex mutex_;
  std::chrono::milliseconds stall_limit_;
  std::condition_variable stop_;
  std::condition_variable end_done_;
  std::set<WatchedStream*> streams_;
  WatchedStream* ending_ = nullptr;
  std::thread::id ender_;  // the thread that ends it
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_WRITE_WATCHDOG_H_
