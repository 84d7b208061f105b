// The definition of a contraction, as slow as it reads: the oracle of contraction tests.

#ifndef TENON_TESTS_SUPPORT_NAIVE_EINSUM_H_
#define TENON_TESTS_SUPPORT_NAIVE_EINSUM_H_

#include <complex>
#include <vector>

#include "backends/core/network.h"

namespace tenon::testing {

// Sums the product of all operands over the joint space of all indices, in order of names. Every
// index must have its size in `network.sizes`; operands are in C order. The result is in C order of
// the output.
std::vector<std::complex<double>> NaiveEinsum(
    const Network& network, const std::vector<std::vector<std::complex<double>>>& operands);

// The same in extended precision, whose range is 10^(+-4932).
std::vector<std::complex<long double>> ExtendedEinsum(
    const Network& network, const std::vector<std::vector<std::complex<long double>>>& operands);

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_NAIVE_EINSUM_H_
