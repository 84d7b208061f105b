// How fast this machine is now, beside the calibration table's: for predictions, never for choices.

#ifndef TENON_BACKENDS_CPU_MACHINE_TIMES_H_
#define TENON_BACKENDS_CPU_MACHINE_TIMES_H_

#include <optional>
#include <string_view>

#include "backends/cpu/step_view.h"
#include "backends/plugin/calibration.h"

namespace tenon::cpu {

struct MachineTimes {
  double step = 2e-7;  // seconds of a step beside its kernel
  // How many times as long as by the table: register-blocked products, by element type, other sums
  // of more than a few terms, and what is left.
  double product[4] = {1, 1, 1, 1};
  double sums = 1, others = 1;
  // Seconds per byte that one thread reads and writes beyond its caches, and per element that it
  // gathers one by one.
  double far_read = 5e-11, far_write = 1e-10, gather = 1.1e-9;
  int threads = 1;                                     // that were measured
  double arithmetic_speedup = 1, traffic_speedup = 1;  // of all of them together
  tenon_step_times steps[4] = {};                      // for the search of paths
};

// What a step does, for predictions.
struct StepWork {
  double table_seconds = 0;  // by the table, on one thread, from caches
  double read_bytes = 0, written_bytes = 0;
  double gathered = 0;   // elements that are fetched one by one from far apart
  bool streams = false;  // writes past the caches
  int type = 0;          // float32, float64, complex64, complex128
  bool is_product = false, is_sum = false;
};

StepWork WorkOf(const StepView& view, std::string_view kernel, double table_seconds);

// Seconds of one run by `helpers` threads, while `workers` such runs go on at once.
double StepSeconds(const MachineTimes& times, const StepWork& work, int helpers, int workers);

// Measures this machine; takes about a fifth of a second.
MachineTimes MeasureMachine();

// To and from the interface's form. Nothing for figures of another version, for another number of
// threads than this process has, or that make no sense.
tenon_calibration ToCalibration(const MachineTimes& times);
std::optional<MachineTimes> FromCalibration(const tenon_calibration& calibration);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_MACHINE_TIMES_H_
