// Times one search inside the engine, without a server, or tells what of a plan runs, and prints
// one JSON object:
//   planner_micro greedy|optimal FILE --repeat N
//   planner_micro executed FILE
// "executed" prints "flops" and "read_write" of the file's path over all slices, hoisting and reuse
// between them taken into account.
// "seconds" of each of N searches, from the index lists of the network on, on one thread; the cost
// of what was found. "optimal" is ExactTree of backends/planner/exact.h within its own limits.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/core/network.h"
#include "backends/planner/exact.h"
#include "backends/planner/random.h"
#include "backends/planner/random_greedy.h"
#include "backends/planner/search_network.h"
#include "backends/planner/tree.h"
#include "nlohmann/json.hpp"
#include "tests/bench/contraction/or_die.h"

namespace tenon::planner {
namespace {

using bench::OrDie;

struct Lists {
  std::vector<std::vector<int>> tensors;
  std::vector<int> output;
  std::vector<int64_t> sizes;
};

contraction::Expression ExpressionOf(const NetworkFile& file) {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& names : file.network.inputs) {
    auto& shape = shapes.emplace_back();
    for (const auto& name : names) shape.push_back(file.network.sizes.at(name));
  }
  return OrDie(contraction::MakeExpression(file.network, shapes));
}

Lists ReadLists(const char* path) {
  const auto expression = ExpressionOf(OrDie(ReadNetworkFile(path)));
  Lists lists{expression.inputs, expression.output, expression.sizes};
  for (auto& legs : lists.tensors) {
    std::sort(legs.begin(), legs.end());
    legs.erase(std::unique(legs.begin(), legs.end()), legs.end());
  }
  return lists;
}

double Greedy(const Lists& lists) {
  const SearchNetwork network(lists.tensors, lists.output, lists.sizes);
  Random random(1, 0);
  return Tree(network, RandomGreedy(network, {}, random)).Cost(StepPrice());
}

// Infinite where there is none within the limits.
double Optimal(const Lists& lists) {
  const SearchNetwork network(lists.tensors, lists.output, lists.sizes);
  const auto pairs = ExactTree(network, StepPrice(), {}, Stop());
  return pairs.has_value() ? Tree(network, *pairs).Cost(StepPrice()) : HUGE_VAL;
}

int PrintExecuted(const char* path) {
  const auto file = OrDie(ReadNetworkFile(path));
  const auto expression = ExpressionOf(file);
  const auto pairs = OrDie(contraction::MakePath(*file.path, expression.inputs.size()));
  const auto sliced = OrDie(contraction::MakeSliced(expression, file.sliced));
  const auto work = contraction::ComputeExecutedWork(expression, pairs, sliced);
  std::cout << nlohmann::json{{"flops", work.flops}, {"read_write", work.read_write}} << "\n";
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "executed") return PrintExecuted(argv[2]);
  if (argc != 5 || std::string_view(argv[3]) != "--repeat") {
    std::cerr << "planner_micro greedy|optimal FILE --repeat N, or planner_micro executed FILE\n";
    return 2;
  }
  const std::string_view what = argv[1];
  const Lists lists = ReadLists(argv[2]);
  if (what != "greedy" && what != "optimal") return 2;

  std::vector<double> seconds;
  double cost = 0;
  for (int repeat = std::atoi(argv[4]); repeat > 0; --repeat) {
    const auto start = std::chrono::steady_clock::now();
    cost = what == "greedy" ? Greedy(lists) : Optimal(lists);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (std::isinf(cost)) {
    std::cerr << "no optimal tree within the limits\n";
    return 1;
  }
  std::cout << nlohmann::json{{"search", what},
                              {"tensors", lists.tensors.size()},
                              {"log10_score", std::log10(cost)},
                              {"seconds", seconds}}
            << "\n";
  return 0;
}

}  // namespace
}  // namespace tenon::planner

int main(int argc, char** argv) { return tenon::planner::Main(argc, argv); }
