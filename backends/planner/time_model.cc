#include "backends/planner/time_model.h"

#include <algorithm>

namespace tenon::planner {
namespace {

// Of `threads` threads, when `measured` ones are so many times as fast as one.
double SpeedUp(double measured_speedup, int measured, int threads) {
  if (measured <= 1) return 1;
  const double share =
      static_cast<double>(std::min(threads, measured) - 1) / static_cast<double>(measured - 1);
  return 1 + (measured_speedup - 1) * share;
}

}  // namespace

double StepSeconds(const StepTimes& times, const StepSizes& sizes) {
  const double operands = sizes.left + sizes.right;
  const bool is_far = operands + sizes.result > times.near_elements;
  const double traffic = is_far ? times.far_read * operands + times.far_write * sizes.result
                                : times.near_read * operands + times.near_write * sizes.result;
  return times.step + times.multiply_add * sizes.joint + traffic;
}

StepTimes MakeStepTimes(const tenon_calibration& calibration, DType dtype, int threads) {
  const int place = static_cast<int>(dtype) - static_cast<int>(DType::kFloat32);
  const tenon_step_times& one = calibration.times[place];
  const double arithmetic = SpeedUp(calibration.arithmetic_speedup, calibration.threads, threads);
  const double traffic = SpeedUp(calibration.traffic_speedup, calibration.threads, threads);
  StepTimes times;
  times.step = one.step;
  times.multiply_add = one.multiply_add / arithmetic;
  times.near_read = one.near_read / arithmetic;
  times.near_write = one.near_write / arithmetic;
  times.far_read = one.far_read / traffic;
  times.far_write = one.far_write / traffic;
  times.near_elements = one.near_elements;
  return times;
}

}  // namespace tenon::planner
