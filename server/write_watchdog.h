// Cuts streams whose client has stopped reading.

#ifndef TENON_SERVER_WRITE_WATCHDOG_H_
#define TENON_SERVER_WRITE_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

namespace tenon::server {

// What the watchdog asks a stream. Both are called from its thread, Cut without the watchdog's
// lock.
class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  // Whether a write that began before `limit` is still not done.
  virtual bool WriteStalledSince(std::chrono::steady_clock::time_point limit) = 0;
  // Ends the call with SLOW_READER.
  virtual void Cut() = 0;
};

// One thread for all streams. Thread-safe.
class WriteWatchdog {
 public:
  explicit WriteWatchdog(std::chrono::milliseconds stall_limit);
  ~WriteWatchdog();
  WriteWatchdog(const WriteWatchdog&) = delete;
  WriteWatchdog& operator=(const WriteWatchdog&) = delete;

  void Add(WatchedStream* stream);
  // Waits while the stream is being looked at or cut, except when Cut itself leads here.
  void Remove(WatchedStream* stream);

 private:
  void Run();

  const std::chrono::milliseconds stall_limit_;
  std::mutex mutex_;
  std::condition_variable stop_;
  std::condition_variable cut_done_;
  std::set<WatchedStream*> streams_;
  WatchedStream* cutting_ = nullptr;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_WRITE_WATCHDOG_H_
