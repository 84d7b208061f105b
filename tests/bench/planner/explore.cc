// Explores search methods on a network: prints log10 of flops and of the score whenever they fall.
//
//   planner_explore NETWORK MODE SECONDS [...]
//
// NETWORK is a file, lattice:WxH (a square lattice), regular:N:SEED (a random 3-regular graph),
// or band:N:R (tensors up to R apart share a leg: a chain for 1, complete for N); all of size 2.
// MODE is START[+STEP]...; starts are greedy and bisect, steps reconf, order (best over the order
// of the leaves) and anneal. `exact` and `anneal` (greedy+anneal+reconf) stand alone. Environment:
// FLOPS=1 makes flops the objective, T0, T1 and SWEEPS set the annealing, LEAVES the parts of
// reconf, TRIALS the most trials.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/core/network.h"
#include "backends/planner/annealing.h"
#include "backends/planner/bisection.h"
#include "backends/planner/exact.h"
#include "backends/planner/leaf_order.h"
#include "backends/planner/random_greedy.h"
#include "backends/planner/reconfigure.h"
#include "backends/planner/search.h"

namespace {

using namespace tenon;           // NOLINT
using namespace tenon::planner;  // NOLINT

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

double Setting(const char* name, double otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atof(value);
}

SearchNetwork FromEdges(int tensors, const std::vector<std::pair<int, int>>& edges) {
  std::vector<std::vector<int>> legs(tensors);
  for (size_t e = 0; e < edges.size(); ++e) {
    legs[edges[e].first].push_back(static_cast<int>(e));
    legs[edges[e].second].push_back(static_cast<int>(e));
  }
  return SearchNetwork(legs, {}, std::vector<int64_t>(edges.size(), 2));
}

SearchNetwork Lattice(int width, int height) {
  std::vector<std::pair<int, int>> edges;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      if (x + 1 < width) edges.emplace_back(y * width + x, y * width + x + 1);
      if (y + 1 < height) edges.emplace_back(y * width + x, (y + 1) * width + x);
    }
  }
  return FromEdges(width * height, edges);
}

// Pairs of free ends at random until no tensor meets itself or another twice.
SearchNetwork Regular(int tensors, int seed) {
  for (Random random(seed, 0);;) {
    std::vector<int> ends;
    for (int e = 0; e < 3 * tensors; ++e) ends.push_back(e / 3);
    for (int e = 3 * tensors - 1; e > 0; --e) std::swap(ends[e], ends[random.Below(e + 1)]);
    std::map<std::pair<int, int>, int> edges;
    bool simple = true;
    for (int e = 0; e < 3 * tensors; e += 2) {
      const int a = std::min(ends[e], ends[e + 1]), b = std::max(ends[e], ends[e + 1]);
      simple &= a != b && ++edges[{a, b}] == 1;
    }
    if (!simple) continue;
    std::vector<std::pair<int, int>> list;
    for (const auto& [edge, count] : edges) list.push_back(edge);
    return FromEdges(tensors, list);
  }
}

SearchNetwork Band(int tensors, int reach) {
  std::vector<std::pair<int, int>> edges;
  for (int b = 0; b < tensors; ++b) {
    for (int a = std::max(0, b - reach); a < b; ++a) edges.emplace_back(a, b);
  }
  return FromEdges(tensors, edges);
}

SearchNetwork FromFile(const std::string& path) {
  auto file = ReadNetworkFile(path);
  std::vector<std::vector<int64_t>> shapes;
  for (auto& in : file->network.inputs) {
    shapes.emplace_back();
    for (auto& name : in) shapes.back().push_back(file->network.sizes.at(name));
  }
  auto expression = contraction::MakeExpression(file->network, shapes);
  std::vector<std::vector<int>> tensors;
  for (auto in : expression->inputs) {
    std::sort(in.begin(), in.end());
    in.erase(std::unique(in.begin(), in.end()), in.end());
    tensors.push_back(in);
  }
  return SearchNetwork(tensors, expression->output, expression->sizes);
}

SearchNetwork MakeNetwork(const std::string& name) {
  const std::vector<std::string> parts = Split(name, ':');
  if (parts[0] == "lattice") {
    const std::vector<std::string> sizes = Split(parts[1], 'x');
    return Lattice(std::stoi(sizes[0]), std::stoi(sizes[1]));
  }
  if (parts[0] == "regular") return Regular(std::stoi(parts[1]), std::stoi(parts[2]));
  if (parts[0] == "band") return Band(std::stoi(parts[1]), std::stoi(parts[2]));
  return FromFile(name);
}

class Exploration {
 public:
  Exploration(const SearchNetwork& network, double seconds)
      : network_(network),
        start_(std::chrono::steady_clock::now()),
        stop_(start_ + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)), nullptr) {
    flops_.objective.read_write_weight = 0;
    if (Setting("FLOPS", 0) != 0) price_ = flops_;
  }

  void Exact() {
    const auto pairs = ExactTree(network_, price_, {}, stop_);
    if (pairs.has_value()) Report(Tree(network_, *pairs), "exact", 0);
    std::printf("%.4fs end\n", Elapsed());
  }

  void Trials(const std::vector<std::string>& steps) {
    const int trials = static_cast<int>(Setting("TRIALS", 1e9));
    int trial = 0;
    for (; trial < trials && !stop_(); ++trial) {
      Random random(1, trial);
      double before = Elapsed();
      Tree tree(network_, Start(steps[0], trial, random));
      Report(tree, steps[0], trial);
      spent_[steps[0]] += Elapsed() - before;
      for (size_t s = 1; s < steps.size(); ++s) {
        before = Elapsed();
        Improve(steps[s], random, tree);
        Report(tree, steps[s], trial);
        spent_[steps[s]] += Elapsed() - before;
      }
    }
    std::printf("%.2fs end, %d trials", Elapsed(), trial);
    for (const auto& [step, seconds] : spent_) {
      std::printf(", %s %.2f ms", step.c_str(), seconds / trial * 1e3);
    }
    std::printf("\n");
  }

 private:
  double Elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  Pairs Start(const std::string& step, int trial, Random& random) {
    if (step == "bisect") {
      return Bisect(network_, RandomBisectionChoice(price_, random), random, stop_);
    }
    GreedyChoice choice;
    if (trial > 0) {
      choice.weight = random.LogUniform(0.1, 10);
      choice.temperature = random.LogUniform(0.001, 1);
    }
    return RandomGreedy(network_, choice, random);
  }

  void Improve(const std::string& step, Random& random, Tree& tree) {
    if (step == "reconf") {
      ReconfigureOptions options;
      options.leaves = static_cast<int>(Setting("LEAVES", 8));
      Reconfigure(price_, options, random, stop_, tree);
    } else if (step == "order") {
      ImproveOverOrder(price_, stop_, tree);
    } else {
      const AnnealingSchedule schedule = {Setting("T0", 1), Setting("T1", 0.05),
                                          static_cast<int64_t>(Setting("SWEEPS", 1000))};
      Anneal(price_, schedule, random, stop_, tree);
    }
  }

  void Report(const Tree& tree, const std::string& what, int trial) {
    const double score = tree.Cost(price_);
    if (!(score < best_)) return;
    best_ = score;
    std::printf("%7.2fs trial %4d %-10s log10 flops %.3f score %.3f log2 largest %.1f\n", Elapsed(),
                trial, what.c_str(), std::log10(tree.Cost(flops_)), std::log10(score),
                std::log2(tree.Largest()));
  }

  const SearchNetwork& network_;
  const std::chrono::steady_clock::time_point start_;
  const Stop stop_;
  StepPrice price_, flops_;
  double best_ = INFINITY;
  std::map<std::string, double> spent_;
};

contraction::Expression ReadExpression(const char* path) {
  const auto file = ReadNetworkFile(path);
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& input : file->network.inputs) {
    shapes.emplace_back();
    for (const std::string& name : input) shapes.back().push_back(file->network.sizes.at(name));
  }
  return *contraction::MakeExpression(file->network, shapes);
}

int RunSearch(const char* path, double seconds) {
  const contraction::Expression expression = ReadExpression(path);
  SearchOptions options;
  if (std::getenv("FLOPS") != nullptr) options.objective.read_write_weight = 0;
  if (Setting("TARGET", 0) > 0) {
    options.target_elements = int64_t{1} << static_cast<int>(Setting("TARGET", 0));
  }
  if (Setting("TRIALS", 0) > 0) {
    options.max_trials = static_cast<int64_t>(Setting("TRIALS", 0));
  } else {
    options.max_seconds = seconds;
  }
  options.seed = static_cast<uint64_t>(Setting("SEED", 0));
  options.slicing_mode = static_cast<SlicingMode>(Setting("SLICING", 0));
  options.threads = static_cast<int>(Setting("THREADS", 0));
  const auto found = Search(expression, options, nullptr, [&](const FoundPlan& plan) {
    const auto cost = contraction::ComputeCost(expression, plan.plan.path, plan.plan.sliced);
    std::printf("%7.2fs trial %4ld log10 flops %.3f score %.3f log2 largest %.1f slices 2^%.1f\n",
                plan.seconds, plan.trials, std::log10(cost.flops), std::log10(plan.score),
                std::log2(cost.max_size), std::log2(cost.slices));
  });
  if (!found.ok()) {
    std::printf("%s\n", found.status().ToString().c_str());
    return 1;
  }
  std::printf("%.3fs trials %ld\n", found->seconds, found->trials);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: planner_explore NETWORK MODE SECONDS\n");
    return 2;
  }
  if (std::string(argv[2]) == "search") return RunSearch(argv[1], std::atof(argv[3]));
  const SearchNetwork network = MakeNetwork(argv[1]);
  std::printf("tensors %d words %d graph %d\n", network.tensors(), network.words(),
              network.is_graph());
  const std::string mode = argv[2];
  Exploration exploration(network, std::atof(argv[3]));
  if (mode == "exact") {
    exploration.Exact();
  } else {
    exploration.Trials(Split(mode == "anneal" ? "greedy+anneal+reconf" : mode, '+'));
  }
}
