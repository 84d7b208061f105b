// How a step is run by the kernels that permute lanes in registers (gate_kernels.h).

#ifndef TENON_BACKENDS_CPU_GATE_PLAN_H_
#define TENON_BACKENDS_CPU_GATE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/gett_cost.h"

namespace tenon::cpu {

// In the roles of GettRoles: S is the small matrix, or one for each iteration of a batch.
struct GatePlan {
  bool is_swapped = false;
  std::vector<tenon_mode> outer;  // of runs, outermost first
  tenon_mode run{1, 0, 0, 0};     // positions of a run
  // The innermost of `outer` runs over the pieces of one loop, of which the last may be shorter.
  int64_t runs_of_loop = 1, last_run = 1;
  int64_t n_runs = 1;
  std::vector<int64_t> v_high, c_row;
  std::vector<int64_t> coefficients;  // offsets in S by row, h, p and lane
  // With a batch: the elements of S that a position needs, and where its coefficients lie in them
  // (GateRun::lookups). Else 0 and empty.
  int64_t s_elements = 0;
  std::vector<uint32_t> lookups;
  std::vector<int32_t> lanes;
  int64_t permutations = 1, vector = 1;
  bool may_stream = false;
  double seconds = 0;
};

// Fills in `plan` but `is_swapped`, or says why there is none.
std::string PlanGate(const GettRoles& roles, GatePlan& plan);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_GATE_PLAN_H_
