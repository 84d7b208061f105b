// Small networks and paths for the tests of this room.

#ifndef TENON_TESTS_BACKENDS_CONTRACTION_TEST_NETWORKS_H_
#define TENON_TESTS_BACKENDS_CONTRACTION_TEST_NETWORKS_H_

#include <complex>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/core/network.h"

namespace tenon::testing {

// Shapes of all inputs by the network's sizes.
std::vector<std::vector<int64_t>> ShapesOf(const Network& network);

// The expression of a valid network; fails the test otherwise.
contraction::Expression ExpressionOf(const Network& network);

// Network from one-character indices: NetworkOf({"ab", "bc"}, "ac", {{"a", 2}, ...}).
Network NetworkOf(const std::vector<std::string>& inputs, const std::string& output,
                  const std::map<std::string, int64_t>& sizes);

// Small Gaussian integers, so that all sums and products of a test are exact.
std::vector<std::vector<std::complex<double>>> IntegerOperands(const Network& network,
                                                               std::mt19937_64& random);

// Sizes of indices other than 0 and 1, and the most points of the joint space.
struct RandomSizes {
  std::vector<int64_t> sizes = {2, 3, 4};
  int64_t joint = 6000;
};

// All index patterns: hyperedges, repeats, traces, private and unused-elsewhere indices, sizes 0
// and 1, scalars, disconnected parts, batch indices, names outside ASCII.
Network RandomNetwork(std::mt19937_64& random, const RandomSizes& sizes = {});
contraction::Path RandomPath(size_t n_inputs, std::mt19937_64& random);
// Any indices, of the output or not, in any order.
std::vector<int> RandomSliced(const contraction::Expression& expression, std::mt19937_64& random);

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CONTRACTION_TEST_NETWORKS_H_
