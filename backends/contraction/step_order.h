// The order in which the steps of a contraction tree run.

#ifndef TENON_BACKENDS_CONTRACTION_STEP_ORDER_H_
#define TENON_BACKENDS_CONTRACTION_STEP_ORDER_H_

#include <cstdint>
#include <vector>

namespace tenon::contraction {

// A step of a tree; steps are numbered so that they stand after those whose results they read.
struct TreeStep {
  int left = -1, right = -1;  // steps whose results it reads; -1: none, an operand
  int64_t elements = 0;       // of its result
};

// Elements alive at most when the steps run in `order`: a result lives from its step to the step
// that reads it, both included.
double PeakElements(const std::vector<TreeStep>& steps, const std::vector<int>& order);

// An order that finishes each subtree before it begins another, each time the one first that needs
// more memory while it is formed: least peak among all such orders. Ties keep the smaller number
// first. The last step is the root of all others.
std::vector<int> OrderSteps(const std::vector<TreeStep>& steps);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_STEP_ORDER_H_
