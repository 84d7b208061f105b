#include "backends/cpu/gate_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/cpu/calibration.h"
#include "backends/cpu/gate_kernels.h"
#include "backends/cpu/tile_axis.h"

namespace tenon::cpu {
namespace {

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

// Cuts the innermost loop so that there are runs enough for threads and for cancelling.
void NestPositions(std::vector<tenon_mode> loops, GatePlan& plan) {
  constexpr int64_t kLongestRun = 1024;
  plan.outer = NestedLoops(std::move(loops), NestBy::kB);
  if (plan.outer.empty()) return;
  tenon_mode& inner = plan.outer.back();
  plan.run = inner;
  plan.run.extent = std::min(inner.extent, kLongestRun);
  plan.runs_of_loop = (inner.extent + kLongestRun - 1) / kLongestRun;
  plan.last_run = inner.extent - (plan.runs_of_loop - 1) * plan.run.extent;
  inner = {plan.runs_of_loop, inner.stride_a * plan.run.extent, inner.stride_b * plan.run.extent,
           inner.stride_c * plan.run.extent};
  plan.n_runs = LoopCount(plan.outer);
}

// The loops of a group, cut into lanes and the rest.
struct Split {
  std::vector<tenon_mode> low, high;
};

void Tabulate(const Split& rows, const Split& depth, const Split& batch, int64_t lanes_per_element,
              GatePlan& plan) {
  const int64_t mask = LaneMask(depth.low, kV);
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
  plan.v_high = Positions(depth.high, kV);
  plan.c_row = Positions(rows.high, kC);
  const std::vector<int64_t> depth_s = Positions(depth.high, kS);
  for (const int64_t row : Positions(rows.high, kS)) {
    for (const int64_t high : depth_s) {
      for (const int64_t flip : flips) {
        for (int64_t lane = 0; lane < plan.vector; ++lane) {
          plan.coefficients.push_back(row + high + OffsetOfLane(rows.low, kC, lane) +
                                      OffsetOfLane(depth.low, kV, lane ^ flip) +
                                      OffsetOfLane(batch.low, kV, lane));
        }
      }
    }
  }
}

// For each coefficient vector, real and imaginary part, where its 4-byte lanes lie in S.
void TabulateLookups(const GettRoles& roles, GatePlan& plan) {
  const int64_t lanes_per_real = roles.element_bytes / roles.parts / 4;
  const auto vector = static_cast<size_t>(plan.vector);
  for (size_t first = 0; first < plan.coefficients.size(); first += vector) {
    for (int64_t part = 0; part < roles.parts; ++part) {
      for (size_t i = first; i < first + vector; ++i) {
        const int64_t real = plan.coefficients[i] * roles.parts + part;
        for (int64_t copy = 0; copy < roles.parts; ++copy) {  // in both parts of the element
          for (int64_t lane = 0; lane < lanes_per_real; ++lane) {
            plan.lookups.push_back(static_cast<uint32_t>(real * lanes_per_real + lane));
          }
        }
      }
    }
  }
}

// Whether every vector of C is aligned where C is, and C is too large for the caches.
bool MayStream(const GettRoles& roles, const GatePlan& plan) {
  const auto is_aligned = [&](int64_t offset) { return offset % roles.vector == 0; };
  return static_cast<double>(roles.items) * static_cast<double>(roles.n_rows) *
                 static_cast<double>(roles.n_columns) * static_cast<double>(roles.element_bytes) >=
             kStreamedBytes &&
         is_aligned(plan.run.stride_c) &&
         std::all_of(plan.c_row.begin(), plan.c_row.end(), is_aligned) &&
         std::all_of(plan.outer.begin(), plan.outer.end(),
                     [&](const tenon_mode& loop) { return is_aligned(loop.stride_c); });
}

double PredictedSeconds(const GettRoles& roles, const GatePlan& plan) {
  const Calibration::Gate& rates = MachineCalibration().gate;
  const auto terms =
      static_cast<double>(plan.v_high.size()) * static_cast<double>(plan.permutations);
  const double lookup = plan.lookups.empty() ? 0 : rates.permutation;
  const double position = terms * rates.permutation +
                          static_cast<double>(plan.c_row.size()) *
                              (terms * roles.parts * (rates.multiply_add + lookup) + rates.row);
  return 1e-9 * static_cast<double>(plan.n_runs) *
         (static_cast<double>(plan.run.extent) * position + rates.run);
}

}  // namespace

std::string PlanGate(const GettRoles& roles, GatePlan& plan) {
  constexpr int64_t kMostSide = 16;
  if (roles.n_rows > kMostSide || roles.n_depth > kMostSide) return "neither operand is a gate";
  Split columns, depth, rows, batch;
  if (!SplitLanes(roles.columns, kV, roles.vector, columns.low, columns.high) ||
      !SplitLanes(roles.batch, kV, roles.vector, batch.low, batch.high) ||
      !SplitLanes(roles.depth, kV, roles.vector, depth.low, depth.high) ||
      !SplitLanes(roles.rows, kC, roles.vector, rows.low, rows.high)) {
    return "lanes of a vector are no whole bits";
  }
  const int64_t mask = LaneMask(depth.low, kV);
  if (mask == 0) return "no contracted index lies inside a vector";
  const auto is_in_place = [&](const Split& kept) {
    return std::all_of(kept.low.begin(), kept.low.end(),
                       [](const tenon_mode& bit) { return bit.stride_b == bit.stride_c; }) &&
           std::all_of(kept.high.begin(), kept.high.end(),
                       [&](const tenon_mode& loop) { return loop.stride_c >= roles.vector; });
  };
  const int64_t kept = LaneMask(columns.low, kV) | LaneMask(batch.low, kV);
  if ((mask | kept) != roles.vector - 1 || LaneMask(rows.low, kC) != mask ||
      !is_in_place(columns) || !is_in_place(batch)) {
    return "the result does not take the place of the contracted lanes";
  }
  plan.vector = roles.vector;
  Tabulate(rows, depth, batch, roles.element_bytes / 4, plan);
  if (!HasGateKernel(static_cast<int64_t>(plan.v_high.size()), plan.permutations) ||
      static_cast<int64_t>(plan.c_row.size()) > kMostGateRows) {
    return "too many contracted indices";
  }
  if (roles.items > 1) {
    const int64_t last = *std::max_element(plan.coefficients.begin(), plan.coefficients.end());
    if (last >= 2 * roles.vector || !HasGateLookups()) {
      return "the matrices of a batch do not fit in two vectors";
    }
    plan.s_elements = last + 1;
    TabulateLookups(roles, plan);
  }
  std::vector<tenon_mode> positions = std::move(columns.high);
  positions.insert(positions.end(), batch.high.begin(), batch.high.end());
  NestPositions(std::move(positions), plan);
  plan.may_stream = MayStream(roles, plan);
  plan.seconds = PredictedSeconds(roles, plan);
  return "";
}

}  // namespace tenon::cpu
