#include "backends/planner/annealing.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tenon::planner {
namespace {

class Annealer {
 public:
  Annealer(const StepPrice& price, Random& random, Tree& tree)
      : price_(price),
        random_(random),
        tree_(tree),
        network_(tree.network()),
        legs_(network_.words()) {}

  // One proposal.
  void Propose(double temperature) {
    const int p = tree_.leaves() + random_.Below(tree_.nodes() - tree_.leaves());
    int c = tree_.left(p), z = tree_.right(p);
    const uint64_t bits = random_.Next();
    if (tree_.is_leaf(c) || (!tree_.is_leaf(z) && (bits & 1) != 0)) std::swap(c, z);
    if (tree_.is_leaf(c)) return;
    int x = tree_.left(c), y = tree_.right(c);
    if ((bits & 2) != 0) std::swap(x, y);
    const Word* in_x = tree_.legs(x);
    const Word* in_y = tree_.legs(y);
    const Word* in_z = tree_.legs(z);
    const Word* in_p = tree_.legs(p);
    // What x and z hold is needed elsewhere if y or the rest of the tree holds it.
    for (int w = 0; w < network_.words(); ++w) legs_[w] = (in_x[w] | in_z[w]) & (in_y[w] | in_p[w]);
    const double size = network_.SizeOf(legs_.data());
    const double joint_c = network_.SizeOfUnion(in_x, in_z);
    const double joint_p = network_.SizeOfUnion(legs_.data(), in_y);
    const double before = price_(tree_.Step(c)) + price_(tree_.Step(p));
    const double runs_c = network_.runs(std::max(tree_.level(x), tree_.level(z)));
    const double runs_p = network_.runs(tree_.level(p));
    const double after = price_({tree_.size(x), tree_.size(z), size, joint_c, runs_c}) +
                         price_({size, tree_.size(y), tree_.size(p), joint_p, runs_p});
    if (!(after <= before) &&
        !(temperature > 0 &&
          std::log(after / before) < -temperature * std::log(random_.Uniform()))) {
      return;
    }
    tree_.Rotate(p, c, x, y, z, legs_.data(), size, joint_c, joint_p);
  }

 private:
  const StepPrice& price_;
  Random& random_;
  Tree& tree_;
  const SearchNetwork& network_;
  std::vector<Word> legs_;
};

}  // namespace

void Anneal(const StepPrice& price, const AnnealingSchedule& schedule, Random& random,
            const Stop& stop, Tree& tree) {
  const int pairs = tree.nodes() - tree.leaves();
  if (pairs < 2) return;
  Annealer annealer(price, random, tree);
  Tree best = tree;
  double best_score = tree.Cost(price);
  const double ratio = schedule.end_temperature / schedule.start_temperature;
  for (int64_t sweep = 0; sweep < schedule.sweeps && !stop(); ++sweep) {
    const double part = static_cast<double>(sweep) / static_cast<double>(schedule.sweeps);
    const double temperature = schedule.start_temperature * std::pow(ratio, part);
    for (int p = 0; p < pairs; ++p) annealer.Propose(temperature);
    if (!schedule.keep_best) continue;
    const double score = tree.Cost(price);
    if (score < best_score) {
      best_score = score;
      best = tree;
    }
  }
  if (schedule.keep_best) tree = best;
}

void Temper(const StepPrice& price, const TemperingSchedule& schedule, Random& random,
            const Stop& stop, Tree& tree) {
  const int pairs = tree.nodes() - tree.leaves();
  if (pairs < 2) return;
  std::vector<Tree> replicas(schedule.replicas, tree);
  std::vector<double> costs(schedule.replicas), temperatures(schedule.replicas);
  const double ratio = schedule.coldest / schedule.hottest;
  for (int r = 0; r < schedule.replicas; ++r) {
    temperatures[r] =
        schedule.hottest * std::pow(ratio, static_cast<double>(r) / (schedule.replicas - 1));
  }
  double best_cost = tree.Cost(price);
  for (int64_t round = 0; round < schedule.rounds && !stop(); ++round) {
    for (int r = 0; r < schedule.replicas; ++r) {
      Annealer annealer(price, random, replicas[r]);
      for (int64_t sweep = 0; sweep < schedule.sweeps && !stop(); ++sweep) {
        for (int p = 0; p < pairs; ++p) annealer.Propose(temperatures[r]);
      }
      costs[r] = replicas[r].Cost(price);
      if (costs[r] < best_cost) {
        best_cost = costs[r];
        tree = replicas[r];
      }
    }
    for (int r = 0; r + 1 < schedule.replicas; ++r) {
      const double gain = (1 / temperatures[r] - 1 / temperatures[r + 1]) *
                          (std::log(costs[r]) - std::log(costs[r + 1]));
      if (!(std::log(random.Uniform()) < gain)) continue;
      std::swap(replicas[r], replicas[r + 1]);
      std::swap(costs[r], costs[r + 1]);
    }
  }
}

}  // namespace tenon::planner
