#include "backends/cpu/step_view.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "backends/core/dtype.h"

namespace tenon::cpu {
namespace {

std::tuple<int64_t, int64_t, int64_t> NestKey(const tenon_mode& mode, NestBy by) {
  switch (by) {
    case NestBy::kA:
      return {mode.stride_a, mode.stride_c, mode.stride_b};
    case NestBy::kB:
      return {mode.stride_b, mode.stride_c, mode.stride_a};
    case NestBy::kC:
      break;
  }
  return {mode.stride_c, mode.stride_a, mode.stride_b};
}

bool AreOneLoop(const tenon_mode& outer, const tenon_mode& inner) {
  return outer.stride_a == inner.stride_a * inner.extent &&
         outer.stride_b == inner.stride_b * inner.extent &&
         outer.stride_c == inner.stride_c * inner.extent;
}

}  // namespace

int64_t LoopCount(Modes modes) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 2;
  int64_t count = 1;
  for (const tenon_mode& mode : modes) {
    if (mode.extent == 0) return 0;
  }
  for (const tenon_mode& mode : modes) {
    if (count > kLargest / mode.extent) return kLargest;
    count *= mode.extent;
  }
  return count;
}

Odometer::Odometer(Modes loops, int64_t start) : loops_(loops), index_(loops.size(), 0) {
  for (size_t i = loops.size(); i-- > 0 && start > 0;) {
    index_[i] = start % loops[i].extent;
    start /= loops[i].extent;
    a_ += index_[i] * loops[i].stride_a;
    b_ += index_[i] * loops[i].stride_b;
    c_ += index_[i] * loops[i].stride_c;
  }
}

std::vector<tenon_mode> NestedLoops(std::vector<tenon_mode> modes, NestBy by) {
  std::erase_if(modes, [](const tenon_mode& mode) { return mode.extent == 1; });
  std::stable_sort(modes.begin(), modes.end(), [by](const tenon_mode& x, const tenon_mode& y) {
    return NestKey(x, by) > NestKey(y, by);
  });
  std::vector<tenon_mode> merged;
  for (const tenon_mode& mode : modes) {
    if (!merged.empty() && AreOneLoop(merged.back(), mode)) {
      const int64_t extent = merged.back().extent * mode.extent;
      merged.back() = mode;
      merged.back().extent = extent;
    } else {
      merged.push_back(mode);
    }
  }
  return merged;
}

int64_t StepView::element_bytes() const { return DTypeSize(static_cast<DType>(dtype)); }

double StepView::flops() const {
  if (is_contract()) return (is_complex() ? 8.0 : 2.0) * work();
  return k.empty() ? 0.0 : (is_complex() ? 2.0 : 1.0) * work();
}

double StepView::traffic_bytes() const {
  const double batch = static_cast<double>(batch_size), rows = static_cast<double>(m_size),
               columns = static_cast<double>(n_size), depth = static_cast<double>(k_size);
  const double elements = is_contract() ? batch * (rows * depth + depth * columns + rows * columns)
                                        : rows * depth + rows;
  return elements * static_cast<double>(element_bytes());
}

StepView ViewStep(const tenon_program& program, const tenon_step& step) {
  StepView view;
  view.step = &step;
  view.dtype = program.dtype;
  view.accumulate_double =
      program.accumulate_double != 0 &&
      (program.dtype == TENON_DTYPE_FLOAT32 || program.dtype == TENON_DTYPE_COMPLEX64);
  // Normalised results are added outside of the step, because their exponents differ.
  view.may_accumulate =
      step.c.space == TENON_SPACE_RESULT && program.slices_per_block > 1 && program.normalize == 0;
  const tenon_mode* next = step.modes;
  const auto take = [&next](int32_t count) {
    const Modes group(next, static_cast<size_t>(count));
    next += count;
    return group;
  };
  view.batch = take(step.n_batch);
  view.m = take(step.n_m);
  view.n = take(step.n_n);
  view.k = take(step.n_k);
  view.batch_size = LoopCount(view.batch);
  view.m_size = LoopCount(view.m);
  view.n_size = LoopCount(view.n);
  view.k_size = LoopCount(view.k);
  return view;
}

}  // namespace tenon::cpu
