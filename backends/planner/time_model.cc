#include "backends/planner/time_model.h"

namespace tenon::planner {

double StepSeconds(const StepTimes& times, const StepSizes& sizes) {
  return times.step + times.multiply_add * sizes.joint +
         times.element * (sizes.left + sizes.right + sizes.result);
}

}  // namespace tenon::planner
