// Ends streams from outside: those whose client has stopped reading or sending, and all on the way
// out.

#ifndef TENON_SERVER_WRITE_WATCHDOG_H_
#define TENON_SERVER_WRITE_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace tenon::server {

// Since when a stream has been waiting for its client, with nothing else to do.
struct ClientWaits {
  using TimePoint = std::chrono::steady_clock::time_point;
  std::optional<TimePoint> upload;  // for the rest of what it has begun to send
  std::optional<TimePoint> next;    // for a header, or another set or item
};

// What the watchdog asks a stream; all but the first two without the watchdog's lock.
class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  virtual ClientWaits WaitsForClient() { return {}; }
  // Whether a write that began before `limit` is still not done.
  virtual bool WriteStalledSince(std::chrono::steady_clock::time_point limit) = 0;
  // Ends the call with SLOW_READER.
  virtual void CutSlowReader() = 0;
  // Ends the call with `why`, an error of the server's.
  virtual void EndCall(const absl::Status& why) = 0;
};

// How long a client may keep a stream waiting; 0 is forever.
struct StallLimits {
  std::chrono::milliseconds write{0};   // that it does not read
  std::chrono::milliseconds upload{0};  // in the middle of an upload
  std::chrono::milliseconds idle{0};    // between them

  bool operator==(const StallLimits&) const = default;
};

// One thread for all streams. Thread-safe.
class WriteWatchdog {
 public:
  explicit WriteWatchdog(const StallLimits& limits);
  // Of writes alone.
  explicit WriteWatchdog(std::chrono::milliseconds stall_limit);
  ~WriteWatchdog();
  WriteWatchdog(const WriteWatchdog&) = delete;
  WriteWatchdog& operator=(const WriteWatchdog&) = delete;

  // Holds for what has begun, too.
  void SetLimits(const StallLimits& limits);
  StallLimits limits() const;

  void Add(WatchedStream* stream);
  // Waits while the stream is being looked at or ended, except when that itself leads here.
  void Remove(WatchedStream* stream);
  // Ends all streams that there are.
  void EndAll(const absl::Status& why);

 private:
  void Run();
  void EndStalled(std::unique_lock<std::mutex>* lock);
  // Calls `end` for those of `streams` that still live, with `lock` released meanwhile.
  void End(const std::vector<WatchedStream*>& streams, std::unique_lock<std::mutex>* lock,
           const std::function<void(WatchedStream*)>& end);

  mutable std::mutex mutex_;
  StallLimits limits_;
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
