// Compensated summation (Neumaier): the error of a sum stays at the rounding of the result.

#ifndef TENON_BACKENDS_MEASUREMENT_SUMMATION_H_
#define TENON_BACKENDS_MEASUREMENT_SUMMATION_H_

#include <cmath>

namespace tenon::measurement {

class CompensatedSum {
 public:
  void Add(double x) {
    const double next = sum_ + x;
    correction_ += std::abs(sum_) >= std::abs(x) ? (sum_ - next) + x : (x - next) + sum_;
    sum_ = next;
  }
  // An overflowed sum has no meaningful correction (it is NaN then).
  double Value() const { return std::isfinite(sum_) ? sum_ + correction_ : sum_; }

 private:
  double sum_ = 0, correction_ = 0;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SUMMATION_H_
