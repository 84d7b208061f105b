// Notices work that does not stop when it is told to, and work that takes very long.

#ifndef TENON_SERVER_WORK_WATCH_H_
#define TENON_SERVER_WORK_WATCH_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/core/cancel.h"
#include "server/logging.h"

namespace tenon::server {

// Every task of a request that occupies a worker, and a job that computes, is entered here. How
// long honest work takes is not known, but cancelled work ends within a tenth of a second: a task
// that runs when its token was cancelled, or its deadline passed, `limit` ago is stuck, and its
// worker is lost. Stuck tasks are logged with their request, each once, and the watch says stuck()
// until none has been left for `limit`: the state does not flap. A task that has not been told to
// stop and runs for long may be honest: it is logged once, and changes nothing. Thread-safe.
class WorkWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // A task that runs now.
  struct Task {
    std::string method, request_id;  // of a job its id
    std::string phase;               // what it does: "planning", "scoring"
    double running_seconds = 0;
    bool stuck = false;
  };

  // Enters a task for as long as it lives.
  class Entry {
   public:
    // `method` and `phase` are literals; the watch and `cancel` outlive the entry.
    Entry(WorkWatch* watch, const CancelToken* cancel, std::string_view method,
          std::string_view phase, std::string request_id);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class WorkWatch;
    WorkWatch* const watch_;
    const CancelToken* const cancel_;
    const std::string_view method_, phase_;
    const std::string request_id_;
    const Clock::time_point begun_;
    // The rest with the watch's lock held.
    size_t place_ = 0;
    std::optional<Clock::time_point> told_to_stop_;  // when that was noticed
    bool stuck_ = false, slow_ = false;              // and logged
  };

  // Limits of 0: off.
  struct Limits {
    std::chrono::milliseconds stuck{0};
    std::chrono::milliseconds slow{0};  // that a task runs before it is logged
  };

  explicit WorkWatch(std::function<Clock::time_point()> now = Clock::now) : now_(std::move(now)) {}
  ~WorkWatch() { Stop(); }
  WorkWatch(const WorkWatch&) = delete;
  WorkWatch& operator=(const WorkWatch&) = delete;

  // Sets the limits and who is told, on whatever thread looks and without a lock held, when stuck()
  // has changed. Once, before the first look.
  void Configure(const Limits& limits, std::function<void()> changed);
  // Looks from now on, on a thread of its own, several times within the shorter limit.
  void Start();
  // Ends that; `changed` is not called afterwards.
  void Stop();
  void Look();

  bool stuck() const;
  // The longest running first.
  std::vector<Task> Running() const;

 private:
  void Run();
  Task Describe(const Entry& entry, Clock::time_point now) const;
  // With mutex_ held: whether the entry is stuck now; notes since when it is told to stop.
  bool IsStuck(Entry* entry, Clock::time_point now) const;

  const std::function<Clock::time_point()> now_;
  Limits limits_;
  std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  std::vector<Entry*> entries_;
  bool is_stuck_ = false, stopped_ = false;
  Clock::time_point last_stuck_;
  std::thread thread_;
};

// One line about a task.
void LogTask(LogLevel level, std::string_view event, const WorkWatch::Task& task);

}  // namespace tenon::server

#endif  // TENON_SERVER_WORK_WATCH_H_
