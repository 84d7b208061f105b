#include "client/cpp/tool/bench_load.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "backends/core/error.h"

namespace tenon::tool {
namespace {

constexpr size_t kStableWindows = 3;
// Later requests count to the last one, so that a call that never ends takes no memory.
constexpr double kMaxWindows = 1000;

BenchDuration FromSeconds(double seconds) {
  return std::chrono::duration_cast<BenchDuration>(std::chrono::duration<double>(seconds));
}

double ToSeconds(BenchDuration duration) { return std::chrono::duration<double>(duration).count(); }

class SteadyClock final : public BenchClock {
 public:
  explicit SteadyClock(const client::Canceller* canceller) : canceller_(canceller) {}
  BenchTime Now() override { return std::chrono::steady_clock::now(); }
  void SleepUntil(BenchTime time) override {
    const BenchDuration left = time - Now();
    if (left > BenchDuration::zero()) canceller_->WaitFor(absl::FromChrono(left));
  }

 private:
  const client::Canceller* const canceller_;
};

std::string ReasonOf(const absl::Status& status) {
  if (const auto error = client::ServerErrorOf(status); error && !error->reason.empty()) {
    return error->reason;
  }
  return absl::StatusCodeToString(status.code());
}

bool Near(double value, double mean, double share) {
  return std::abs(value - mean) <= share * mean;
}

WindowFigures FiguresOf(const Window& window, double seconds) {
  const LatencyHistogram all = window.All();
  return {static_cast<double>(all.count()) / seconds, static_cast<double>(all.Percentile(99)) / 1e9,
          all.Mean() / 1e9, window.failed()};
}

// Workers on threads of their own, from construction until Join.
class Crew {
 public:
  Crew(BenchClock* clock, Arrivals* arrivals, Recorder* recorder,
       std::span<const std::unique_ptr<BenchWork>> workers) {
    for (const auto& work : workers) {
      threads_.emplace_back([=, work = work.get()] { RunWorker(clock, arrivals, work, recorder); });
    }
  }
  ~Crew() { Join(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

void WarmUp(const LoadOptions& options, BenchClock* clock, size_t kinds,
            std::span<const std::unique_ptr<BenchWork>> workers) {
  if (options.warmup_seconds <= 0) return;
  LoadOptions warmup = options;
  warmup.requests.reset();
  const BenchTime start = clock->Now(), end = start + FromSeconds(options.warmup_seconds);
  Arrivals arrivals(warmup, start, end);
  Recorder dropped(start, options.warmup_seconds, kinds);
  Crew(clock, &arrivals, &dropped, workers).Join();
}

LatencyHistogram Unsent(Arrivals* arrivals, BenchTime now) {
  LatencyHistogram waited;
  for (const BenchTime intended : arrivals->TakeUnsent()) waited.Record((now - intended).count());
  return waited;
}

LoadResult MeasureAll(const LoadOptions& options, BenchClock* clock, size_t kinds,
                      std::span<const std::unique_ptr<BenchWork>> workers) {
  const BenchTime start = clock->Now();
  const BenchDuration window = FromSeconds(options.window_seconds);
  std::optional<BenchTime> end;
  BenchDuration lateness = BenchDuration::zero();
  if (options.duration_seconds.has_value()) {
    const BenchDuration duration = FromSeconds(*options.duration_seconds);
    end = start + duration;
    lateness = std::min(window, duration);
  }
  Arrivals arrivals(options, start, end, lateness);
  Recorder recorder(start, options.window_seconds, kinds);
  Crew(clock, &arrivals, &recorder, workers).Join();
  LoadResult result;
  result.total = recorder.Total();
  const BenchTime last = std::max(recorder.last_done(), end.value_or(start));
  result.seconds = ToSeconds(last - start);
  if (end.has_value()) result.unsent = Unsent(&arrivals, last);
  for (size_t i = 0; i < recorder.windows(); ++i) {
    result.windows.push_back(FiguresOf(recorder.At(i), options.window_seconds));
  }
  result.first_error = recorder.first_error();
  return result;
}

LoadResult MeasureUntilStable(const LoadOptions& options, BenchClock* clock, size_t kinds,
                              std::span<const std::unique_ptr<BenchWork>> workers) {
  const BenchTime start = clock->Now();
  const BenchDuration window = FromSeconds(options.window_seconds);
  Arrivals arrivals(options, start, start + options.max_windows * window, window);
  Recorder recorder(start, options.window_seconds, kinds);
  Crew crew(clock, &arrivals, &recorder, workers);
  LoadResult result;
  result.stable = false;
  BenchTime now = start;
  for (int i = 0; i < options.max_windows && !*result.stable; ++i) {
    clock->SleepUntil(start + (i + 1) * window);
    now = clock->Now();
    if (now < start + (i + 1) * window) break;  // interrupted
    result.windows.push_back(
        FiguresOf(recorder.At(static_cast<size_t>(i)), options.window_seconds));
    result.stable = IsStable(result.windows, options.stability);
  }
  arrivals.EndAt(now);
  const size_t count = result.windows.size(), first = count - std::min(count, kStableWindows);
  result.total.latency.resize(kinds);
  for (size_t i = first; i < count; ++i) result.total.Merge(recorder.At(i));
  result.seconds = static_cast<double>(count - first) * options.window_seconds;
  crew.Join();
  result.unsent = Unsent(&arrivals, std::max(now, recorder.last_done()));
  result.first_error = recorder.first_error();
  return result;
}

}  // namespace

std::unique_ptr<BenchClock> MakeSteadyClock(const client::Canceller* canceller) {
  return std::make_unique<SteadyClock>(canceller);
}

Arrivals::Arrivals(const LoadOptions& options, BenchTime start, std::optional<BenchTime> end,
                   BenchDuration lateness)
    : options_(options),
      lateness_(lateness),
      end_(end),
      random_(options.seed),
      start_(start),
      last_(start) {}

// Constant gaps are multiples of one, so that rounding does not add up.
BenchTime Arrivals::NextIntended() {
  if (!options_.poisson) {
    return start_ + FromSeconds(static_cast<double>(taken_) / *options_.rate);
  }
  if (!drawn_.has_value()) {
    drawn_ = last_ + FromSeconds(std::exponential_distribution<double>(*options_.rate)(random_));
  }
  return *drawn_;
}

BenchTime Arrivals::Take() {
  last_ = NextIntended();
  drawn_.reset();
  ++taken_;
  return last_;
}

bool Arrivals::Exhausted() const {
  return options_.requests.has_value() && taken_ >= *options_.requests;
}

std::optional<Arrivals::Arrival> Arrivals::Next(BenchTime now) {
  std::lock_guard lock(mutex_);
  if (Exhausted()) return std::nullopt;
  if (!options_.rate.has_value()) {
    if (end_.has_value() && now >= *end_) return std::nullopt;
    return Arrival{taken_++, now};
  }
  if (end_.has_value() && (NextIntended() >= *end_ || now >= *end_ + lateness_)) {
    return std::nullopt;
  }
  const int64_t number = taken_;
  return Arrival{number, Take()};
}

void Arrivals::EndAt(BenchTime end) {
  std::lock_guard lock(mutex_);
  end_ = end;
}

std::vector<BenchTime> Arrivals::TakeUnsent() {
  std::vector<BenchTime> unsent;
  std::lock_guard lock(mutex_);
  if (!options_.rate.has_value() || !end_.has_value()) return unsent;
  while (!Exhausted() && NextIntended() < *end_) unsent.push_back(Take());
  return unsent;
}

int64_t Window::succeeded() const { return All().count(); }

int64_t Window::failed() const {
  int64_t count = 0;
  for (const auto& [reason, times] : errors) count += times;
  return count;
}

LatencyHistogram Window::All() const {
  LatencyHistogram all;
  for (const LatencyHistogram& histogram : latency) all.Merge(histogram);
  return all;
}

void Window::Merge(const Window& other) {
  latency.resize(std::max(latency.size(), other.latency.size()));
  for (size_t k = 0; k < other.latency.size(); ++k) latency[k].Merge(other.latency[k]);
  for (const auto& [reason, times] : other.errors) errors[reason] += times;
  bytes += other.bytes;
}

Recorder::Recorder(BenchTime start, double window_seconds, size_t kinds)
    : start_(start), window_seconds_(window_seconds), kinds_(kinds), last_done_(start) {}

void Recorder::Record(BenchTime done, BenchDuration latency, const BenchOutcome& outcome) {
  const double position = ToSeconds(done - start_) / window_seconds_;
  const auto index = static_cast<size_t>(std::clamp(position, 0.0, kMaxWindows - 1));
  std::lock_guard lock(mutex_);
  while (windows_.size() <= index) windows_.emplace_back().latency.resize(kinds_);
  Window& window = windows_[index];
  last_done_ = std::max(last_done_, done);
  if (!outcome.status.ok()) {
    ++window.errors[ReasonOf(outcome.status)];
    if (first_error_.ok()) first_error_ = outcome.status;
    return;
  }
  window.latency[outcome.kind].Record(
      std::chrono::duration_cast<std::chrono::nanoseconds>(latency).count());
  window.bytes += outcome.bytes;
}

Window Recorder::At(size_t index) const {
  std::lock_guard lock(mutex_);
  if (index < windows_.size()) return windows_[index];
  Window empty;
  empty.latency.resize(kinds_);
  return empty;
}

Window Recorder::Total() const {
  Window total;
  total.latency.resize(kinds_);
  std::lock_guard lock(mutex_);
  for (const Window& window : windows_) total.Merge(window);
  return total;
}

size_t Recorder::windows() const {
  std::lock_guard lock(mutex_);
  return windows_.size();
}

BenchTime Recorder::last_done() const {
  std::lock_guard lock(mutex_);
  return last_done_;
}

absl::Status Recorder::first_error() const {
  std::lock_guard lock(mutex_);
  return first_error_;
}

void RunWorker(BenchClock* clock, Arrivals* arrivals, BenchWork* work, Recorder* recorder) {
  while (const auto arrival = arrivals->Next(clock->Now())) {
    clock->SleepUntil(arrival->intended);
    const BenchOutcome outcome = work->Run(arrival->number);
    const BenchTime done = clock->Now();
    recorder->Record(done, done - arrival->intended, outcome);
    if (outcome.status.code() == absl::StatusCode::kCancelled) return;  // interrupted
  }
}

bool IsStable(std::span<const WindowFigures> windows, double share) {
  if (windows.size() < kStableWindows) return false;
  const auto last = windows.last(kStableWindows);
  double rate = 0, seconds = 0;
  for (const WindowFigures& window : last) {
    if (window.requests_per_second <= 0) return false;
    rate += window.requests_per_second / kStableWindows;
    seconds += window.mean_seconds / kStableWindows;
  }
  return std::all_of(last.begin(), last.end(), [&](const WindowFigures& window) {
    return Near(window.requests_per_second, rate, share) &&
           Near(window.mean_seconds, seconds, share);
  });
}

LoadResult RunLoad(const LoadOptions& options, BenchClock* clock, size_t kinds,
                   std::span<const std::unique_ptr<BenchWork>> workers,
                   const std::function<void()>& before_measuring) {
  WarmUp(options, clock, kinds, workers);
  before_measuring();
  const bool fixed = options.duration_seconds.has_value() || options.requests.has_value();
  return fixed ? MeasureAll(options, clock, kinds, workers)
               : MeasureUntilStable(options, clock, kinds, workers);
}

}  // namespace tenon::tool
