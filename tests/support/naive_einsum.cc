#include "tests/support/naive_einsum.h"

#include <map>
#include <string>

namespace tenon::testing {
namespace {

using Values = std::map<std::string, int64_t>;

// Position of the element that `names` select, in C order.
int64_t Position(const std::vector<std::string>& names, const Values& sizes, const Values& values) {
  int64_t position = 0;
  for (const std::string& name : names) position = position * sizes.at(name) + values.at(name);
  return position;
}

// Advances `values` like an odometer; false when all are back at zero.
bool Advance(const Values& sizes, Values& values) {
  for (auto& [name, value] : values) {
    if (++value < sizes.at(name)) return true;
    value = 0;
  }
  return false;
}

template <typename Real>
std::vector<std::complex<Real>> Evaluate(
    const Network& network, const std::vector<std::vector<std::complex<Real>>>& operands) {
  int64_t elements = 1;
  for (const std::string& name : network.output) elements *= network.sizes.at(name);
  std::vector<std::complex<Real>> result(elements);
  Values values;
  for (const auto& [name, size] : network.sizes) {
    if (size == 0) return result;  // the sum over nothing
    values[name] = 0;
  }
  do {
    std::complex<Real> product = 1;
    for (size_t k = 0; k < operands.size(); ++k) {
      product *= operands[k].at(Position(network.inputs[k], network.sizes, values));
    }
    result[Position(network.output, network.sizes, values)] += product;
  } while (Advance(network.sizes, values));
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
