#include "tests/backends/contraction/test_networks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tenon::testing {
namespace {

int64_t Uniform(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Sizes whose product stays small; a few are 1, and now and then one is 0.
std::map<std::string, int64_t> SizesOfNames(std::mt19937_64& random, const RandomSizes& options) {
  static const std::vector<std::string> kNames = {"a", "索引",   "𝛼",  "I", "ı",
                                                  "i", "bond 7", "zz", "b", "c"};
  std::map<std::string, int64_t> sizes;
  int64_t joint = 1;
  const bool may_be_empty = Uniform(random, 0, 9) == 0;
  const size_t count = Uniform(random, 1, kNames.size());
  for (size_t i = 0; i < count; ++i) {
    int64_t size = Uniform(random, 0, 6) == 0
                       ? 1
                       : options.sizes[Uniform(random, 0, options.sizes.size() - 1)];
    if (joint * size > options.joint) size = joint * 2 > options.joint ? 1 : 2;
    joint *= size;
    if (may_be_empty && Uniform(random, 0, 5) == 0) size = 0;
    sizes[kNames[i]] = size;
  }
  return sizes;
}

}  // namespace

std::vector<std::vector<int64_t>> ShapesOf(const Network& network) {
  std::vector<std::vector<int64_t>> shapes;
  for (const std::vector<std::string>& input : network.inputs) {
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (const std::string& name : input) shape.push_back(network.sizes.at(name));
  }
  return shapes;
}

contraction::Expression ExpressionOf(const Network& network) {
  auto expression = contraction::MakeExpression(network, ShapesOf(network));
  EXPECT_TRUE(expression.ok()) << expression.status();
  return *std::move(expression);
}

Network NetworkOf(const std::vector<std::string>& inputs, const std::string& output,
                  const std::map<std::string, int64_t>& sizes) {
  const auto split = [](const std::string& text) {
    std::vector<std::string> names;
    for (const char name : text) names.emplace_back(1, name);
    return names;
  };
  Network network;
  for (const std::string& input : inputs) network.inputs.push_back(split(input));
  network.output = split(output);
  network.sizes = sizes;
  return network;
}

std::vector<std::vector<std::complex<double>>> IntegerOperands(const Network& network,
                                                               std::mt19937_64& random) {
  std::vector<std::vector<std::complex<double>>> operands;
  for (const std::vector<int64_t>& shape : ShapesOf(network)) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    std::vector<std::complex<double>>& operand = operands.emplace_back();
    for (int64_t i = 0; i < elements; ++i) {
      const double real = static_cast<double>(Uniform(random, -2, 2));
      operand.emplace_back(real, static_cast<double>(Uniform(random, -1, 1)));
    }
  }
  return operands;
}

Network RandomNetwork(std::mt19937_64& random, const RandomSizes& options) {
  Network network;
  const std::map<std::string, int64_t> sizes = SizesOfNames(random, options);
  std::vector<std::string> names;
  for (const auto& [name, size] : sizes) names.push_back(name);
  const int64_t count = Uniform(random, 1, 12);
  std::set<std::string> held;
  for (int64_t k = 0; k < count; ++k) {
    std::vector<std::string>& input = network.inputs.emplace_back();
    for (int64_t rank = Uniform(random, 0, 4); rank > 0; --rank) {
      input.push_back(names[Uniform(random, 0, names.size() - 1)]);
      held.insert(input.back());
    }
  }
  for (const std::string& name : held) {
    network.sizes[name] = sizes.at(name);
    if (Uniform(random, 0, 3) == 0) network.output.push_back(name);
  }
  std::shuffle(network.output.begin(), network.output.end(), random);
  return network;
}

contraction::Path RandomPath(size_t n_inputs, std::mt19937_64& random) {
  std::vector<int> alive;
  for (size_t k = 0; k < n_inputs; ++k) alive.push_back(static_cast<int>(k));
  contraction::Path path;
  while (alive.size() > 1) {
    std::shuffle(alive.begin(), alive.end(), random);
    const int a = alive.back();
    alive.pop_back();
    path.pairs.emplace_back(a, alive.back());
    alive.back() = static_cast<int>(n_inputs + path.pairs.size() - 1);
  }
  return path;
}

std::vector<int> RandomSliced(const contraction::Expression& expression, std::mt19937_64& random) {
  const int64_t one_in = Uniform(random, 1, 4);
  std::vector<int> sliced;
  for (size_t index = 0; index < expression.sizes.size(); ++index) {
    if (Uniform(random, 1, one_in) == 1) sliced.push_back(static_cast<int>(index));
  }
  std::shuffle(sliced.begin(), sliced.end(), random);
  return sliced;
}

}  // namespace tenon::testing
