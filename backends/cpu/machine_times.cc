#include "backends/cpu/machine_times.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "backends/cpu/cache_sizes.h"
#include "backends/cpu/threads.h"

namespace tenon::cpu {
namespace {

// Raised when a figure or the model that uses it changes.
constexpr int32_t kTimesVersion = 2;

// Tensors that have more do not stay in a last cache of usual size, from where bytes take this
// share of the time.
constexpr double kLastCacheBytes = 24e6, kLastCacheShare = 0.75;

// What is written past the caches is not read before, and takes this share of the time.
constexpr double kStreamedShare = 0.4;

// Shorter steps are not worth a second thread.
constexpr double kWorthThreadsSeconds = 3e-5;

// Until the threads that help with a step are awake, as time that is lost of the step.
constexpr double kWakeSeconds = 2e-5;

// Of `threads` threads, when all that were measured are so many times as fast as one.
double SpeedUp(const MachineTimes& times, double measured, int threads) {
  if (times.threads <= 1 || threads <= 1) return 1;
  const double share = static_cast<double>(std::min(threads, times.threads) - 1) /
                       static_cast<double>(times.threads - 1);
  return 1 + (measured - 1) * share;
}

// Elements of A or B that lie further apart than pages do, along the loop that is innermost in C.
double GatheredElements(const StepView& view) {
  constexpr int64_t kFarApartBytes = 2048;
  if (!view.is_contract()) return 0;
  const tenon_mode* innermost = nullptr;
  for (const Modes group : {view.batch, view.m, view.n}) {
    for (const tenon_mode& mode : group) {
      if (mode.extent > 1 && (innermost == nullptr || mode.stride_c < innermost->stride_c)) {
        innermost = &mode;
      }
    }
  }
  if (innermost == nullptr) return 0;
  double gathered = 0;
  for (const int64_t stride : {innermost->stride_a, innermost->stride_b}) {
    if (std::abs(stride) * view.element_bytes() >= kFarApartBytes) gathered += view.work();
  }
  return gathered;
}

// Seconds of a step, an element or a byte, and what is so many times as much as by the table:
// whatever a machine takes is far below.
bool IsPlausible(double value) {
  constexpr double kMost = 1e9;
  return value > 0 && value < kMost;
}

bool ArePlausible(const tenon_step_times& times) {
  // In caches an element may cost nothing beside its multiply-adds.
  const auto near = [](double seconds) { return seconds == 0 || IsPlausible(seconds); };
  return IsPlausible(times.step) && IsPlausible(times.multiply_add) && near(times.near_read) &&
         near(times.near_write) && IsPlausible(times.far_read) && IsPlausible(times.far_write) &&
         times.near_elements > 0 && std::isfinite(times.near_elements);
}

}  // namespace

StepWork WorkOf(const StepView& view, std::string_view kernel, double table_seconds) {
  StepWork work;
  work.table_seconds = table_seconds;
  work.is_product = kernel == "gett" || kernel == "gemm";
  constexpr int64_t kFewTerms = 8;
  work.is_sum = view.k_size > kFewTerms;
  work.type = view.dtype - TENON_DTYPE_FLOAT32;
  const auto size = [&](int64_t first, int64_t second) {
    return static_cast<double>(view.batch_size) * static_cast<double>(first) *
           static_cast<double>(second) * static_cast<double>(view.element_bytes());
  };
  work.read_bytes = size(view.m_size, view.k_size);
  if (view.is_contract()) work.read_bytes += size(view.k_size, view.n_size);
  work.written_bytes = size(view.m_size, view.n_size);
  if (kernel == "small") work.gathered = GatheredElements(view);
  return work;
}

double StepSeconds(const MachineTimes& times, const StepWork& work, int helpers, int workers) {
  const double factor = work.is_product ? times.product[work.type]
                        : work.is_sum   ? times.sums
                                        : times.others;
  double arithmetic = work.table_seconds * factor + work.gathered * times.gather;
  double traffic = 0;
  const double bytes = work.read_bytes + work.written_bytes;
  if (bytes > static_cast<double>(kNearBytes)) {
    traffic = work.read_bytes * times.far_read +
              work.written_bytes * times.far_write * (work.streams ? kStreamedShare : 1);
    if (bytes < kLastCacheBytes) traffic *= kLastCacheShare;
  }
  const bool is_shared = work.table_seconds > kWorthThreadsSeconds;
  const int threads = workers * (is_shared ? helpers : 1);  // at work at once
  arithmetic *= workers / SpeedUp(times, times.arithmetic_speedup, threads);
  traffic *= workers / SpeedUp(times, times.traffic_speedup, threads);
  const double wake = is_shared && helpers > 1 ? kWakeSeconds : 0;
  return times.step + arithmetic + traffic + wake;
}

tenon_calibration ToCalibration(const MachineTimes& times) {
  tenon_calibration calibration{};
  calibration.struct_size = sizeof(calibration);
  calibration.version = kTimesVersion;
  calibration.threads = times.threads;
  calibration.arithmetic_speedup = times.arithmetic_speedup;
  calibration.traffic_speedup = times.traffic_speedup;
  std::copy(std::begin(times.steps), std::end(times.steps), calibration.times);
  for (const double factor :
       {times.step, times.product[0], times.product[1], times.product[2], times.product[3],
        times.sums, times.others, times.far_read, times.far_write, times.gather}) {
    calibration.factors[calibration.n_factors++] = factor;
  }
  return calibration;
}

std::optional<MachineTimes> FromCalibration(const tenon_calibration& calibration) {
  MachineTimes times;
  times.threads = calibration.threads;
  times.arithmetic_speedup = calibration.arithmetic_speedup;
  times.traffic_speedup = calibration.traffic_speedup;
  std::copy(std::begin(calibration.times), std::end(calibration.times), times.steps);
  int next = 0;
  for (double* factor :
       {&times.step, &times.product[0], &times.product[1], &times.product[2], &times.product[3],
        &times.sums, &times.others, &times.far_read, &times.far_write, &times.gather}) {
    *factor = calibration.factors[next++];
    if (!IsPlausible(*factor)) return std::nullopt;
  }
  if (calibration.version != kTimesVersion || calibration.n_factors != next ||
      calibration.threads != UsableCores() || !IsPlausible(times.arithmetic_speedup) ||
      !IsPlausible(times.traffic_speedup) ||
      !std::all_of(std::begin(times.steps), std::end(times.steps), ArePlausible)) {
    return std::nullopt;
  }
  return times;
}

}  // namespace tenon::cpu
