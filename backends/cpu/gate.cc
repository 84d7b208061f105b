#include "backends/cpu/gate.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "backends/core/strings.h"
#include "backends/cpu/calibration.h"
#include "backends/cpu/gate_kernels.h"
#include "backends/cpu/gett_cost.h"
#include "backends/cpu/product_kernels.h"
#include "backends/cpu/tile_axis.h"

namespace tenon::cpu {
namespace {

constexpr double kGrainSeconds = 20e-6;

// Strides below the vector's length are lane numbers. A loop over some of them is cut into its
// lanes and the rest; false unless the lanes are whole bits.
bool SplitLanes(const std::vector<tenon_mode>& modes, GettStride lane, int64_t vector,
                std::vector<tenon_mode>& inside, std::vector<tenon_mode>& outside) {
  for (tenon_mode mode : modes) {
    const int64_t stride = mode.*lane;
    if (stride == 0 || stride >= vector) {
      outside.push_back(mode);
      continue;
    }
    if (!std::has_single_bit(static_cast<uint64_t>(stride))) return false;
    const int64_t lanes = std::min(mode.extent, vector / stride);
    if (!std::has_single_bit(static_cast<uint64_t>(lanes)) || mode.extent % lanes != 0)
      return false;
    for (int64_t bit = 1; bit < lanes; bit *= 2) {
      inside.push_back({2, mode.stride_a * bit, mode.stride_b * bit, mode.stride_c * bit});
    }
    if (mode.extent == lanes) continue;
    outside.push_back(
        {mode.extent / lanes, mode.stride_a * lanes, mode.stride_b * lanes, mode.stride_c * lanes});
  }
  return true;
}

int64_t LaneMask(const std::vector<tenon_mode>& bits, GettStride lane) {
  int64_t mask = 0;
  for (const tenon_mode& bit : bits) mask |= bit.*lane;
  return mask;
}

// The offset in S of the lane's value of these bits.
int64_t OffsetOfLane(const std::vector<tenon_mode>& bits, GettStride lane, int64_t value) {
  int64_t offset = 0;
  for (const tenon_mode& bit : bits) {
    if ((value & bit.*lane) != 0) offset += bit.stride_a;
  }
  return offset;
}

struct GatePlan {
  bool is_swapped = false;
  std::vector<tenon_mode> outer;  // of runs, outermost first
  tenon_mode run{1, 0, 0, 0};     // positions of a run
  int64_t n_runs = 1;
  std::vector<int64_t> v_high, c_row;
  std::vector<int64_t> coefficients;  // offsets in S by row, h, p and lane
  std::vector<int32_t> lanes;
  int64_t permutations = 1, vector = 1;
  bool may_stream = false;
  double seconds = 0;
};

std::vector<int64_t> OffsetsIn(const std::vector<tenon_mode>& loops, GettStride stride) {
  std::vector<int64_t> offsets;
  for (Odometer at(loops); static_cast<int64_t>(offsets.size()) < LoopCount(loops); at.Next()) {
    offsets.push_back(stride == kS ? at.a() : stride == kV ? at.b() : at.c());
  }
  return offsets;
}

// Cuts the run so that there are blocks enough for threads and for cancelling.
void NestPositions(std::vector<tenon_mode> loops, GatePlan& plan) {
  constexpr int64_t kLongestRun = 1024;
  plan.outer = NestedLoops(std::move(loops), NestBy::kB);
  if (plan.outer.empty()) return;
  plan.run = plan.outer.back();
  plan.outer.pop_back();
  int64_t pieces = 1;
  while (plan.run.extent / pieces > kLongestRun && plan.run.extent % (2 * pieces) == 0) pieces *= 2;
  plan.run.extent /= pieces;
  if (pieces > 1) {
    plan.outer.push_back({pieces, plan.run.stride_a * plan.run.extent,
                          plan.run.stride_b * plan.run.extent,
                          plan.run.stride_c * plan.run.extent});
  }
  plan.n_runs = LoopCount(plan.outer);
}

void Tabulate(const std::vector<tenon_mode>& low_rows, const std::vector<tenon_mode>& low_depth,
              const std::vector<tenon_mode>& rows, const std::vector<tenon_mode>& depth,
              int64_t lanes_per_element, GatePlan& plan) {
  const int64_t mask = LaneMask(low_depth, kV);
  std::vector<int64_t> flips;  // every subset of the contracted bits, none first
  for (int64_t flip = 0;; flip = (flip - mask) & mask) {
    flips.push_back(flip);
    if (flip == mask) break;
  }
  plan.permutations = static_cast<int64_t>(flips.size());
  for (const int64_t flip : flips) {
    for (int64_t lane = 0; lane < plan.vector * lanes_per_element; ++lane) {
      plan.lanes.push_back(static_cast<int32_t>(lane ^ (flip * lanes_per_element)));
    }
  }
  plan.v_high = OffsetsIn(depth, kV);
  plan.c_row = OffsetsIn(rows, kC);
  const std::vector<int64_t> depth_s = OffsetsIn(depth, kS);
  for (const int64_t row : OffsetsIn(rows, kS)) {
    for (const int64_t high : depth_s) {
      for (const int64_t flip : flips) {
        for (int64_t lane = 0; lane < plan.vector; ++lane) {
          plan.coefficients.push_back(row + high + OffsetOfLane(low_rows, kC, lane) +
                                      OffsetOfLane(low_depth, kV, lane ^ flip));
        }
      }
    }
  }
}

// Whether every vector of C is aligned where C is, and C is too large for the caches.
bool MayStream(const GettRoles& roles, const GatePlan& plan) {
  constexpr double kLargeBytes = 32e6;
  const auto is_aligned = [&](int64_t offset) { return offset % roles.vector == 0; };
  return static_cast<double>(roles.n_rows) * static_cast<double>(roles.n_columns) *
                 static_cast<double>(roles.element_bytes) >=
             kLargeBytes &&
         is_aligned(plan.run.stride_c) &&
         std::all_of(plan.c_row.begin(), plan.c_row.end(), is_aligned) &&
         std::all_of(plan.outer.begin(), plan.outer.end(),
                     [&](const tenon_mode& loop) { return is_aligned(loop.stride_c); });
}

double PredictedSeconds(const GettRoles& roles, const GatePlan& plan) {
  const Calibration::Gate& rates = MachineCalibration().gate;
  const auto terms =
      static_cast<double>(plan.v_high.size()) * static_cast<double>(plan.permutations);
  const double position =
      terms * rates.permutation + static_cast<double>(plan.c_row.size()) *
                                      (terms * roles.parts * rates.multiply_add + rates.row);
  return 1e-9 * static_cast<double>(plan.n_runs) *
         (static_cast<double>(plan.run.extent) * position + rates.run);
}

// The plan, or the reason why there is none.
std::string PlanGate(const GettRoles& roles, GatePlan& plan) {
  constexpr int64_t kMostSide = 16;
  if (roles.items != 1) return "it has a batch";
  if (roles.n_rows > kMostSide || roles.n_depth > kMostSide) return "neither operand is a gate";
  std::vector<tenon_mode> low_columns, columns, low_depth, depth, low_rows, rows;
  if (!SplitLanes(roles.columns, kV, roles.vector, low_columns, columns) ||
      !SplitLanes(roles.depth, kV, roles.vector, low_depth, depth) ||
      !SplitLanes(roles.rows, kC, roles.vector, low_rows, rows)) {
    return "lanes of a vector are no whole bits";
  }
  const int64_t mask = LaneMask(low_depth, kV), kept = LaneMask(low_columns, kV);
  if (mask == 0) return "no contracted index lies inside a vector";
  const bool is_in_place =
      std::all_of(low_columns.begin(), low_columns.end(),
                  [](const tenon_mode& bit) { return bit.stride_b == bit.stride_c; }) &&
      std::all_of(columns.begin(), columns.end(),
                  [&](const tenon_mode& loop) { return loop.stride_c >= roles.vector; });
  if ((mask | kept) != roles.vector - 1 || LaneMask(low_rows, kC) != mask || !is_in_place) {
    return "the result does not take the place of the contracted lanes";
  }
  plan.vector = roles.vector;
  Tabulate(low_rows, low_depth, rows, depth, roles.element_bytes / 4, plan);
  if (!HasGateKernel(static_cast<int64_t>(plan.v_high.size()), plan.permutations) ||
      static_cast<int64_t>(plan.c_row.size()) > kMostGateRows) {
    return "too many contracted indices";
  }
  NestPositions(std::move(columns), plan);
  plan.may_stream = MayStream(roles, plan);
  plan.seconds = PredictedSeconds(roles, plan);
  return "";
}

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

  std::string Describe() const override {
    return StrCat(plan_.v_high.size(), " x ", plan_.permutations, " vectors to ",
                  plan_.c_row.size(), plan_.is_swapped ? " of A" : " of B");
  }

 private:
  void RunRange(const StepArguments& arguments, int64_t begin, int64_t end) const {
    alignas(64) std::byte coefficients[64 * kMostGateRows * kMostGateTerms * 2];
    SpreadCoefficients(static_cast<const T*>(plan_.is_swapped ? arguments.b : arguments.a),
                       reinterpret_cast<T*>(coefficients));
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
    run.accumulate = arguments.accumulate;
    run.stream =
        plan_.may_stream && !arguments.accumulate && reinterpret_cast<uintptr_t>(c) % 64 == 0;
    // Positions that memory takes to arrive. The last ones of a run ask for the first ones of a
    // later one.
    constexpr int64_t kAhead = 24;
    const int64_t positions = plan_.run.extent, lead = std::max<int64_t>(kAhead / positions, 1);
    const int64_t inside = std::max<int64_t>(positions - kAhead, 0);
    Odometer at(plan_.outer, begin), later(plan_.outer, begin);
    for (int64_t i = 0; i < lead; ++i) later.Next();
    for (int64_t i = begin; i < end && !IsCancelled(arguments.cancel);
         ++i, at.Next(), later.Next()) {
      run.positions = inside;
      run.v_ahead = kAhead * run.v_step;
      RunGate<T>(run, v + at.b(), c + at.c());
      run.positions = positions - inside;
      run.v_ahead = later.b() - at.b() - inside * run.v_step;
      RunGate<T>(run, v + at.b() + inside * run.v_step, c + at.c() + inside * run.c_step);
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
