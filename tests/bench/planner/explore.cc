// Explores search methods on a network file: prints log10 of flops and of the score over time.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/core/network.h"
#include "backends/planner/annealing.h"
#include "backends/planner/random_greedy.h"
#include "backends/planner/reconfigure.h"

using namespace tenon;
using namespace tenon::contraction;
using namespace tenon::planner;

int main(int argc, char** argv) {
  auto file = ReadNetworkFile(argv[1]);
  std::vector<std::vector<int64_t>> shapes;
  for (auto& in : file->network.inputs) {
    shapes.emplace_back();
    for (auto& name : in) shapes.back().push_back(file->network.sizes.at(name));
  }
  auto expression = MakeExpression(file->network, shapes);
  std::vector<std::vector<int>> tensors;
  for (auto in : expression->inputs) {
    std::sort(in.begin(), in.end());
    in.erase(std::unique(in.begin(), in.end()), in.end());
    tensors.push_back(in);
  }
  SearchNetwork network(tensors, expression->output, expression->sizes);
  const std::string mode = argv[2];
  const double seconds = atof(argv[3]);
  StepPrice price;
  if (getenv("FLOPS")) price.objective.read_write_weight = 0;
  auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Stop stop(start + std::chrono::microseconds(int64_t(seconds * 1e6)), nullptr);
  StepPrice flops;
  flops.objective.read_write_weight = 0;
  double best = 1e300;
  auto report = [&](const Tree& tree, const char* what, int trial) {
    double score = tree.Cost(price);
    if (score < best) {
      best = score;
      printf("%7.2fs trial %4d %-10s log10 flops %.3f score %.3f log2 largest %.1f\n", elapsed(),
             trial, what, std::log10(tree.Cost(flops)), std::log10(score),
             std::log2(tree.Largest()));
    }
  };
  printf("tensors %d words %d graph %d\n", network.tensors(), network.words(), network.is_graph());
  double T0 = argc > 4 ? atof(argv[4]) : 1, T1 = argc > 5 ? atof(argv[5]) : 0.05;
  int64_t sweeps = argc > 6 ? atoll(argv[6]) : 1000;
  for (int trial = 0; !stop(); ++trial) {
    Random random(1, trial);
    GreedyChoice choice;
    if (trial > 0) {
      choice.weight = random.LogUniform(0.1, 10);
      choice.temperature = random.LogUniform(0.001, 1);
    }
    double t0 = elapsed();
    Tree tree(network, RandomGreedy(network, choice, random));
    report(tree, "greedy", trial);
    double t1 = elapsed();
    if (mode == "greedy") continue;
    if (mode == "reconf") {
      ReconfigureOptions options;
      options.leaves = argc > 4 ? atoi(argv[4]) : 8;
      Reconfigure(price, options, random, stop, tree);
      report(tree, "reconf", trial);
      if (trial < 3) printf("greedy %.4f reconf %.4f\n", t1 - t0, elapsed() - t1);
      continue;
    }
    Anneal(price, {T0, T1, sweeps}, random, stop, tree);
    report(tree, "anneal", trial);
    double t2 = elapsed();
    Reconfigure(price, {}, random, Stop(), tree);
    report(tree, "reconf", trial);
    if (trial < 2)
      printf("greedy %.4f anneal %.4f reconf %.4f\n", t1 - t0, t2 - t1, elapsed() - t2);
  }
  printf("%.2fs end\n", elapsed());
}
