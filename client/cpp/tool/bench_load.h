// Load on a server, and what it shows: arrivals, workers, windows, and when figures are stable.
//
// Closed loop: every worker asks again when its answer is there. Open loop: requests are due at
// times that do not depend on the answers, and a latency counts from the time that was intended;
// a worker that is still busy then makes the request late, which is part of its latency. So a
// server that stalls can't hide what it kept waiting.

#ifndef TENON_CLIENT_CPP_TOOL_BENCH_LOAD_H_
#define TENON_CLIENT_CPP_TOOL_BENCH_LOAD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/tool/bench_histogram.h"
#include "tenon/call.h"

namespace tenon::tool {

using BenchTime = std::chrono::steady_clock::time_point;
using BenchDuration = std::chrono::steady_clock::duration;

// Time as the load sees it. Thread-safe.
class BenchClock {
 public:
  virtual ~BenchClock() = default;
  virtual BenchTime Now() = 0;
  // Returns at once when the time is past, and earlier when the program is interrupted.
  virtual void SleepUntil(BenchTime time) = 0;
};
// The steady clock. `canceller` outlives it.
std::unique_ptr<BenchClock> MakeSteadyClock(const client::Canceller* canceller);

struct LoadOptions {
  int concurrency = 1;         // workers, >= 1
  std::optional<double> rate;  // open loop: requests per second, > 0
  bool poisson = false;        // gaps of an open loop are exponential; false: all the same
  uint64_t seed = 1;           // of the gaps
  double warmup_seconds = 1;   // >= 0; not counted
  double window_seconds = 2;   // > 0
  int max_windows = 10;        // >= 1; then it ends, stable or not
  double stability = 0.1;      // how far the last windows may lie from their mean, as a share
  // Instead of waiting for stable windows: that long, or that many requests, in one piece.
  std::optional<double> duration_seconds;
  std::optional<int64_t> requests;
};

// When requests are due. Thread-safe.
class Arrivals {
 public:
  struct Arrival {
    int64_t number = 0;
    BenchTime intended;
  };
  // From `start` on, until `end` if there is one, at most `options.requests`. What an open loop has
  // due before the end is still given until `lateness` after it, so that a request is not lost
  // because every worker was busy in the last moment.
  Arrivals(const LoadOptions& options, BenchTime start, std::optional<BenchTime> end,
           BenchDuration lateness = BenchDuration::zero());

  // The next request; nullopt when there is no more.
  std::optional<Arrival> Next(BenchTime now);
  // Sets the end that was not known before.
  void EndAt(BenchTime end);
  // Open loop: the intended times of requests that were due before the end and that no worker took.
  std::vector<BenchTime> TakeUnsent();

 private:
  // With mutex_ held. Draws the gap once, however often it is asked before the request is taken.
  BenchTime NextIntended();
  BenchTime Take();
  bool Exhausted() const;

  const LoadOptions options_;
  const BenchDuration lateness_;
  std::mutex mutex_;
  std::optional<BenchTime> end_;
  std::mt19937_64 random_;
  BenchTime start_;
  BenchTime last_;                  // intended time of the last one that was taken
  std::optional<BenchTime> drawn_;  // of the next one
  int64_t taken_ = 0;
};

// Requests that ended within one stretch of time.
struct Window {
  std::vector<LatencyHistogram> latency;  // by kind; of those that succeeded
  std::map<std::string, int64_t> errors;  // by reason
  int64_t bytes = 0;

  int64_t succeeded() const;
  int64_t failed() const;
  LatencyHistogram All() const;
  void Merge(const Window& other);
};

// What a request came to.
struct BenchOutcome {
  absl::Status status;
  size_t kind = 0;    // index of the kinds of work
  int64_t bytes = 0;  // payload both ways
};

// Thread-safe.
class Recorder {
 public:
  Recorder(BenchTime start, double window_seconds, size_t kinds);
  void Record(BenchTime done, BenchDuration latency, const BenchOutcome& outcome);
  // A copy of the `index`-th window, empty when nothing ended in it.
  Window At(size_t index) const;
  Window Total() const;
  size_t windows() const;
  // Of the last request; the start when there is none.
  BenchTime last_done() const;
  // The first error.
  absl::Status first_error() const;

 private:
  const BenchTime start_;
  const double window_seconds_;
  const size_t kinds_;
  mutable std::mutex mutex_;
  std::vector<Window> windows_;
  BenchTime last_done_;
  absl::Status first_error_;
};

// The requests of one worker, which uses it alone.
class BenchWork {
 public:
  virtual ~BenchWork() = default;
  // Asks and waits. `number` counts all requests of all workers.
  virtual BenchOutcome Run(int64_t number) = 0;
};

// Takes arrivals until there are none.
void RunWorker(BenchClock* clock, Arrivals* arrivals, BenchWork* work, Recorder* recorder);

// What the rule for stable figures looks at.
struct WindowFigures {
  double requests_per_second = 0;
  double p99_seconds = 0;
  double mean_seconds = 0;
  int64_t failed = 0;
};
// Whether the last three windows have answers, and rates and means within `share` of their mean.
bool IsStable(std::span<const WindowFigures> windows, double share);

struct LoadResult {
  Window total;        // of the last three windows when they count alone, else of all
  double seconds = 0;  // that `total` stands for
  std::vector<WindowFigures> windows;
  std::optional<bool> stable;  // absent with a fixed duration or number
  // Open loop: requests that were due and never sent, by how long they waited until the end; their
  // true latencies are longer. `total` is without them.
  LatencyHistogram unsent;
  absl::Status first_error;
};

// Runs the load with `workers`, one per thread, after the warm-up. `before_measuring` is called
// between the two.
LoadResult RunLoad(const LoadOptions& options, BenchClock* clock, size_t kinds,
                   std::span<const std::unique_ptr<BenchWork>> workers,
                   const std::function<void()>& before_measuring);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_BENCH_LOAD_H_
