#include "tests/support/naive_einsum.h"

#include <string>

namespace tenon::testing {
namespace {

// The loop over one index: what a step of it adds to the position in each tensor, the output last.
struct Loop {
  int64_t size = 0, value = 0;
  std::vector<int64_t> strides;
};

// Position of the element of C order where `name` alone is 1, times over for repeated names.
int64_t StrideOf(const std::string& name, const std::vector<std::string>& axes,
                 const std::map<std::string, int64_t>& sizes) {
  int64_t stride = 0;
  for (const std::string& axis : axes) stride = stride * sizes.at(axis) + (axis == name ? 1 : 0);
  return stride;
}

// Advances the loops like an odometer; false when all are back at zero.
bool Advance(std::vector<Loop>& loops, std::vector<int64_t>& positions) {
  for (Loop& loop : loops) {
    const bool turns = ++loop.value == loop.size;
    const int64_t steps = turns ? 1 - loop.size : 1;
    for (size_t k = 0; k < positions.size(); ++k) positions[k] += steps * loop.strides[k];
    if (!turns) return true;
    loop.value = 0;
  }
  return false;
}

template <typename Real>
std::vector<std::complex<Real>> Evaluate(
    const Network& network, const std::vector<std::vector<std::complex<Real>>>& operands) {
  int64_t elements = 1;
  for (const std::string& name : network.output) elements *= network.sizes.at(name);
  std::vector<std::complex<Real>> result(elements);
  std::vector<Loop> loops;
  for (const auto& [name, size] : network.sizes) {
    if (size == 0) return result;  // the sum over nothing
    Loop& loop = loops.emplace_back(Loop{size, 0, {}});
    for (const auto& input : network.inputs) {
      loop.strides.push_back(StrideOf(name, input, network.sizes));
    }
    loop.strides.push_back(StrideOf(name, network.output, network.sizes));
  }
  std::vector<int64_t> positions(operands.size() + 1, 0);
  do {
    std::complex<Real> product = 1;
    for (size_t k = 0; k < operands.size(); ++k) {
      const std::complex<Real> x = operands[k].at(positions[k]);
      // Without the tests for infinities of std::complex.
      product = {product.real() * x.real() - product.imag() * x.imag(),
                 product.real() * x.imag() + product.imag() * x.real()};
    }
    result.at(positions.back()) += product;
  } while (Advance(loops, positions));
  return result;
}

}  // namespace

std::vector<std::complex<double>> NaiveEinsum(
    const Network& network, const std::vector<std::vector<std::complex<double>>>& operands) {
  return Evaluate(network, operands);
}

std::vector<std::complex<long double>> ExtendedEinsum(
    const Network& network, const std::vector<std::vector<std::complex<long double>>>& operands) {
  return Evaluate(network, operands);
}

}  // namespace tenon::testing
