#include "backends/planner/seconds_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "backends/core/error.h"

namespace tenon::planner {
namespace {

using Clock = std::chrono::steady_clock;

// One of the searches, and its share of what is left of the budget.
struct Part {
  Objective objective;
  double share;
};

class SecondsSearch {
 public:
  SecondsSearch(const contraction::Expression& expression, const SearchOptions& options,
                const CancelToken* cancel, const OnImprovement& on_improvement)
      : expression_(expression),
        options_(options),
        cancel_(cancel),
        on_improvement_(on_improvement) {}

  absl::StatusOr<FoundPlan> Run() {
    // Most of the time is for the objective that searches are best at; what decides is the ranking.
    Objective flops, weighted;
    flops.read_write_weight = 0;
    std::vector<Part> parts = {{flops, 0.6}, {weighted, 0.5}, {options_.objective, 1}};
    // A given path is only sliced without methods, and one trial can't be shared.
    const bool only_slices = options_.initial.has_value() && options_.methods.empty();
    if (only_slices || options_.max_trials == 1) parts.erase(parts.begin(), parts.end() - 1);
    for (const Part& part : parts) {
      // With the time over there is no need of further candidates, but for one at all.
      if (best_.has_value() && (SecondsLeft() <= 0 || TrialsLeft() <= 0)) break;
      const absl::Status status = RunPart(part);
      if (status.code() == absl::StatusCode::kCancelled ||
          status.code() == absl::StatusCode::kDeadlineExceeded) {
        return status;
      }
      if (!status.ok()) failed_ = status;
    }
    if (!best_.has_value()) return failed_;
    FoundPlan answer = *best_;
    answer.trials = trials_;
    answer.seconds = Seconds();
    answer.stop = stop_;
    return answer;
  }

 private:
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double SecondsLeft() const { return options_.max_seconds.value_or(1) - SecondsUsed(); }
  double SecondsUsed() const { return options_.max_seconds.has_value() ? Seconds() : 0; }
  int64_t TrialsLeft() const { return options_.max_trials.value_or(trials_ + 1) - trials_; }

  absl::Status RunPart(const Part& part) {
    SearchOptions options = options_;
    options.objective = part.objective;
    options.predicted_seconds = nullptr;
    // The first part goes the way of a search by its objective alone, as far as the time allows.
    if (!best_.has_value()) options.pace_seconds = options_.max_seconds;
    // Where the seconds only guard a number of trials, each part has all of them.
    if (options_.max_seconds.has_value()) {
      const double share = options_.deterministic ? 1 : part.share;
      options.max_seconds = std::max(1e-3, SecondsLeft() * share);
    }
    if (options_.max_trials.has_value()) {
      options.max_trials =
          std::max<int64_t>(1, std::llround(static_cast<double>(TrialsLeft()) * part.share));
    }
    const double begun = Seconds();
    const auto rank = [&](const FoundPlan& plan) {
      FoundPlan candidate = plan;
      candidate.trials += trials_;
      candidate.seconds += begun;
      Rank(std::move(candidate));
    };
    // What its objective takes for a little worse may be faster.
    options.on_near_miss = rank;
    auto found = Search(expression_, options, cancel_, rank);
    if (!found.ok()) return found.status();
    trials_ += found->trials;
    stop_ = found->stop;
    return absl::OkStatus();
  }

  // A search reports its plans in order and from one thread at a time.
  void Rank(FoundPlan candidate) {
    candidate.predicted_seconds = options_.predicted_seconds(candidate.plan);
    candidate.score = candidate.predicted_seconds.has_value()
                          ? *candidate.predicted_seconds
                          : PlanScore(expression_, options_.objective, candidate.plan);
    if (best_.has_value() && !IsFaster(candidate, *best_)) return;
    best_ = std::move(candidate);
    if (on_improvement_ != nullptr) on_improvement_(*best_);
  }

  // Plans with a program before those without.
  static bool IsFaster(const FoundPlan& a, const FoundPlan& b) {
    if (a.predicted_seconds.has_value() != b.predicted_seconds.has_value()) {
      return a.predicted_seconds.has_value();
    }
    return a.score < b.score;
  }

  const contraction::Expression& expression_;
  const SearchOptions& options_;
  const CancelToken* const cancel_;
  const OnImprovement& on_improvement_;
  const Clock::time_point start_ = Clock::now();
  std::optional<FoundPlan> best_;
  absl::Status failed_;
  int64_t trials_ = 0;
  SearchStop stop_ = SearchStop::kExhausted;
};

}  // namespace

bool RanksBySeconds(const SearchOptions& options) {
  return options.objective.kind == Objective::Kind::kSeconds &&
         options.predicted_seconds != nullptr;
}

absl::StatusOr<FoundPlan> SearchBySeconds(const contraction::Expression& expression,
                                          const SearchOptions& options, const CancelToken* cancel,
                                          const OnImprovement& on_improvement) {
  return SecondsSearch(expression, options, cancel, on_improvement).Run();
}

}  // namespace tenon::planner
