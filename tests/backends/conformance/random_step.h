// Random steps: any number of loops per group, any order of axes, diagonals and gaps.

#ifndef TENON_TESTS_BACKENDS_CONFORMANCE_RANDOM_STEP_H_
#define TENON_TESTS_BACKENDS_CONFORMANCE_RANDOM_STEP_H_

#include <cstdint>
#include <memory>
#include <random>

#include "tests/backends/conformance/test_program.h"

namespace tenon::testing {

struct RandomStep {
  std::unique_ptr<ProgramBuilder> builder;
  int64_t terms = 1;  // of the longest sum
};

// One contraction of operands 0 and 1 into the result, summed over `slices` slices that shift A.
RandomStep RandomContract(int32_t dtype, std::mt19937_64& random, int64_t largest_extent,
                          int64_t slices = 1);
// One unary step of operand 0 into the result, summed likewise.
RandomStep RandomUnary(int32_t dtype, std::mt19937_64& random, int64_t largest_extent,
                       int64_t slices = 1);

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CONFORMANCE_RANDOM_STEP_H_
