// Times one search inside the engine, without a server, and prints one JSON object:
//   planner_micro greedy|optimal FILE --repeat N
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

Lists ReadLists(const char* path) {
  const auto file = OrDie(ReadNetworkFile(path));
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& names : file.network.inputs) {
    auto& shape = shapes.emplace_back();
    for (const auto& name : names) shape.push_back(file.network.sizes.at(name));
  }
  const auto expression = OrDie(contraction::MakeExpression(file.network, shapes));
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

int Main(int argc, char** argv) {
  if (argc != 5 || std::string_view(argv[3]) != "--repeat") {
    std::cerr << "planner_micro greedy|optimal FILE --repeat N\n";
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
