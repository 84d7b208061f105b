#include "backends/planner/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "backends/core/cpu_share.h"
#include "backends/core/error.h"
#include "backends/core/figure.h"
#include "backends/core/parallel.h"
#include "backends/planner/exact.h"
#include "backends/planner/plan_check.h"
#include "backends/planner/polish.h"
#include "backends/planner/random_greedy.h"
#include "backends/planner/reduced_network.h"
#include "backends/planner/seconds_search.h"
#include "backends/planner/trial.h"

namespace tenon::planner {
namespace {

using contraction::Expression;
using Clock = std::chrono::steady_clock;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max();  // or nobody knows how many

// Of the time. A little is left for what comes after: the plan is due on time.
constexpr double kSearchShare = 0.96, kTimeShare = 0.98;

// Trials that start from the same best plan, so that they don't depend on threads.
constexpr int64_t kGeneration = 8;

// Proposals of a trial where only their number is limited, and the seconds that one takes, about.
constexpr double kTrialProposals = 2e6, kProposalSeconds = 1e-7;

absl::Status Invalid(const std::string& field, const std::string& what) {
  return Error(Reason::kBadParameter, what).Field(field);
}

absl::Status Check(const SearchOptions& options) {
  const Objective& objective = options.objective;
  for (const auto& [weight, field] :
       {std::pair{objective.flops_weight, "flops_weight"},
        std::pair{objective.read_write_weight, "read_write_weight"}}) {
    if (!(weight >= 0 && weight < kInfinity)) {
      return Invalid(field, "a weight is finite and not negative");
    }
  }
  if (objective.flops_weight == 0 && objective.read_write_weight == 0) {
    return Invalid("read_write_weight", "one of the two weights must be positive");
  }
  if (objective.kind == Objective::Kind::kSeconds && objective.times == nullptr) {
    return Invalid("objective", "the provider has no time model");
  }
  if (options.target_elements.value_or(1) < 1) return Invalid("target_size", "must be at least 1");
  if (options.memory_bytes.value_or(1) < 1) return Invalid("memory_bytes", "must be at least 1");
  if (options.max_trials.value_or(1) < 1) return Invalid("max_trials", "must be at least 1");
  if (!(options.max_seconds.value_or(1) > 0))
    return Invalid("max_time_seconds", "must be positive");
  if (!options.max_trials.has_value() && !options.max_seconds.has_value() &&
      !options.initial.has_value()) {
    return Invalid("max_trials", "a search needs a limit on trials or on time");
  }
  return absl::OkStatus();
}

// Whether no result of a step has more elements than the limit, as integers.
bool Fits(const Expression& expression, const Plan& plan, int64_t limit) {
  const auto fits = [&](const std::vector<int>& indices) {
    return FitsIn(expression, indices, limit);
  };
  const auto tensors = contraction::TensorIndices(expression, plan.path, plan.sliced);
  if (plan.path.pairs.empty()) {
    std::vector<int> block = expression.output;
    std::erase_if(block, [&](int index) {
      return std::find(plan.sliced.begin(), plan.sliced.end(), index) != plan.sliced.end();
    });
    return fits(block);
  }
  return std::all_of(tensors.begin() + static_cast<int64_t>(expression.inputs.size()),
                     tensors.end(), fits);
}

class Searcher {
 public:
  Searcher(const Expression& expression, const SearchOptions& options, const CancelToken* cancel,
           const OnImprovement& on_improvement)
      : expression_(expression),
        options_(options),
        cancel_(cancel),
        on_improvement_(on_improvement),
        start_(Clock::now()),
        stop_(Deadline(options, start_, kSearchShare), cancel),
        end_(Deadline(options, start_, kTimeShare), cancel),
        reduced_(expression, ReductionOf(options)),
        network_(reduced_.network()) {}

  absl::StatusOr<FoundPlan> Run() {
    TENON_ASSIGN_OR_RETURN(const SearchStop stop, SearchTrees());
    if (answer_.has_value() && !reduced_.too_large() && Uses(Method::kReconfigure)) PolishAnswer();
    return Answer(stop);
  }

 private:
  bool Uses(Method method) const {
    const auto& methods = options_.methods.empty() ? Portfolio() : options_.methods;
    return std::find(methods.begin(), methods.end(), method) != methods.end();
  }

  absl::StatusOr<SearchStop> SearchTrees() {
    TENON_RETURN_IF_ERROR(CheckReachable());
    if (options_.target_elements.has_value()) {
      largest_ = static_cast<double>(*options_.target_elements);
    }
    if (options_.memory_bytes.has_value()) {
      const double elements = static_cast<double>(*options_.memory_bytes) / options_.element_bytes;
      largest_ = std::min(largest_.load(), std::max(1.0, elements));
    }
    if (options_.initial.has_value() && !reduced_.too_large()) {
      TENON_RETURN_IF_ERROR(OfferInitial());
      if (options_.methods.empty()) return SearchStop::kExhausted;
    }
    if (reduced_.too_large() || expression_.inputs.size() == 1) {
      TENON_RETURN_IF_ERROR(PlainGreedy());
      return SearchStop::kExhausted;
    }
    const int n = network_.tensors();
    if (n <= 2) {
      Candidate only;
      if (n == 2) only.pairs = {{0, 1}};
      OfferTree(only);
      return SearchStop::kExhausted;
    }
    if (TryExact(n)) return SearchStop::kExhausted;
    const bool generations = options_.deterministic || !options_.max_seconds.has_value();
    return generations ? RunTrials() : RunForTime();
  }

  static std::optional<Clock::time_point> Deadline(const SearchOptions& options,
                                                   Clock::time_point start, double share) {
    if (!options.max_seconds.has_value()) return std::nullopt;
    const double seconds = std::min(*options.max_seconds, 1e9) * share;
    return start +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  static ReducedNetwork::Options ReductionOf(const SearchOptions& options) {
    ReducedNetwork::Options reduction;
    // A path that is given speaks of the operands as they are.
    reduction.simplify = options.simplify && !options.initial.has_value();
    const auto& methods = options.methods;
    reduction.solve_small_parts = methods.empty() || std::find(methods.begin(), methods.end(),
                                                               Method::kExact) != methods.end();
    reduction.objective = options.objective;
    reduction.largest_elements = options.target_elements.has_value()
                                     ? static_cast<double>(*options.target_elements)
                                     : kInfinity;
    return reduction;
  }

  TrialOptions OptionsOfTrials() const {
    TrialOptions trial;
    trial.objective = options_.objective;
    const bool slices = options_.slicing_mode != SlicingMode::kNone;
    trial.largest_elements = slices ? largest_.load() : kInfinity;
    trial.allow_output_slicing = options_.allow_output_slicing;
    trial.slicing_mode = options_.slicing_mode;
    trial.methods = options_.methods.empty() ? Portfolio() : options_.methods;
    trial.sweeps = Sweeps(kTrialProposals);
    if (!options_.deterministic && options_.max_seconds.has_value()) {
      constexpr double kTrialsPerThread = 16;
      const double seconds = options_.pace_seconds.value_or(*options_.max_seconds);
      trial.sweeps = Sweeps(seconds / kTrialsPerThread / kProposalSeconds);
    }
    return trial;
  }

  int64_t Sweeps(double proposals) const {
    return static_cast<int64_t>(std::clamp(proposals / network_.tensors(), 10.0, 1e6));
  }

  int Threads() const {
    const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    return options_.threads > 0 ? std::min(options_.threads, all) : all;
  }

  // Every thread goes on until the time is over, each trial with the best that is known then.
  SearchStop RunForTime() {
    std::atomic<int64_t> next = 0;
    std::atomic<int> joined = 0;
    std::atomic<bool> over = false;
    const int64_t most = options_.max_trials.value_or(std::numeric_limits<int64_t>::max());
    const absl::Status status = Parallel(Threads(), nullptr).ForEach(Threads(), [&](int64_t, int) {
      const int worker = joined++;
      const absl::Cleanup release = [&] {
        over = true;
        CpuShare::WakeAll();
      };
      for (;;) {
        CpuShare::AwaitTurn(worker, over);  // other requests may need the cores
        if (stop_()) return;
        const int64_t trial = next++;
        if (trial >= most) return;
        Candidate best;
        const bool known = CopyBest(best);
        TrialOptions trial_options = OptionsOfTrials();
        trial_options.plan_known = known;
        if (trial < 2) trial_options.sweeps = std::max<int64_t>(10, trial_options.sweeps / 20);
        Offer(Try(trial_options, trial, known ? &best : nullptr));
      }
    });
    if (!status.ok()) failed_ = status;
    return next >= most && !stop_() ? SearchStop::kTrials : SearchStop::kTime;
  }

  SearchStop RunTrials() {
    constexpr double kFirstShare = 0.05;  // of the first generation: a plan is soon there
    const int64_t most = options_.max_trials.value_or(std::numeric_limits<int64_t>::max());
    double proposals = 0;
    for (int64_t first = 0; first < most; first += kGeneration) {
      if (stop_()) return SearchStop::kTime;
      const int64_t count = std::min(kGeneration, most - first);
      std::vector<Candidate> found(count);
      Candidate best;
      const bool known = CopyBest(best);
      TrialOptions trial_options = OptionsOfTrials();
      trial_options.plan_known = known;
      if (first == 0) trial_options.sweeps = Sweeps(kTrialProposals * kFirstShare);
      const absl::Status status = Parallel(Threads(), nullptr).ForEach(count, [&](int64_t t, int) {
        found[t] = Try(trial_options, first + t, known ? &best : nullptr);
      });
      if (!status.ok()) failed_ = status;
      for (Candidate& candidate : found) Offer(std::move(candidate));
      proposals += static_cast<double>(count * trial_options.sweeps) * network_.tensors();
      if (!IsWorthwhile(proposals * kProposalSeconds)) return SearchStop::kWorthwhile;
    }
    return SearchStop::kTrials;
  }

  Candidate Try(const TrialOptions& trial_options, int64_t trial, const Candidate* best) const {
    if (stop_()) return {};
    Candidate candidate = RunTrial(network_, trial_options, options_.seed, trial, best, stop_);
    if (options_.trials_made != nullptr) ++*options_.trials_made;
    return candidate;
  }

  bool IsWorthwhile(double seconds) {
    constexpr double kMultiplyAddSeconds = 1e-10;
    if (options_.worthwhile == 0 || !answer_.has_value()) return true;
    const double flops = ComputeCost(expression_, answer_->plan.path, answer_->plan.sliced).flops;
    return seconds < options_.worthwhile * flops * kMultiplyAddSeconds;
  }

  bool CopyBest(Candidate& best) {
    std::lock_guard lock(mutex_);
    best = best_;
    return best_.score < kInfinity;
  }

  void Offer(Candidate candidate) {
    if (candidate.pairs.empty()) return;  // not begun
    std::lock_guard lock(mutex_);
    ++trials_;
    if (candidate.score < best_.score) {
      Accept(std::move(candidate));
    } else {
      OfferNearMiss(candidate);
    }
  }

  // A tree without slices yet.
  void OfferTree(const Candidate& tree) {
    Random random(options_.seed, 0);
    Candidate candidate = SliceOnly(network_, OptionsOfTrials(), tree, random, stop_);
    std::lock_guard lock(mutex_);
    Accept(std::move(candidate));
  }

  // The optimal tree, where it is soon found; false: it is not known, or not enough.
  bool TryExact(int n) {
    const auto& methods = options_.methods;
    const bool asked = !methods.empty() && Uses(Method::kExact);
    const bool alone = asked && methods.size() == 1;
    if (!alone && (n > kMostAllTrees || !(asked || methods.empty()))) return false;
    auto pairs = ExactTree(network_, {options_.objective}, {}, stop_);
    if (!pairs.has_value()) return false;
    Candidate exact;
    exact.pairs = *std::move(pairs);
    exact.methods = {Method::kExact};
    OfferTree(exact);
    return best_.score < kInfinity && best_.sliced.empty();
  }

  // Slicing all other indices leaves the output, so that alone may be too large.
  absl::Status CheckReachable() const {
    if (!options_.target_elements.has_value() || options_.allow_output_slicing ||
        options_.slicing_mode == SlicingMode::kNone) {
      return absl::OkStatus();
    }
    if (FitsIn(expression_, expression_.output, *options_.target_elements)) return absl::OkStatus();
    double elements = 1;
    for (const int index : expression_.output) {
      elements *= static_cast<double>(expression_.sizes[index]);
    }
    return Error(Reason::kUnreachableTarget,
                 StrCat("the output alone has ", FigureText(elements),
                        " elements, and its indices may not be sliced; the target is ",
                        *options_.target_elements))
        .Field("target_size")
        .Meta("target_elements", *options_.target_elements)
        .Meta("needed_elements", FigureText(elements));
  }

  Candidate Greedy() const {
    Random random(options_.seed, 0);
    Candidate greedy;
    greedy.pairs = RandomGreedy(network_, {}, random, Stop({}, cancel_));
    greedy.methods = {Method::kGreedy};
    return greedy;
  }

  // The engine's own path and slices, which take little memory.
  absl::Status PlainGreedy();
  void PolishAnswer();
  absl::Status OfferInitial();
  void Accept(Candidate candidate);
  void OfferNearMiss(const Candidate& candidate);
  FoundPlan PlanOf(const Candidate& candidate) const;
  bool LimitsMemory() const {
    return options_.memory_bytes.has_value() && options_.planned_bytes != nullptr;
  }
  // Whether the plan's peak is within the budget.
  absl::StatusOr<bool> FitsMemory(const Plan& plan);
  absl::Status OfferSmallest();
  absl::Status NoPlan() const;
  double ScoreOf(const Plan& plan) const {
    return PlanScore(expression_, options_.objective, plan);
  }

  absl::StatusOr<FoundPlan> Answer(SearchStop stop);

  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Expression& expression_;
  const SearchOptions& options_;
  const CancelToken* const cancel_;
  const OnImprovement& on_improvement_;
  const Clock::time_point start_;
  const Stop stop_;  // of the trials
  const Stop end_;   // of everything
  const ReducedNetwork reduced_;
  const SearchNetwork& network_;

  std::mutex mutex_;
  std::atomic<double> largest_ = kInfinity;  // elements; falls while plans do not fit in memory
  int64_t trials_ = 0;
  std::vector<double> near_misses_;  // scores of those that were looked at
  Candidate best_;
  std::optional<FoundPlan> answer_;
  absl::Status failed_;
  // A budget that is enough, where none of the plans fitted: bytes.
  int64_t smallest_bytes_ = kMostBytes;
};

FoundPlan Searcher::PlanOf(const Candidate& candidate) const {
  FoundPlan found;
  found.plan.path = reduced_.PathOf(candidate.pairs);
  for (const int leg : candidate.sliced) found.plan.sliced.push_back(network_.index_of(leg));
  std::sort(found.plan.sliced.begin(), found.plan.sliced.end());
  found.methods = candidate.methods;
  found.slicing_mode = candidate.slicing_mode;
  found.trials = trials_;
  found.seconds = Seconds();
  return found;
}

// Lowers the limit of elements until the plan's peak fits.
absl::StatusOr<bool> Searcher::FitsMemory(const Plan& plan) {
  if (!LimitsMemory()) return true;
  TENON_ASSIGN_OR_RETURN(const int64_t bytes, options_.planned_bytes(plan));
  if (bytes <= *options_.memory_bytes) return true;
  // Plans that were made for a limit that has fallen since say nothing of the new one.
  const double largest = ComputeCost(expression_, plan.path, plan.sliced).max_size;
  if (largest <= largest_ && largest > largest_ / 2) largest_ = largest / 2;
  return false;
}

// With the lock held.
void Searcher::Accept(Candidate candidate) {
  Random random(options_.seed, ~uint64_t{0});
  while (true) {
    FoundPlan found = PlanOf(candidate);
    const bool fits = !options_.target_elements.has_value() ||
                      options_.slicing_mode == SlicingMode::kNone ||
                      Fits(expression_, found.plan, *options_.target_elements);
    const absl::StatusOr<bool> in_memory = fits ? FitsMemory(found.plan) : true;
    if (!in_memory.ok()) {
      failed_ = in_memory.status();
      return;
    }
    if (fits && *in_memory) {
      found.score = ScoreOf(found.plan);
      if (answer_.has_value() && !(candidate.score < best_.score)) return;
      best_ = std::move(candidate);
      if (answer_.has_value() && !(found.score < answer_->score)) return;
      answer_ = std::move(found);
      if (on_improvement_ != nullptr) on_improvement_(*answer_);
      return;
    }
    if (options_.slicing_mode == SlicingMode::kNone || largest_ < 1) return;
    if (answer_.has_value() && stop_()) return;  // the plan that there is, is due
    TrialOptions smaller = OptionsOfTrials();
    // Sizes that are rounded may be within the limit where the integers are not.
    const double beyond = fits ? candidate.largest / 2 : std::nextafter(candidate.largest, 0);
    smaller.largest_elements = std::min(smaller.largest_elements, beyond);
    candidate = SliceOnly(network_, smaller, candidate, random, stop_);
    if (candidate.score == kInfinity) return;
  }
}

// With the lock held.
void Searcher::OfferNearMiss(const Candidate& candidate) {
  // Each takes as long as making a program, which a cancel and the deadline wait for.
  constexpr int kMost = 32, kMostByDefault = 4, kMostTensors = 1000;
  constexpr double kNear = 1.5, kTheSame = 1 + 1e-9;
  const size_t most = options_.worthwhile == 0 ? kMost : kMostByDefault;
  if (options_.on_near_miss == nullptr || near_misses_.size() == most || !answer_.has_value() ||
      network_.tensors() > kMostTensors || stop_()) {
    return;
  }
  if (candidate.score > kNear * best_.score || candidate.score < kTheSame * best_.score) return;
  const auto is_known = [&](double score) {
    return score < kTheSame * candidate.score && candidate.score < kTheSame * score;
  };
  if (std::any_of(near_misses_.begin(), near_misses_.end(), is_known)) return;
  near_misses_.push_back(candidate.score);
  FoundPlan found = PlanOf(candidate);
  if (options_.target_elements.has_value() && options_.slicing_mode != SlicingMode::kNone &&
      !Fits(expression_, found.plan, *options_.target_elements)) {
    return;
  }
  if (options_.memory_bytes.has_value() && options_.planned_bytes != nullptr) {
    const auto bytes = options_.planned_bytes(found.plan);
    if (!bytes.ok() || *bytes > *options_.memory_bytes) return;
  }
  found.score = ScoreOf(found.plan);
  options_.on_near_miss(found);
}

absl::Status Searcher::PlainGreedy() {
  if (cancel_ != nullptr) TENON_RETURN_IF_ERROR(cancel_->Check());
  FoundPlan found;
  found.plan = options_.initial.value_or(Plan{contraction::GreedyPath(expression_), {}});
  found.methods = {Method::kGreedy};
  if (options_.target_elements.has_value() && options_.slicing_mode != SlicingMode::kNone) {
    TENON_ASSIGN_OR_RETURN(found.plan.sliced,
                           contraction::SliceToTarget(expression_, found.plan.path, largest_,
                                                      options_.allow_output_slicing));
    found.slicing_mode = SlicingMode::kFixedTree;
  }
  if (LimitsMemory()) {
    TENON_ASSIGN_OR_RETURN(smallest_bytes_, options_.planned_bytes(found.plan));
    if (smallest_bytes_ > *options_.memory_bytes) return NoPlan();
  }
  found.score = ScoreOf(found.plan);
  found.seconds = Seconds();
  if (on_improvement_ != nullptr) on_improvement_(found);
  answer_ = std::move(found);
  return absl::OkStatus();
}

void Searcher::PolishAnswer() {
  // What the caller asked to be sliced only stays as it is.
  if (options_.initial.has_value() && options_.methods.empty()) return;
  const bool limited = options_.slicing_mode != SlicingMode::kNone;
  const StepPrice price{options_.objective, limited ? largest_.load() : kInfinity};
  FoundPlan found = *answer_;
  found.plan = Polish(expression_, answer_->plan, price, options_.seed, end_);
  if (limited && options_.target_elements.has_value() &&
      !Fits(expression_, found.plan, *options_.target_elements)) {
    return;
  }
  found.score = ScoreOf(found.plan);
  if (!(found.score < answer_->score) || !FitsMemory(found.plan).value_or(false)) return;
  found.trials = trials_;
  found.seconds = Seconds();
  answer_ = std::move(found);
  if (on_improvement_ != nullptr) on_improvement_(*answer_);
}

absl::Status Searcher::OfferInitial() {
  Candidate initial;
  initial.pairs = options_.initial->path.pairs;
  for (const int index : options_.initial->sliced) {
    // Slicing others makes nothing smaller.
    if (network_.leg_of(index) >= 0) initial.sliced.push_back(network_.leg_of(index));
  }
  OfferTree(initial);
  return absl::OkStatus();
}

// The plain greedy tree with slices for ever larger results, until these no longer make the peak
// smaller. It does not depend on the budget, so that a budget of the smallest peak is enough, too,
// whatever the trials find there.
absl::Status Searcher::OfferSmallest() {
  constexpr double kStep = 4;
  constexpr int kMostRises = 4;
  const Candidate greedy = Greedy();
  TrialOptions limited = OptionsOfTrials();
  const bool slices = options_.slicing_mode != SlicingMode::kNone;
  const double most = slices && options_.target_elements.has_value()
                          ? static_cast<double>(*options_.target_elements)
                          : kInfinity;
  Random random(options_.seed, 0);
  std::vector<int> last;
  double largest = slices ? 1 : most;
  for (int rises = 0; rises < kMostRises; largest *= kStep) {
    if (cancel_ != nullptr) TENON_RETURN_IF_ERROR(cancel_->Check());
    limited.largest_elements = std::min(largest, most);
    const Candidate candidate = SliceOnly(network_, limited, greedy, random, Stop({}, cancel_));
    if (candidate.score < kInfinity && (last.empty() || candidate.sliced != last)) {
      last = candidate.sliced;
      TENON_ASSIGN_OR_RETURN(const int64_t bytes, options_.planned_bytes(PlanOf(candidate).plan));
      const bool rose = bytes >= smallest_bytes_ && smallest_bytes_ < kMostBytes;
      rises = rose ? rises + 1 : 0;
      smallest_bytes_ = std::min(smallest_bytes_, bytes);
      if (bytes <= *options_.memory_bytes) {
        std::lock_guard lock(mutex_);
        Accept(candidate);
        return absl::OkStatus();
      }
      if (candidate.sliced.empty()) break;  // nor will the others be
    }
    if (limited.largest_elements == most) break;
  }
  return absl::OkStatus();
}

absl::Status Searcher::NoPlan() const {
  if (!failed_.ok()) return failed_;
  if (!LimitsMemory()) {
    return Error(Reason::kUnreachableTarget,
                 StrCat("no slicing that was found brings every step result to at most ",
                        FigureText(largest_), " elements at a cost below 10^308"))
        .Field("target_size")
        .Meta("target_elements", FigureText(largest_));
  }
  const bool known = smallest_bytes_ < kMostPlannedBytes;
  Error error = Error(Reason::kExceedsMemoryBudget,
                      StrCat("no plan that was found has a peak within the budget of ",
                             *options_.memory_bytes, " bytes",
                             known ? StrCat("; ", smallest_bytes_, " bytes are enough") : ""))
                    .Field("memory_bytes")
                    .Meta("memory_budget_bytes", *options_.memory_bytes);
  if (!known) return error;
  return std::move(error).Meta("smallest_budget_bytes", smallest_bytes_);
}

absl::StatusOr<FoundPlan> Searcher::Answer(SearchStop stop) {
  if (cancel_ != nullptr) TENON_RETURN_IF_ERROR(cancel_->Check());
  if (!answer_.has_value()) OfferTree(Greedy());  // where the time was too short for a trial
  if (!answer_.has_value() && LimitsMemory()) TENON_RETURN_IF_ERROR(OfferSmallest());
  if (cancel_ != nullptr) TENON_RETURN_IF_ERROR(cancel_->Check());
  if (!answer_.has_value()) return NoPlan();
  FoundPlan answer = *answer_;
  answer.trials = trials_;
  answer.seconds = Seconds();
  answer.stop = stop;
  return answer;
}

}  // namespace

const std::vector<Method>& Portfolio() {
  static const auto& methods =
      *new std::vector<Method>{Method::kGreedy,    Method::kRandomGreedy, Method::kExact,
                               Method::kBisection, Method::kAnnealing,    Method::kReconfigure};
  return methods;
}

absl::StatusOr<FoundPlan> Search(const Expression& expression, const SearchOptions& options,
                                 const CancelToken* cancel, const OnImprovement& on_improvement) {
  TENON_RETURN_IF_ERROR(Check(options));
  if (RanksBySeconds(options)) return SearchBySeconds(expression, options, cancel, on_improvement);
  return Searcher(expression, options, cancel, on_improvement).Run();
}

}  // namespace tenon::planner
