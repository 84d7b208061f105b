// Seconds of one step on one provider, from the sizes of its tensors.
//
// A search knows no more of a step than these sizes. What a compiled program predicts is nearer to
// the truth, and takes a thousand times as long.

#ifndef TENON_BACKENDS_PLANNER_TIME_MODEL_H_
#define TENON_BACKENDS_PLANNER_TIME_MODEL_H_

#include "backends/core/dtype.h"
#include "backends/planner/objective.h"
#include "backends/plugin/calibration.h"

namespace tenon::planner {

// Of one element type, with the threads of the run.
struct StepTimes {
  double step = 0;          // seconds of any step
  double multiply_add = 0;  // seconds per element of the joint space
  // Seconds per element of the operands and of the result, while the tensors of a step have at most
  // `near_elements` together, and beyond.
  double near_read = 0, far_read = 0;
  double near_write = 0, far_write = 0;
  double near_elements = 0;
};

// Of a provider whose runs have so many threads; `dtype` is a contraction type.
StepTimes MakeStepTimes(const tenon_calibration& calibration, DType dtype, int threads);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_TIME_MODEL_H_
