#include "backends/planner/trial.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/planner/annealing.h"
#include "backends/planner/bisection.h"
#include "backends/planner/leaf_order.h"
#include "backends/planner/random_greedy.h"
#include "backends/planner/reconfigure.h"
#include "backends/planner/slice.h"
#include "backends/planner/slicer.h"

namespace tenon::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Temperatures of the logarithm of a local cost: at the first nearly all rotations are accepted
// that cost a small factor, at the last none that cost a few percent.
constexpr double kHot = 1, kWarm = 0.3, kCold = 0.05;

bool Uses(const TrialOptions& options, Method method) {
  return std::find(options.methods.begin(), options.methods.end(), method) != options.methods.end();
}

// What ends the work without which a tree is no plan.
Stop StopOfFirst(const TrialOptions& options, const Stop& stop) {
  return options.plan_known ? stop : Stop({}, stop.cancel());
}

StepPrice PriceOf(const TrialOptions& options) { return {options.objective, kInfinity}; }

// Fills in score and size; a score within the limit is finite.
void Evaluate(const TrialOptions& options, const Tree& slice, Candidate& candidate) {
  candidate.largest = slice.Largest();
  candidate.score = kInfinity;
  if (candidate.largest <= options.largest_elements) candidate.score = slice.Cost(PriceOf(options));
}

void Note(Method method, Candidate& candidate) {
  if (std::find(candidate.methods.begin(), candidate.methods.end(), method) ==
      candidate.methods.end()) {
    candidate.methods.push_back(method);
  }
}

// Improves a tree by the methods that are allowed.
class Improver {
 public:
  Improver(const TrialOptions& options, Random& random, const Stop& stop)
      : options_(options), random_(random), stop_(stop) {}

  void Improve(double largest_elements, double temperature, int64_t sweeps, Tree& tree,
               Candidate& candidate) {
    const StepPrice price{options_.objective, largest_elements};
    if (Uses(options_, Method::kAnnealing)) {
      Anneal(price, {temperature, kCold, sweeps}, random_, stop_, tree);
      Note(Method::kAnnealing, candidate);
    }
    if (Uses(options_, Method::kTempering)) {
      TemperingSchedule schedule{temperature, kCold};
      schedule.rounds = std::max<int64_t>(2, sweeps / (schedule.replicas * schedule.sweeps));
      Temper(price, schedule, random_, stop_, tree);
      Note(Method::kTempering, candidate);
    }
    if (Uses(options_, Method::kLeafOrder) && ImproveOverOrder(price, stop_, tree)) {
      Note(Method::kLeafOrder, candidate);
    }
    if (Uses(options_, Method::kReconfigure)) {
      Reconfigure(price, {}, random_, stop_, tree);
      Note(Method::kReconfigure, candidate);
    }
  }

 private:
  const TrialOptions& options_;
  Random& random_;
  const Stop& stop_;
};

// The best of several choices of slices for a tree, beside those that the candidate has; false:
// none meets the limit.
bool SliceTree(const TrialOptions& options, const Tree& tree, int attempts, Random& random,
               const Stop& stop, Candidate& candidate) {
  constexpr double kTemperature = 0.1;
  const std::vector<int> first = candidate.sliced;
  candidate.score = kInfinity;
  for (int attempt = 0; attempt < attempts && !(attempt > 0 && stop()); ++attempt) {
    Candidate other = candidate;
    other.sliced = first;
    SlicerOptions slicer{options.largest_elements, options.allow_output_slicing,
                         attempt == 0 ? 0 : kTemperature, stop};
    if (!ChooseSlices(PriceOf(options), slicer, tree, random, other.sliced)) {
      // The first plan comes late rather than never.
      if (attempt > 0 || options.plan_known) break;
      other.sliced = first;
      slicer.stop = Stop({}, stop.cancel());
      if (!SlicePlainly(slicer, tree, other.sliced)) break;
    }
    Evaluate(options, Slice(tree, other.sliced).tree(), other);
    if (other.score < candidate.score) candidate = std::move(other);
  }
  return candidate.score < kInfinity;
}

// Slices the tree, improves it under the slices, and chooses slices for the improved tree.
Candidate SliceAndImprove(const TrialOptions& options, Tree tree, Candidate candidate,
                          Random& random, const Stop& stop) {
  constexpr int kRounds = 8, kAttempts = 16;
  const int64_t sweeps = std::max<int64_t>(10, options.sweeps / kRounds);
  Improver improver(options, random, stop);
  Candidate best = candidate;
  best.score = kInfinity;
  const bool fixed = options.slicing_mode == SlicingMode::kFixedTree;
  for (int round = 0; round < kRounds; ++round) {
    candidate.sliced.clear();
    if (!SliceTree(options, tree, kAttempts, random, stop, candidate)) break;
    candidate.slicing_mode = round == 0 ? SlicingMode::kFixedTree : SlicingMode::kDynamic;
    candidate.pairs = tree.ToPairs();
    if (candidate.score < best.score) best = candidate;
    if (fixed || stop()) break;
    Slice slice(tree, candidate.sliced);
    if (round % 2 == 0) slice.Flatten();
    improver.Improve(options.largest_elements, kWarm, sweeps, slice.tree(), candidate);
    slice.NestAgain();
    Evaluate(options, slice.tree(), candidate);
    candidate.slicing_mode = SlicingMode::kDynamic;
    tree = slice.Whole();
    candidate.pairs = tree.ToPairs();
    if (candidate.score < best.score) best = candidate;
    if (stop()) break;
  }
  return best;
}

// Slices change one by one while the tree is annealed under them: a leg is taken back, others are
// sliced where that is too much, and the exchange is accepted by the temperature, as rotations are.
Candidate AnnealSlices(const TrialOptions& options, Tree tree, Candidate candidate, Random& random,
                       const Stop& stop) {
  constexpr int kRounds = 48, kAttempts = 16;
  const int64_t sweeps = std::max<int64_t>(2, options.sweeps / kRounds);
  const StepPrice limited{options.objective, options.largest_elements};
  candidate.sliced.clear();
  Candidate best = candidate;
  best.score = kInfinity;
  if (!SliceTree(options, tree, kAttempts, random, stop, candidate)) return best;
  for (int round = 0; round < kRounds; ++round) {
    candidate.slicing_mode = round == 0 ? SlicingMode::kFixedTree : SlicingMode::kAnnealed;
    candidate.pairs = tree.ToPairs();
    if (candidate.score < best.score) best = candidate;
    if (stop()) break;
    const double temperature =
        kWarm * std::pow(kCold / kWarm, static_cast<double>(round) / kRounds);
    Slice slice(tree, candidate.sliced);
    if (round < kRounds / 2) slice.Flatten();
    Anneal(limited, {temperature, temperature, sweeps, /*keep_best=*/false}, random, stop,
           slice.tree());
    Note(Method::kAnnealing, candidate);
    slice.NestAgain();
    Evaluate(options, slice.tree(), candidate);
    tree = slice.Whole();
    Candidate other = candidate;
    if (!other.sliced.empty()) {
      other.sliced.erase(other.sliced.begin() +
                         random.Below(static_cast<int>(other.sliced.size())));
    }
    if (!SliceTree(options, tree, 1, random, stop, other)) continue;
    const double rise = std::log(other.score / candidate.score);  // -infinity from above the limit
    if (!(rise > 0) || rise < -temperature * std::log(random.Uniform())) {
      candidate = std::move(other);
    }
  }
  return best;
}

// Starting trees take turns, the plain greedy one first. Where methods only improve, they improve
// that one.
Candidate Start(const SearchNetwork& network, const TrialOptions& options, int64_t trial,
                Random& random, const Stop& stop) {
  Candidate start;
  const bool bisects = Uses(options, Method::kBisection);
  const bool draws = Uses(options, Method::kRandomGreedy);
  const bool plain = Uses(options, Method::kGreedy) || !(bisects || draws);
  if (bisects && !(trial == 0 && plain) && (!draws || trial % 4 == 2)) {
    Note(Method::kBisection, start);
    start.pairs = Bisect(network, RandomBisectionChoice(PriceOf(options), random), random, stop);
    return start;
  }
  GreedyChoice choice;
  if (draws && !(trial == 0 && plain)) {
    choice.weight = random.LogUniform(0.1, 10);
    choice.temperature = random.LogUniform(0.001, 1);
    Note(Method::kRandomGreedy, start);
  } else {
    Note(Method::kGreedy, start);
  }
  start.pairs = RandomGreedy(network, choice, random, StopOfFirst(options, stop));
  return start;
}

// Of the results of a tree that is not sliced yet, which cost more beyond it: where many slices
// will be needed, narrow trees need fewer.
double DrawLimit(const TrialOptions& options, int64_t trial, Random& random) {
  if (options.slicing_mode == SlicingMode::kNone || trial % 4 == 3) return kInfinity;
  return options.largest_elements * random.LogUniform(1, 1e6);
}

// Improves the tree of `start`, at this temperature unless it is sliced already, and slices it.
Candidate RunFrom(const SearchNetwork& network, const TrialOptions& options, const Candidate& start,
                  double temperature, int64_t trial, Random& random, const Stop& stop) {
  Tree tree(network, start.pairs);
  Candidate candidate = start;
  if (start.sliced.empty()) {
    const double limit = DrawLimit(options, trial, random);
    Improver(options, random, stop).Improve(limit, temperature, options.sweeps, tree, candidate);
  }
  candidate.sliced.clear();
  candidate.pairs = tree.ToPairs();
  Evaluate(options, tree, candidate);
  if (candidate.score < kInfinity || options.slicing_mode == SlicingMode::kNone) return candidate;
  const bool anneals = Uses(options, Method::kAnnealing);
  switch (options.slicing_mode) {
    case SlicingMode::kAnnealed:
      return AnnealSlices(options, tree, candidate, random, stop);
    case SlicingMode::kAuto:
      if (anneals && trial % 8 >= 4) return AnnealSlices(options, tree, candidate, random, stop);
      break;
    default:
      break;
  }
  return SliceAndImprove(options, tree, candidate, random, stop);
}

}  // namespace

Candidate SliceOnly(const SearchNetwork& network, const TrialOptions& options,
                    const Candidate& start, Random& random, const Stop& stop) {
  const Tree tree(network, start.pairs);
  Candidate candidate = start;
  Evaluate(options, Slice(tree, start.sliced).tree(), candidate);
  if (candidate.score == kInfinity) {
    SliceTree(options, tree, 1, random, stop, candidate);
    candidate.slicing_mode = SlicingMode::kFixedTree;
  }
  return candidate;
}

namespace {

// Arithmetic leads to narrow trees sooner than traffic does. Where very many slices are needed that
// decides both, so most trials are made for it alone.
bool IsForArithmetic(const TrialOptions& options, int64_t trial, const Candidate* best) {
  constexpr size_t kVeryMany = 50;  // sliced legs
  return best != nullptr && best->sliced.size() >= kVeryMany && trial % 8 < 6 &&
         options.objective.kind == Objective::Kind::kWeighted &&
         options.objective.flops_weight > 0 && options.objective.read_write_weight > 0;
}

Candidate RunAnyTrial(const SearchNetwork& network, const TrialOptions& options, uint64_t seed,
                      int64_t trial, const Candidate* best, const Stop& stop) {
  constexpr int64_t kRefine = 2;  // every other trial starts from the best
  Random random(seed, static_cast<uint64_t>(trial));
  if (best != nullptr && trial % kRefine == 1) {
    return RunFrom(network, options, *best, kWarm, trial, random, stop);
  }
  Candidate start = Start(network, options, trial, random, stop);
  if (StopOfFirst(options, stop)()) return start;  // and nobody asks for its score
  return RunFrom(network, options, start, kHot, trial, random, stop);
}

}  // namespace

Candidate RunTrial(const SearchNetwork& network, const TrialOptions& options, uint64_t seed,
                   int64_t trial, const Candidate* best, const Stop& stop) {
  if (!IsForArithmetic(options, trial, best)) {
    return RunAnyTrial(network, options, seed, trial, best, stop);
  }
  TrialOptions arithmetic = options;
  arithmetic.objective.read_write_weight = 0;
  Candidate candidate = RunAnyTrial(network, arithmetic, seed, trial, best, stop);
  if (candidate.score < kInfinity) {
    Evaluate(options, Slice(Tree(network, candidate.pairs), candidate.sliced).tree(), candidate);
  }
  return candidate;
}

}  // namespace tenon::planner
