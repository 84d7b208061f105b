#include "backends/cpu/gate.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "backends/core/strings.h"
#include "backends/cpu/gate_kernels.h"
#include "backends/cpu/gate_plan.h"

namespace tenon::cpu {
namespace {

constexpr double kGrainSeconds = 20e-6;

template <typename T>
class Gate final : public StepKernel {
 public:
  explicit Gate(GatePlan plan) : plan_(std::move(plan)) {
    const double run = plan_.seconds / static_cast<double>(plan_.n_runs);
    grain_ = static_cast<int64_t>(std::max(1.0, kGrainSeconds / run));
  }

  void Run(const StepArguments& arguments) const override {
    arguments.team->For(plan_.n_runs, grain_, [&](int64_t begin, int64_t end, Scratch) {
      RunRange(arguments, begin, end);
    });
  }

  bool streams() const override { return plan_.may_stream; }
  std::string Describe() const override {
    return StrCat(plan_.v_high.size(), " x ", plan_.permutations, " vectors to ",
                  plan_.c_row.size(), plan_.is_swapped ? " of A" : " of B",
                  plan_.lookups.empty() ? "" : " in a batch");
  }

 private:
  void RunRange(const StepArguments& arguments, int64_t begin, int64_t end) const {
    alignas(64) std::byte coefficients[64 * kMostGateRows * kMostGateTerms * 2];
    const T* const s = static_cast<const T*>(plan_.is_swapped ? arguments.b : arguments.a);
    const bool has_lookups = !plan_.lookups.empty();
    if (!has_lookups) SpreadCoefficients(s, reinterpret_cast<T*>(coefficients));
    const T* v = static_cast<const T*>(plan_.is_swapped ? arguments.a : arguments.b);
    T* c = static_cast<T*>(arguments.c);
    GateRun run;
    run.v_step = plan_.run.stride_b;
    run.c_step = plan_.run.stride_c;
    run.v_high = plan_.v_high.data();
    run.c_row = plan_.c_row.data();
    run.high = static_cast<int64_t>(plan_.v_high.size());
    run.rows = static_cast<int64_t>(plan_.c_row.size());
    run.permutations = plan_.permutations;
    run.lanes = plan_.lanes.data();
    run.coefficients = coefficients;
    run.s_elements = plan_.s_elements;
    run.s_step = plan_.run.stride_a;
    run.lookups = has_lookups ? plan_.lookups.data() : nullptr;
    run.accumulate = arguments.accumulate;
    run.stream =
        plan_.may_stream && !arguments.accumulate && reinterpret_cast<uintptr_t>(c) % 64 == 0;
    // Positions that memory takes to arrive. The last ones of a run ask for the first ones of a
    // later one.
    constexpr int64_t kAhead = 24;
    const int64_t lead = std::max<int64_t>(kAhead / plan_.run.extent, 1);
    Odometer at(plan_.outer, begin), later(plan_.outer, begin);
    for (int64_t i = 0; i < lead; ++i) later.Next();
    for (int64_t i = begin; i < end && !IsCancelled(arguments.cancel);
         ++i, at.Next(), later.Next()) {
      const bool is_last = (i + 1) % plan_.runs_of_loop == 0;
      const int64_t positions = is_last ? plan_.last_run : plan_.run.extent;
      const int64_t inside = std::max<int64_t>(positions - kAhead, 0);
      run.positions = inside;
      run.v_ahead = kAhead * run.v_step;
      if (inside > 0) RunGate<T>(run, s + at.a(), v + at.b(), c + at.c());
      run.positions = positions - inside;
      run.v_ahead = later.b() - at.b() - inside * run.v_step;
      RunGate<T>(run, s + at.a() + inside * run.s_step, v + at.b() + inside * run.v_step,
                 c + at.c() + inside * run.c_step);
    }
  }

  // One vector for each real part, and for complex numbers one for each imaginary part behind it.
  void SpreadCoefficients(const T* s, T* to) const {
    for (size_t i = 0; i < plan_.coefficients.size(); i += static_cast<size_t>(plan_.vector)) {
      for (int64_t lane = 0; lane < plan_.vector; ++lane) {
        const T value = s[plan_.coefficients[i + static_cast<size_t>(lane)]];
        if constexpr (IsComplexScalar<T>::value) {
          to[lane] = {value.re, value.re};
          to[plan_.vector + lane] = {value.im, value.im};
        } else {
          to[lane] = value;
        }
      }
      to += plan_.vector * (IsComplexScalar<T>::value ? 2 : 1);
    }
  }

  const GatePlan plan_;
  int64_t grain_ = 1;
};

}  // namespace

Preparation PrepareGate(const StepView& step) {
  if (step.accumulate_double) return Preparation::Refuse("sums are asked for in double");
  if (step.work() == 0) return Preparation::Refuse("an extent is 0");
  std::string refusal;
  for (const bool is_swapped : {false, true}) {
    GatePlan plan;
    plan.is_swapped = is_swapped;
    const GettRoles roles = RolesOf(step, is_swapped, /*is_across=*/false);
    refusal = PlanGate(roles, plan);
    if (!refusal.empty()) continue;
    return DispatchDType(step.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      const double seconds = plan.seconds;
      return Preparation::Accept(std::make_unique<Gate<T>>(std::move(plan)), seconds);
    });
  }
  return Preparation::Refuse(std::move(refusal));
}

}  // namespace tenon::cpu
