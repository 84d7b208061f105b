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
#include "backends/planner/search.h"
#include "backends/planner/slicer.h"

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
  if (std::string(argv[2]) == "search") {
    SearchOptions options;
    if (getenv("FLOPS")) options.objective.read_write_weight = 0;
    if (getenv("TARGET")) options.target_elements = int64_t{1} << atoi(getenv("TARGET"));
    if (getenv("TRIALS")) {
      options.max_trials = atoi(getenv("TRIALS"));
    } else {
      options.max_seconds = atof(argv[3]);
    }
    if (getenv("THREADS")) options.threads = atoi(getenv("THREADS"));
    auto found = Search(*expression, options, nullptr, [&](const FoundPlan& plan) {
      PathCost cost = ComputeCost(*expression, plan.plan.path, plan.plan.sliced);
      printf("%7.2fs trial %4ld log10 flops %.3f score %.3f log2 largest %.1f slices 2^%.0f methods %zu\n",
             plan.seconds, plan.trials, std::log10(cost.flops), std::log10(plan.score),
             std::log2(cost.max_size), std::log2(cost.slices), plan.methods.size());
    });
    if (!found.ok()) {
      printf("%s\n", found.status().ToString().c_str());
      return 1;
    }
    printf("%.3fs trials %ld\n", found->seconds, found->trials);
    return 0;
  }
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
    if (mode == "slice") {
      const double limit = std::ldexp(1.0, getenv("TARGET") ? atoi(getenv("TARGET")) : 27);
      Anneal(price, {T0, T1, sweeps}, random, stop, tree);
      Reconfigure(price, {}, random, stop, tree);
      const double unsliced = tree.Cost(price);
      double best_here = 1e300, first = 0;
      Tree current = tree;
      StepPrice limited = price;
      limited.largest_elements = limit;
      const int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 8;
      const double T2 = getenv("T2") ? atof(getenv("T2")) : 0.3;
      const int64_t sub = getenv("SUB") ? atoll(getenv("SUB")) : sweeps / 10;
      for (int round = 0; round < rounds && !stop(); ++round) {
        std::vector<int> legs;
        double least = 1e300;
        for (int attempt = 0; attempt < 16; ++attempt) {
          std::vector<int> attempt_legs;
          SlicerOptions slicer{limit, false, attempt == 0 ? 0 : 0.1};
          if (!ChooseSlices(price, slicer, current, random, attempt_legs)) continue;
          SearchNetwork slice = network.Without(attempt_legs);
          double cost = current.On(slice).Cost(price) * Slices(network, attempt_legs);
          if (cost < least) {
            least = cost;
            legs = attempt_legs;
          }
        }
        SearchNetwork slice = network.Without(legs);
        Tree on = current.On(slice);
        if (round == 0) first = least;
        Anneal(limited, {T2, T1, sub}, random, Stop(), on);
        Reconfigure(limited, {}, random, Stop(), on);
        double cost = on.Largest() <= limit ? on.Cost(price) * Slices(network, legs) : 1e300;
        best_here = std::min({best_here, cost, least});
        current = on.On(network);
        if (cost < best) {
          best = cost;
          printf("%7.2fs trial %d round %d unsliced %.3f sliced first %.3f now %.3f slices %zu\n", elapsed(), trial, round,
                 std::log10(unsliced), std::log10(first), std::log10(cost), legs.size());
        }
      }
      if (getenv("ALL")) printf("   trial %d: unsliced %.3f first %.3f best %.3f\n", trial, std::log10(unsliced), std::log10(first), std::log10(best_here));
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
