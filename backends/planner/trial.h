// One trial of a search: a starting tree, its improvement, and its slices.

#ifndef TENON_BACKENDS_PLANNER_TRIAL_H_
#define TENON_BACKENDS_PLANNER_TRIAL_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "backends/planner/random.h"
#include "backends/planner/search.h"
#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

// A tree over the tensors of a search network, with the legs that are sliced.
struct Candidate {
  Pairs pairs;
  std::vector<int> sliced;
  double score = std::numeric_limits<double>::infinity();  // over all slices
  double largest = 0;                                      // elements, of a slice
  std::vector<Method> methods;
  SlicingMode slicing_mode = SlicingMode::kNone;
};

struct TrialOptions {
  Objective objective;
  // Of a slice's results. Infinite: no slicing.
  double largest_elements = std::numeric_limits<double>::infinity();
  bool allow_output_slicing = false;
  SlicingMode slicing_mode = SlicingMode::kAuto;
  std::vector<Method> methods;  // not empty
  int64_t sweeps = 1000;        // of an annealing
  // Without a plan the time does not end what makes one of a tree: greedy steps and first slices.
  bool plan_known = false;
};

// Trial number `trial`: its starting tree and everything after depend on this number, the seed, the
// options and `best` (null: none yet) alone, unless `stop` cuts it short; then its best so far is
// the answer. A candidate over the limit has an infinite score.
Candidate RunTrial(const SearchNetwork& network, const TrialOptions& options, uint64_t seed,
                   int64_t trial, const Candidate* best, const Stop& stop);

// The candidate's tree as it is, with more slices for the limit if it needs them and they can be
// found; only a cancel ends that.
Candidate SliceOnly(const SearchNetwork& network, const TrialOptions& options,
                    const Candidate& start, Random& random, const Stop& stop);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_TRIAL_H_
