// Seconds of one step on one provider, from the sizes of its tensors.

#ifndef TENON_BACKENDS_PLANNER_TIME_MODEL_H_
#define TENON_BACKENDS_PLANNER_TIME_MODEL_H_

#include "backends/planner/objective.h"

namespace tenon::planner {

struct StepTimes {
  double step = 0;          // seconds of any step
  double multiply_add = 0;  // seconds per element of the joint space
  double element = 0;       // seconds per element read or written
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_TIME_MODEL_H_
