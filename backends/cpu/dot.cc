#include "backends/cpu/dot.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/calibration.h"
#include "backends/cpu/dot_kernels.h"
#include "backends/cpu/scalar.h"

namespace tenon::cpu {
namespace {

constexpr double kGrainSeconds = 10e-6;

// The loops of a step: `rows` share a pass over y, the innermost `run` terms lie side by side.
struct DotPlan {
  bool is_swapped = false;  // the rows are the step's N
  tenon_mode rows{1, 0, 0, 0};
  std::vector<tenon_mode> results;  // but `rows`
  std::vector<tenon_mode> terms;    // but the run
  int64_t n_results = 1, n_terms = 1, run = 1;
  double seconds = 0;

  int64_t row_blocks() const { return (rows.extent + kDotRows - 1) / kDotRows; }
};

void SwapOperands(std::vector<tenon_mode>& modes) {
  for (tenon_mode& mode : modes) std::swap(mode.stride_a, mode.stride_b);
}

DotPlan PlanDot(const StepView& step, std::vector<tenon_mode> terms) {
  DotPlan plan;
  plan.run = terms.back().extent;
  terms.pop_back();
  plan.is_swapped = step.n_size > step.m_size;
  std::vector<tenon_mode> rows(step.m.begin(), step.m.end());
  std::vector<tenon_mode> others(step.n.begin(), step.n.end());
  std::vector<tenon_mode> batch(step.batch.begin(), step.batch.end());
  if (plan.is_swapped) {
    rows.swap(others);
    for (std::vector<tenon_mode>* modes : {&rows, &others, &batch, &terms}) SwapOperands(*modes);
  }
  if (!rows.empty()) {
    plan.rows = rows.back();
    rows.pop_back();
  }
  plan.results = std::move(batch);
  plan.results.insert(plan.results.end(), others.begin(), others.end());
  plan.results.insert(plan.results.end(), rows.begin(), rows.end());
  plan.terms = std::move(terms);
  plan.n_results = LoopCount(plan.results);
  plan.n_terms = LoopCount(plan.terms);
  // Loads of both operands are what takes the time; complex vectors of x are taken twice.
  const Calibration::Dot& rates = MachineCalibration().dot;
  const double load = step.is_complex() ? rates.complex_load : rates.load;
  const double blocks =
      static_cast<double>(plan.n_results) * static_cast<double>(plan.row_blocks());
  const double vectors = static_cast<double>(plan.run * step.element_bytes()) / 64;
  const double rows_in_block = static_cast<double>(std::min<int64_t>(plan.rows.extent, kDotRows));
  plan.seconds = 1e-9 * blocks *
                 (rates.block + static_cast<double>(plan.n_terms) *
                                    (rates.term + vectors * (1 + rows_in_block) * load));
  return plan;
}

template <typename T>
class Dot final : public StepKernel {
 public:
  explicit Dot(DotPlan plan) : plan_(std::move(plan)) {
    const double block = plan_.seconds / static_cast<double>(plan_.n_results * plan_.row_blocks());
    grain_ = static_cast<int64_t>(std::max(1.0, kGrainSeconds / block));
  }

  void Run(const StepArguments& arguments) const override {
    const int64_t blocks = plan_.row_blocks();
    arguments.team->For(plan_.n_results * blocks, grain_, [&](int64_t begin, int64_t end, Scratch) {
      Odometer result(plan_.results, begin / blocks);
      for (int64_t i = begin; i < end; ++i) {
        if (!RunBlock(arguments, result, i % blocks * kDotRows)) return;
        if ((i + 1) % blocks == 0) result.Next();
      }
    });
  }

 private:
  // Up to kDotRows results; false when cancelled.
  bool RunBlock(const StepArguments& arguments, const Odometer& result, int64_t row) const {
    const T* x = static_cast<const T*>(plan_.is_swapped ? arguments.b : arguments.a);
    const T* y = static_cast<const T*>(plan_.is_swapped ? arguments.a : arguments.b);
    x += result.a() + row * plan_.rows.stride_a;
    y += result.b();
    const auto rows = static_cast<int>(std::min<int64_t>(plan_.rows.extent - row, kDotRows));
    T sums[kDotRows] = {};
    Odometer term(plan_.terms);
    for (int64_t j = 0; j < plan_.n_terms; ++j, term.Next()) {
      for (int64_t done = 0; done < plan_.run; done += kPollEvery) {
        if (IsCancelled(arguments.cancel)) return false;
        AddDots(rows, std::min(plan_.run - done, kPollEvery), x + term.a() + done,
                plan_.rows.stride_a, y + term.b() + done, sums);
      }
    }
    T* c = static_cast<T*>(arguments.c) + result.c() + row * plan_.rows.stride_c;
    for (int r = 0; r < rows; ++r) {
      T& element = c[r * plan_.rows.stride_c];
      element = arguments.accumulate ? element + sums[r] : sums[r];
    }
    return true;
  }

  static constexpr int64_t kPollEvery = int64_t{1} << 20;

  const DotPlan plan_;
  int64_t grain_ = 1;
};

}  // namespace

Preparation PrepareDot(const StepView& step) {
  constexpr int64_t kShortest = 16;
  if (step.accumulate_double) return Preparation::Refuse("sums are asked for in double");
  std::vector<tenon_mode> terms = NestedLoops({step.k.begin(), step.k.end()}, NestBy::kA);
  if (terms.empty() || terms.back().stride_a != 1 || terms.back().stride_b != 1 ||
      terms.back().extent < kShortest) {
    return Preparation::Refuse("no long loop of the sum is contiguous in both operands");
  }
  if (step.work() == 0) return Preparation::Refuse("an extent is 0");
  DotPlan plan = PlanDot(step, std::move(terms));
  return DispatchDType(step.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const double seconds = plan.seconds;
    return Preparation::Accept(std::make_unique<Dot<T>>(std::move(plan)), seconds);
  });
}

}  // namespace tenon::cpu
