// How a step is seen by the register-blocked product, and what a way to cut it costs.

#ifndef TENON_BACKENDS_CPU_GETT_COST_H_
#define TENON_BACKENDS_CPU_GETT_COST_H_

#include <cstdint>
#include <vector>

#include "backends/cpu/gett_plan.h"
#include "backends/cpu/step_view.h"

namespace tenon::cpu {

// A stride in S, V or C.
using GettStride = int64_t tenon_mode::*;
inline constexpr GettStride kS = &tenon_mode::stride_a, kV = &tenon_mode::stride_b,
                            kC = &tenon_mode::stride_c;

// Results of this size are written past the caches where all of their vectors are aligned.
inline constexpr double kStreamedBytes = 32e6;

// A step in the roles of the kernel (see gett_plan.h).
struct GettRoles {
  std::vector<tenon_mode> batch, rows, columns, depth;
  int64_t items = 1, n_rows = 1, n_columns = 1, n_depth = 1;
  int64_t element_bytes = 0, vector = 1;
  int parts = 1;
  bool may_accumulate = false;
  bool is_across = false;
};

GettRoles RolesOf(const StepView& step, bool is_swapped, bool is_across);

// How the columns of a tile, long or short, fall into vectors: the length of runs that are
// contiguous in every tensor that is not packed, each of whole vectors and at most one partial one.
int64_t RunOf(const GettPlan& plan, bool is_across, bool tail);

// Whether tiles of V, packed for one depth after the other, are all kept for the next rows.
bool KeepsAllDepths(const GettRoles& roles, const GettPlan& plan);

// With all axes of `plan` cut and its tiles in order: decides which tensors are packed and of how
// many pieces vectors are made, and predicts the time. Rates are of one core, measured, and part of
// the kernels' version.
void EvaluateCuts(const GettRoles& roles, GettPlan& plan);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_GETT_COST_H_
