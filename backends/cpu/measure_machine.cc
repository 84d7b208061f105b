// Times a few steps through the kernels that contractions use.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "backends/core/dtype.h"
#include "backends/cpu/cache_sizes.h"
#include "backends/cpu/compiled_program.h"
#include "backends/cpu/execution.h"
#include "backends/cpu/machine_times.h"
#include "backends/cpu/threads.h"
#include "backends/plugin/provider.h"

namespace tenon::cpu {
namespace {

struct Shape {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t work() const { return batch * m * n * k; }
};

// A ratio of times within what two machines can differ by.
double Ratio(double measured, double expected, double least, double most) {
  const double ratio = measured / expected;
  return std::isfinite(ratio) ? std::clamp(ratio, least, most) : 1;
}

// Those that networks mostly use. The library's product, which plain matrices like these would get,
// runs on one thread.
const ImplementationLists& Kernels() {
  static const auto& lists = *new ImplementationLists(
      OnlyImplementations(CpuImplementations(), "elementwise,dot,gett").value());
  return lists;
}

// A program of one step C[b,m,n] = sum over k of A[b,m,k] B[b,k,n], in row-major order, done in so
// many slices that are all the same.
class Probe {
 public:
  Probe(int32_t dtype, const Shape& shape, int64_t slices = 1) : slices_(slices) {
    const auto [b, m, n, k] = shape;
    AddMode({b, m * k, k * n, m * n}, &step_.n_batch);
    AddMode({m, k, 0, n}, &step_.n_m);
    AddMode({n, 0, 1, 1}, &step_.n_n);
    AddMode({k, 1, n, 0}, &step_.n_k);
    step_.struct_size = sizeof(step_);
    step_.kind = TENON_STEP_CONTRACT;
    step_.phase = TENON_PHASE_SLICE;
    step_.level = 1;
    step_.modes = modes_.data();
    elements_ = {b * m * k, b * k * n};
    step_.a = {TENON_SPACE_OPERAND, 0, 0, elements_[0], nullptr, 0, 0};
    step_.b = {TENON_SPACE_OPERAND, 1, 0, elements_[1], nullptr, 0, 0};
    step_.c = {TENON_SPACE_RESULT, 0, 0, b * m * n, nullptr, 0, 0};
    sliced_ = {slices, 0, 0, 0};
    program_.struct_size = sizeof(program_);
    program_.dtype = dtype;
    program_.n_operands = 2;
    program_.n_steps = 1;
    program_.steps = &step_;
    program_.n_sliced = slices > 1 ? 1 : 0;
    program_.sliced = &sliced_;
    program_.operand_elements = elements_.data();
    program_.block_elements = b * m * n;
    program_.n_blocks = 1;
    program_.slices_per_block = slices;
    const tenon_compile_options options{sizeof(options), 1, 0, 0};
    auto compiled = CompiledProgram::Compile(program_, options, Kernels(), "");
    if (compiled.ok()) compiled_ = *std::move(compiled);
  }

  // By the table.
  double table_seconds() const {
    return compiled_ == nullptr ? 0 : compiled_->steps().front().seconds;
  }

  // How many times as fast so many threads are as one, which takes `alone` seconds. Threads take
  // up to a tenth of a second before they work for the first time.
  double SpeedUp(int threads, double alone) const {
    constexpr double kNearlyAll = 0.8, kPatienceSeconds = 0.15;
    if (threads <= 1) return 1;
    const double together = Measure(threads, 3, alone / (kNearlyAll * threads), kPatienceSeconds);
    return Ratio(alone, together, 1, threads);
  }

  // The fastest of several runs, per slice; infinite where there is no memory for it. While none is
  // faster than `enough`, it goes on for `patience` seconds.
  double Measure(int threads, int rounds, double enough = 0, double patience = 0) const {
    double best = std::numeric_limits<double>::infinity();
    if (compiled_ == nullptr) return best;
    plugin::HostMemory memory(INT64_MAX);
    const int64_t bytes = DTypeSize(static_cast<DType>(program_.dtype));
    HostBlock blocks[3];
    const int64_t elements[] = {elements_[0], elements_[1], program_.block_elements};
    for (int i = 0; i < 3; ++i) {
      auto block = HostBlock::Allocate(*memory.host(), elements[i] * bytes, "a measurement");
      if (!block.ok()) return best;
      blocks[i] = *std::move(block);
      std::fill_n(blocks[i].data(), elements[i] * bytes, std::byte{0});
    }
    const void* operands[] = {blocks[0].data(), blocks[1].data()};
    tenon_execution_options options{};
    options.struct_size = sizeof(options);
    options.workers = 1;
    options.threads_per_worker = options.threads = threads;
    auto execution = Execution::Begin(*compiled_, *memory.host(), operands, options);
    if (!execution.ok() || !(*execution)->BindSet(operands).ok()) return best;
    double total = 0;
    for (int round = 0; round < rounds || (best > enough && total < patience); ++round) {
      const auto start = std::chrono::steady_clock::now();
      int64_t exponent = 0;
      if (!(*execution)->RunGroup(0, 0, 0, slices_, blocks[2].data(), &exponent).ok()) return best;
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best = std::min(best, seconds.count() / static_cast<double>(slices_));
      total += seconds.count();
    }
    return best;
  }

 private:
  void AddMode(const tenon_mode& mode, int32_t* count) {
    if (mode.extent == 1) return;
    modes_.push_back(mode);
    ++*count;
  }

  const int64_t slices_;
  std::vector<tenon_mode> modes_;
  std::vector<int64_t> elements_;
  tenon_step step_{};
  tenon_sliced_index sliced_{};
  tenon_program program_{};
  std::unique_ptr<CompiledProgram> compiled_;
};

constexpr Shape kCube = {1, 256, 256, 256};
constexpr double kFarBytes = 32 << 20;  // of a tensor that no core's caches hold

void MeasureTraffic(MachineTimes& times) {
  const auto elements = static_cast<int64_t>(kFarBytes / sizeof(double));
  const Probe dot(TENON_DTYPE_FLOAT64, {1, 1, 1, elements});
  const Probe product(TENON_DTYPE_FLOAT64, {elements / 2, 1, 1, 1});
  double read = std::numeric_limits<double>::infinity(), both = read;
  for (int round = 0; round < 2; ++round) {  // by turns: other work on the machine comes and goes
    read = std::min(read, dot.Measure(1, 3));
    both = std::min(both, product.Measure(1, 3));
  }
  if (!std::isfinite(read) || !std::isfinite(both)) return;
  times.far_read = read / (2 * kFarBytes);
  const double written = both - times.far_read * kFarBytes;
  times.far_write = std::clamp(written / (kFarBytes / 2), times.far_read, 4 * times.far_read);
  times.traffic_speedup = product.SpeedUp(times.threads, both);
}

void MeasureArithmetic(MachineTimes& times) {
  constexpr double kLeast = 0.1, kMost = 20;
  // The table's rates have some of the traffic in them, which predictions add (the corpus of
  // networks, in the middle).
  constexpr double kWithoutTraffic = 0.9;
  for (int type = 0; type < 4; ++type) {
    const Probe cube(TENON_DTYPE_FLOAT32 + type, kCube);
    times.product[type] =
        kWithoutTraffic * Ratio(cube.Measure(1, 8), cube.table_seconds(), kLeast, kMost);
  }
  const Probe near(TENON_DTYPE_FLOAT64, {1 << 14, 1, 1, 1});
  times.others = Ratio(near.Measure(1, 8), near.table_seconds(), kLeast, kMost);
  const Probe dots(TENON_DTYPE_FLOAT64, {1, 64, 1, 512});
  times.sums = Ratio(dots.Measure(1, 8), dots.table_seconds(), kLeast, kMost);
  const Probe large(TENON_DTYPE_FLOAT64, {32, 128, 128, 128});
  times.arithmetic_speedup = large.SpeedUp(times.threads, large.Measure(1, 3));
}

// The model of steps that knows sizes alone: from what the table tells of typical shapes.
tenon_step_times StepTimesOf(const MachineTimes& times, int type) {
  const int32_t dtype = TENON_DTYPE_FLOAT32 + type;
  const auto bytes = static_cast<double>(DTypeSize(static_cast<DType>(dtype)));
  const auto seconds = [&](const Shape& shape) {
    return Probe(dtype, shape).table_seconds() * times.product[type];
  };
  constexpr Shape kOuter = {1, 256, 256, 1}, kMatrixVector = {1, 256, 1, 256};
  tenon_step_times steps{};
  steps.step = times.step + seconds({1, 2, 2, 2});
  steps.multiply_add = seconds(kCube) / static_cast<double>(kCube.work());
  const auto beside = [&](const Shape& shape) {
    const double rest = seconds(shape) / static_cast<double>(shape.work()) - steps.multiply_add;
    return std::max(0.0, rest);
  };
  steps.near_write = beside(kOuter);
  steps.near_read = beside(kMatrixVector);
  // Some results are written past the caches, which takes less: so much of all, about.
  constexpr double kWritten = 0.7;
  steps.far_read = std::max(steps.near_read, times.far_read * bytes);
  steps.far_write = std::max(steps.near_write, kWritten * times.far_write * bytes);
  steps.near_elements = static_cast<double>(kNearBytes) / bytes;
  return steps;
}

}  // namespace

MachineTimes MeasureMachine() {
  MachineTimes times;
  times.threads = UsableCores();
  constexpr int64_t kSlices = 1024;
  const Probe tiny(TENON_DTYPE_FLOAT64, {1, 2, 2, 2}, kSlices);
  const double step = tiny.Measure(1, 5) - tiny.table_seconds();
  // A step among others finds its code and its description cold.
  constexpr double kColdSeconds = 1.5e-7;
  if (std::isfinite(step)) times.step = std::max(step, 0.0) + kColdSeconds;
  MeasureArithmetic(times);
  MeasureTraffic(times);
  for (int type = 0; type < 4; ++type) times.steps[type] = StepTimesOf(times, type);
  return times;
}

}  // namespace tenon::cpu
