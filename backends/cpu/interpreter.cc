#include "backends/cpu/interpreter.h"

#include <vector>

#include "backends/cpu/calibration.h"
#include "backends/cpu/scalar.h"

namespace tenon::cpu {
namespace {

template <typename T, typename Acc>
class Interpreter final : public StepKernel {
 public:
  explicit Interpreter(const StepView& step)
      : unary_(!step.is_contract()), sums_(step.k.begin(), step.k.end()) {
    for (const Modes group : {step.batch, step.m, step.n}) {
      results_.insert(results_.end(), group.begin(), group.end());
    }
  }

  void Run(const StepArguments& arguments) const override {
    const T* a = static_cast<const T*>(arguments.a);
    const T* b = static_cast<const T*>(arguments.b);
    T* c = static_cast<T*>(arguments.c);
    const int64_t n_results = LoopCount(results_);
    Odometer result(results_), term(sums_);
    int64_t until_poll = 0;
    for (int64_t i = 0; i < n_results; ++i, result.Next()) {
      Acc sum{};
      if (!Sum(a + result.a(), unary_ ? nullptr : b + result.b(), arguments.cancel, term,
               until_poll, sum)) {
        return;
      }
      T& element = c[result.c()];
      const T value = ScalarCast<T>(sum);
      element = arguments.accumulate ? element + value : value;
    }
  }

 private:
  // Returns false when cancelled. `term` stands at the first iteration before and after.
  bool Sum(const T* a, const T* b, const int32_t* cancel, Odometer& term, int64_t& until_poll,
           Acc& sum) const {
    constexpr int64_t kPollEvery = 1 << 16;
    const int64_t n_terms = LoopCount(sums_);
    for (int64_t j = 0; j < n_terms; ++j, term.Next()) {
      if (--until_poll < 0) {
        if (IsCancelled(cancel)) return false;
        until_poll = kPollEvery;
      }
      const Acc x = ScalarCast<Acc>(a[term.a()]);
      sum = sum + (unary_ ? x : x * ScalarCast<Acc>(b[term.b()]));
    }
    return true;
  }

  const bool unary_;
  std::vector<tenon_mode> results_;
  const std::vector<tenon_mode> sums_;
};

}  // namespace

Preparation PrepareInterpreter(const StepView& step) {
  return DispatchAccumulator(step.dtype, step.accumulate_double, [&](auto type, auto accumulator) {
    using T = typename decltype(type)::type;
    using Acc = typename decltype(accumulator)::type;
    return Preparation::Accept(std::make_unique<Interpreter<T, Acc>>(step),
                               1e-9 * step.work() * MachineCalibration().interpreted);
  });
}

}  // namespace tenon::cpu
