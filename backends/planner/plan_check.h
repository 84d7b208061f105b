// Plan files made and checked: nothing that a file tells is believed.

#ifndef TENON_BACKENDS_PLANNER_PLAN_CHECK_H_
#define TENON_BACKENDS_PLANNER_PLAN_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/core/plan_file.h"
#include "backends/planner/search.h"

namespace tenon::planner {

// Whether a tensor of these indices has at most `limit` elements. Exact: sizes are divided out of
// the limit, so that nothing overflows or is rounded.
bool FitsIn(const contraction::Expression& expression, const std::vector<int>& indices,
            int64_t limit);

struct CheckedPlan {
  contraction::Expression expression;  // of the file's network
  Plan plan;
  contraction::PathCost cost;
};

// Derives everything in a plan file anew and compares. Costs agree within 1e-9 of the larger.
// The score counts by the recorded objective; that of `seconds` depends on a time model that the
// file does not hold, and is not compared. Nor is memory_bytes: it is the engine's that runs it.
//
// Errors: as InputShape and MakeExpression (fields under "network."), and BAD_EXPRESSION for a
// network of no tensors; BAD_PATH for an incomplete path or a step that is not of two tensors
// (field "path.steps[s]"); BAD_SLICE as MakeSliced; EXCEEDS_MEMORY_BUDGET (field "target.elements",
// metadata target_elements, needed_elements) if a slice's results are over the target, compared as
// integers; BAD_PARAMETER with the figure as field ("costs.flops") and both values in the metadata.
absl::StatusOr<CheckedPlan> CheckPlan(const PlanFile& file);

// Also that the plan is for `network`, which may lack sizes that the file has. Compared by content:
// the same tensors in the same order with the same axes, the same output and sizes. Index names
// don't matter: indices count by first appearance, so that the answer's slices hold for both
// networks. BAD_EXPRESSION (field "network") says what differs first.
absl::StatusOr<CheckedPlan> CheckPlanFor(const PlanFile& file,
                                         const contraction::Expression& expression);

// The file of a plan, with all its figures. `network` has the sizes of all indices and is the one
// that `expression` was made of.
PlanFile MakePlanFile(const Network& network, const contraction::Expression& expression,
                      const Plan& plan, PathSteps::Format format, PlanProvenance provenance);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_PLAN_CHECK_H_
