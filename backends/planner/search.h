// Finds a contraction path and a slicing set within a budget.
//
// The network is simplified, its disconnected parts are searched apart, trials (a starting tree and
// its improvement) run on several threads, and the best plan that meets the limits is kept.

#ifndef TENON_BACKENDS_PLANNER_SEARCH_H_
#define TENON_BACKENDS_PLANNER_SEARCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/core/cancel.h"
#include "backends/planner/objective.h"

namespace tenon::planner {

enum class Method {
  kGreedy,
  kRandomGreedy,
  kExact,  // to 16 tensors; beyond, where it is the only one
  kBisection,
  kLeafOrder,
  kReconfigure,
  kAnnealing,
  kTempering,
};

// The methods of a search that names none.
const std::vector<Method>& Portfolio();

enum class SlicingMode {
  kAuto,       // what the budget allows; the best is kept
  kNone,       // even if that misses the target
  kFixedTree,  // slices for a finished tree
  kDynamic,    // slice, improve the tree under the slices, repeat
  kAnnealed,   // slices change while the tree is annealed
};

// A path with the indices that are sliced.
struct Plan {
  contraction::Path path;
  std::vector<int> sliced;
};

// The planned peak in bytes of a plan, as the engine that would run it computes it, threads
// included; an error if it cannot be run at all.
using PlannedBytes = std::function<absl::StatusOr<int64_t>(const Plan&)>;

// Seconds that a provider predicts for a plan from the program that it would run; nothing where
// there is no such program. Depends on the plan alone.
using PredictedSeconds = std::function<std::optional<double>(const Plan&)>;

struct FoundPlan;

// What is added here and can change a plan belongs to plan_key.cc too.
struct SearchOptions {
  Objective objective;
  std::optional<int64_t> target_elements;  // >= 1: of every step's result within a slice
  std::optional<int64_t> memory_bytes;     // needs planned_bytes
  PlannedBytes planned_bytes;              // called from one thread at a time
  int element_bytes = 1;                   // of what is computed: no result is larger than memory
  // For the objective kSeconds: plans of about the same seconds by the model of their steps are
  // ranked by this. Called from one thread at a time.
  PredictedSeconds predicted_seconds;
  bool allow_output_slicing = false;
  SlicingMode slicing_mode = SlicingMode::kAuto;
  std::vector<Method> methods;  // empty: the portfolio
  uint64_t seed = 0;
  // At least one of both limits.
  std::optional<int64_t> max_trials;
  std::optional<double> max_seconds;
  // Trials run in generations, and the plan depends on the seed alone, whatever the threads, unless
  // the time ends first. False: every trial starts from what is known then; the time is used best.
  bool deterministic = false;
  // Ends the search once its trials, by the number of their proposals, cost this share of the
  // seconds that the multiply-adds of the best plan take, about (10^10 a second). 0: no.
  double worthwhile = 0;
  int threads = 0;  // 0: all the process may use
  bool simplify = true;
  // To start from. Without methods it is only sliced to the limits.
  std::optional<Plan> initial;
  // Counted up by every trial that ends; may be null.
  std::atomic<int64_t>* trials_made = nullptr;
  // What follows is for SearchBySeconds to set. Trials are as long as those of a search with this
  // max_seconds.
  std::optional<double> pace_seconds;
  // Called as OnImprovement is, for some plans of trials that are nearly as good as the best one,
  // and meet the limits.
  std::function<void(const FoundPlan&)> on_near_miss;
};

// kWorthwhile: SearchOptions::worthwhile. kExhausted: there is nothing more to try.
enum class SearchStop { kTrials, kTime, kWorthwhile, kExhausted };

struct FoundPlan {
  Plan plan;
  double score = 0;  // the objective's value over all slices
  // By SearchOptions::predicted_seconds, where it was asked.
  std::optional<double> predicted_seconds;
  std::vector<Method> methods;  // that led to it, in order of use
  SlicingMode slicing_mode = SlicingMode::kNone;
  int64_t trials = 0;  // made when it was found; in the answer, made in all
  double seconds = 0;  // since the search began; likewise
  SearchStop stop = SearchStop::kExhausted;
};

// Called in order, from one thread at a time, for every plan that is better than those before.
using OnImprovement = std::function<void(const FoundPlan&)>;

// Searches. Errors: BAD_PARAMETER (field of the wire's SearchOptions) for options out of range;
// UNREACHABLE_TARGET (metadata target_elements) and EXCEEDS_MEMORY_BUDGET (metadata
// memory_budget_bytes, smallest_budget_bytes: with so many the same search has an answer; absent
// where nobody can count them) if no plan that was found meets the limits; CLIENT_CANCELLED
// within 100 ms of a cancel. When the time is over the best plan that meets the limits is the
// answer.
absl::StatusOr<FoundPlan> Search(const contraction::Expression& expression,
                                 const SearchOptions& options, const CancelToken* cancel,
                                 const OnImprovement& on_improvement);

// The value of an objective for a plan, over all slices as the engine runs them.
double PlanScore(const contraction::Expression& expression, const Objective& objective,
                 const Plan& plan);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_SEARCH_H_
