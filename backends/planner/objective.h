// What a step of a contraction tree costs, by the objective of a search.

#ifndef TENON_BACKENDS_PLANNER_OBJECTIVE_H_
#define TENON_BACKENDS_PLANNER_OBJECTIVE_H_

#include <algorithm>
#include <limits>

namespace tenon::planner {

// Coefficients of the seconds of one step (time_model.h).
struct StepTimes;

// The elements of the two operands, of the result, and of all indices together. They tell the modes
// too: K = joint / result, M = joint / right, N = joint / left, and the batch is the rest.
struct StepSizes {
  double left, right, result, joint;
  double runs = 1;  // over all slices
};

double StepSeconds(const StepTimes& times, const StepSizes& sizes);

// Additive over the steps of a tree. Costs are those of one run.
struct Objective {
  enum class Kind {
    kWeighted,  // flops_weight * joint + read_write_weight * (left + right + result)
    kLargest,   // the largest result; steps cost its square, so that the largest decide
    kSeconds,   // by a provider's time model
  };
  Kind kind = Kind::kWeighted;
  double flops_weight = 1;
  double read_write_weight = 64;
  const StepTimes* times = nullptr;  // for kSeconds; outlives the search

  double StepCost(const StepSizes& sizes) const {
    switch (kind) {
      case Kind::kWeighted:
        return Weighted(flops_weight, sizes.joint) +
               Weighted(read_write_weight, sizes.left + sizes.right + sizes.result);
      case Kind::kLargest:
        return sizes.result * sizes.result;
      case Kind::kSeconds:
        return StepSeconds(*times, sizes);
    }
    return 0;
  }

 private:
  // Sizes beyond the range are infinite, and zero times that is no number.
  static double Weighted(double weight, double value) { return weight == 0 ? 0 : weight * value; }
};

// What a search minimises step by step, all runs together: results over a limit of elements cost
// more by the square of the excess, so that trees move towards the limit and still have a slope
// beyond it.
struct StepPrice {
  Objective objective;
  double largest_elements = std::numeric_limits<double>::infinity();

  double operator()(const StepSizes& sizes) const {
    const double runs = objective.kind == Objective::Kind::kLargest ? 1 : sizes.runs;
    const double cost = objective.StepCost(sizes) * runs;
    if (!(sizes.result > largest_elements)) return cost;
    const double excess = sizes.result / largest_elements;
    return cost * excess * excess;
  }
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_OBJECTIVE_H_
