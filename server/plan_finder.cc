#include "server/plan_finder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "backends/contraction/path.h"
#include "backends/core/cpu_share.h"
#include "backends/core/error.h"
#include "backends/planner/leaf_order.h"
#include "backends/planner/time_model.h"
#include "backends/schedule/compute_type.h"
#include "backends/schedule/peak_refusal.h"
#include "google/protobuf/util/time_util.h"
#include "server/version.h"

namespace tenon::server {
namespace {

using contraction::Expression;
using planner::FoundPlan;
using planner::Plan;
using planner::PlanKey;

void SetPlan(const Expression& expression, const Plan& plan,
             schedule::ContractionRequest* request) {
  request->path = contraction::MakeSteps(plan.path, PathSteps::Format::kSsa);
  request->sliced.clear();
  for (const int index : plan.sliced) request->sliced.push_back(expression.names[index]);
}

v1::SearchStop StopOf(planner::SearchStop stop, bool default_budget) {
  switch (stop) {
    case planner::SearchStop::kTrials:
      return v1::SEARCH_STOP_TRIALS;
    case planner::SearchStop::kTime:
      return default_budget ? v1::SEARCH_STOP_DEFAULT_BUDGET : v1::SEARCH_STOP_TIME;
    case planner::SearchStop::kWorthwhile:  // only with the default budget
      return v1::SEARCH_STOP_DEFAULT_BUDGET;
    case planner::SearchStop::kExhausted:
      return v1::SEARCH_STOP_EXHAUSTED;
  }
  return v1::SEARCH_STOP_UNSPECIFIED;
}

v1::PlanProvenance Provenance(const FoundPlan& found, const PlanQuestion& question) {
  v1::PlanProvenance provenance;
  provenance.set_source(v1::PLAN_SOURCE_SEARCH);
  provenance.set_objective(question.objective);
  for (const planner::Method method : found.methods) provenance.add_methods(ToWire(method));
  if (!found.plan.sliced.empty()) provenance.set_slicing_mode(ToWire(found.slicing_mode));
  provenance.set_seed(question.options.seed);
  provenance.set_trials(found.trials);
  provenance.set_search_seconds(found.seconds);
  provenance.set_stopped_by(StopOf(found.stop, question.default_budget));
  provenance.set_planner_version(Build().version);
  *provenance.mutable_create_time() = google::protobuf::util::TimeUtil::GetCurrentTime();
  if (question.options.objective.kind == planner::Objective::Kind::kWeighted) {
    provenance.set_flops_weight(question.options.objective.flops_weight);
    provenance.set_read_write_weight(question.options.objective.read_write_weight);
  }
  return provenance;
}

// Networks of so many operands are searched on the request's own thread: there the exact search
// ends after a millisecond, and to wait for others' searches would take longer.
constexpr size_t kSmallNetwork = 8;

// Whether the caller has wishes of its own for the search.
bool Asks(const ContractCall& call) {
  return !call.question->default_budget || call.question->has_methods ||
         call.question->options.target_elements.has_value() ||
         call.question->objective == v1::SEARCH_OBJECTIVE_SECONDS;
}

// Memory of a search over so many operands. What grows with the network are, for every thread, the
// table of intervals of a leaf order (planner/leaf_order.h: 36 bytes for each pair of leaves, none
// above 3000), the table of subsets of an exact search (planner/subset_table.h: 32 bytes for each
// subset of 16 tensors), and trees with their legs. It is an upper estimate, since networks are
// simplified first. A quarter of the budget is reserved at most: the planner gives up methods
// rather than take more, and no search may be refused for good.
int64_t SearchBytes(size_t operands, int threads, int64_t budget_bytes) {
  constexpr int64_t kIntervalBytes = 36, kSubsetBytes = 32, kTensorBytes = 4096;
  constexpr size_t kMostSubsets = 16;
  const auto n = static_cast<int64_t>(operands);
  const int64_t intervals = n <= planner::kMostOrderedLeaves ? kIntervalBytes * n * n : 0;
  const int64_t subsets = kSubsetBytes << std::min(operands, kMostSubsets);
  const int64_t bytes = std::max(threads, 1) * (intervals + subsets + kTensorBytes * n);
  return std::min(bytes, budget_bytes / 4);
}

}  // namespace

class PlanFinder::Finder {
 public:
  Finder(ContractCall& call, ServerState& state, const CancelToken* cancel, OnBetterPlan on_better)
      : call_(call), state_(state), cancel_(cancel), on_better_(std::move(on_better)) {}

  absl::StatusOr<bool> FindAtOnce() {
    if (call_.plan_source == v1::PLAN_SOURCE_PLAN_ID) {
      TENON_RETURN_IF_ERROR(TakeStored());
      return true;
    }
    if (NeedsNoPlan(call_)) return true;
    TENON_ASSIGN_OR_RETURN(expression_, ExpressionOf(call_));
    TENON_RETURN_IF_ERROR(SetLimits());
    TENON_RETURN_IF_ERROR(SetTimes());
    key_ = planner::MakePlanKey(expression_, options_, Context(), call_.owner);
    if (call_.question->cache != v1::PLAN_CACHE_POLICY_BYPASS) {
      known_ = state_.plan_cache.Find(*key_);
    }
    if (known_ != nullptr && call_.question->cache == v1::PLAN_CACHE_POLICY_USE) {
      Take(*known_, /*cached=*/true);
      TENON_RETURN_IF_ERROR(KeepFingerprint());
      return true;
    }
    if (call_.operands.size() > kSmallNetwork || Asks(call_)) {
      TENON_RETURN_IF_ERROR(CheckDeadline());
      return false;
    }
    TENON_RETURN_IF_ERROR(Search());
    return true;
  }

  absl::Status Search() {
    const bool cut = CutToDeadline();
    TENON_ASSIGN_OR_RETURN(FoundPlan better, SearchFrom(known_.get()));
    const auto found = cut || call_.question->cache == v1::PLAN_CACHE_POLICY_BYPASS
                           ? std::make_shared<const FoundPlan>(std::move(better))
                           : state_.plan_cache.Put(*key_, std::move(better));
    Take(*found, /*cached=*/false);
    return KeepFingerprint();
  }

  // A trial takes a fifth of a second of a thread at most, but for networks of very many tensors.
  bool IsBrief() const {
    constexpr int64_t kFewTrials = 8;
    constexpr size_t kManyOperands = 256;
    if (options_.max_seconds.value_or(INFINITY) <= state_.limits.default_plan_seconds) return true;
    return options_.max_trials.value_or(INT64_MAX) <= kFewTrials &&
           call_.operands.size() <= kManyOperands;
  }

  SearchNeed search_need() const {
    const int64_t budget = std::min(call_.memory_budget_bytes, state_.budget.limit_bytes());
    const int threads = options_.threads > 0 ? options_.threads : CpuShare::Threads();
    return {.bytes = SearchBytes(call_.operands.size(), threads, budget), .brief = IsBrief()};
  }

 private:
  absl::Status SetLimits() {
    options_ = call_.question->options;
    if (call_.memory_budget_bytes < INT64_MAX) {
      options_.memory_bytes = call_.memory_budget_bytes;
      options_.planned_bytes = [this](const Plan& plan) { return PlannedBytes(plan); };
      options_.element_bytes =
          static_cast<int>(std::max<int64_t>(1, DTypeSize(call_.result_dtype)));
    }
    if (!call_.request.path.has_value()) return absl::OkStatus();
    Plan initial;
    auto path = contraction::MakePath(*call_.request.path, call_.operands.size());
    if (!path.ok()) return AsContractHeaderError(path.status(), call_);
    auto sliced = contraction::MakeSliced(expression_, call_.request.sliced);
    if (!sliced.ok()) return AsContractHeaderError(sliced.status(), call_);
    options_.initial = Plan{*std::move(path), *std::move(sliced)};
    return absl::OkStatus();
  }

  // Seconds until the deadline, for a search that only the time ends: it will use its own.
  std::optional<double> SecondsLeft() const {
    const auto deadline = cancel_->deadline();
    if (!deadline.has_value() || call_.question->default_budget ||
        options_.max_trials.has_value()) {
      return std::nullopt;
    }
    return std::chrono::duration<double>(*deadline - std::chrono::steady_clock::now()).count();
  }
  // Waiting may have used up seconds that the search was promised: its best plan is still due
  // before the deadline.
  bool CutToDeadline() {
    constexpr double kShare = 0.9;  // the plan has to be sent, too
    const std::optional<double> left = SecondsLeft();
    if (!left.has_value() || *options_.max_seconds <= kShare * *left) return false;
    options_.max_seconds = std::max(kShare * *left, 1e-3);
    return true;
  }

  absl::Status CheckDeadline() const {
    const std::optional<double> left = SecondsLeft();
    if (!left.has_value() || *options_.max_seconds <= *left) return absl::OkStatus();
    return Error(Reason::kDeadlineInfeasible,
                 StrCat("the search is to take ", *options_.max_seconds,
                        " seconds; the deadline leaves ", *left))
        .Field("header.search.max_time_seconds")
        .Meta("estimate_seconds", *options_.max_seconds)
        .Meta("remaining_seconds", *left);
  }

  // The provider that the plan is for.
  const std::shared_ptr<plugin::Provider>& PlannedProvider() const {
    const auto& named = call_.question->provider;
    return named != nullptr ? named : call_.providers.front();
  }

  // With a provider that the search names, it alone.
  std::vector<std::shared_ptr<plugin::Provider>> PlannedProviders() const {
    if (!call_.question.has_value() || call_.question->provider == nullptr) return call_.providers;
    return {call_.question->provider};
  }

  // The time model, which decides only by the objective of seconds.
  absl::Status SetTimes() {
    const plugin::Provider& provider = *PlannedProvider();
    const bool decides = options_.objective.kind == planner::Objective::Kind::kSeconds;
    if (provider.calibration() == nullptr) {
      if (!decides) return absl::OkStatus();
      return Error(Reason::kUnsupportedByProvider,
                   StrCat("provider '", provider.name(),
                          "' has no time model to search by predicted seconds"))
          .Field("header.search.objective")
          .Meta("provider", provider.name());
    }
    TENON_ASSIGN_OR_RETURN(const DType dtype, schedule::ComputeType(call_.request));
    int threads = call_.request.threads;
    if (threads == 0) threads = std::numeric_limits<int>::max();  // all that were measured
    times_ = planner::MakeStepTimes(*provider.calibration(), dtype, threads);
    if (!decides) return absl::OkStatus();
    options_.objective.times = &*times_;
    options_.predicted_seconds = [this](const Plan& plan) -> std::optional<double> {
      const auto job = PrepareCall(CallWith(plan), cancel_, &ranked_);
      return job.ok() ? (*job)->predicted_seconds() : std::nullopt;
    };
    return absl::OkStatus();
  }

  // What the planned peak and the predicted seconds depend on besides the plan.
  std::string Context() const {
    std::string context = StrCat(call_.request.threads, ",", call_.request.accumulate_double, ",",
                                 call_.request.normalize, ",", call_.request.expected_sets, ",",
                                 static_cast<int>(call_.result_dtype));
    for (const OperandSource& operand : call_.operands) {
      context += StrCat(",", static_cast<int>(operand.spec.dtype), operand.varying);
    }
    for (const auto& provider : PlannedProviders()) context += StrCat(",", provider->name());
    return context;
  }

  absl::StatusOr<int64_t> PlannedBytes(const Plan& plan) const {
    // Far below the budget a bound is enough: lowering and compiling take much longer.
    constexpr double kElementBytes = 16, kFarBelow = 0.25;
    const contraction::PathCost cost = ComputeCost(expression_, plan.path, plan.sliced);
    const double threads = std::max<double>(8, call_.request.threads);
    const double bound = cost.peak_size * kElementBytes * threads;
    if (bound < kFarBelow * static_cast<double>(call_.memory_budget_bytes)) {
      return static_cast<int64_t>(bound);
    }
    ContractCall planned = CallWith(plan);
    const auto job = PrepareCall(planned, cancel_, &state_.programs);
    if (job.ok()) return (*job)->plan().Total() + StagingBytes(planned, **job);
    // More slices than can be counted.
    if (GetErrorDetails(job.status()).reason == Reason::kOverflow) return INT64_MAX;
    const std::optional<int64_t> peak = schedule::RefusedPeak(job.status());
    if (!peak.has_value()) return job.status();
    return *peak;
  }

  ContractCall CallWith(const Plan& plan) const {
    ContractCall planned = call_;
    planned.providers = PlannedProviders();
    for (OperandSource& operand : planned.operands) operand.inline_bytes.reset();
    SetPlan(expression_, plan, &planned.request);
    planned.request.allow_slicing = false;
    planned.required_fingerprint.clear();
    return planned;
  }

  // By the model of steps: it takes no time beside the search.
  double ModelSeconds(const Plan& plan) const {
    planner::Objective seconds;
    seconds.kind = planner::Objective::Kind::kSeconds;
    seconds.times = &*times_;
    return planner::PlanScore(expression_, seconds, plan);
  }

  absl::StatusOr<FoundPlan> SearchFrom(const FoundPlan* start) {
    if (start != nullptr && !options_.initial.has_value()) {
      options_.initial = start->plan;
      if (options_.methods.empty()) options_.methods = planner::Portfolio();
    }
    planner::OnImprovement report;
    if (on_better_ != nullptr) {
      report = [this](const FoundPlan& found) {
        FoundPlan better = found;
        if (!better.predicted_seconds.has_value() && times_.has_value()) {
          better.predicted_seconds = ModelSeconds(found.plan);
        }
        on_better_(better, CallWith(found.plan));
      };
    }
    auto found = planner::Search(expression_, options_, cancel_, report);
    if (found.ok()) return found;
    return AsContractHeaderError(found.status(), call_);
  }

  void Take(const FoundPlan& found, bool cached) {
    SetPlan(expression_, found.plan, &call_.request);
    call_.request.allow_slicing = false;
    call_.provenance = Provenance(found, *call_.question);
    if (cached) call_.provenance->set_source(v1::PLAN_SOURCE_CACHE);
    call_.plan_source = call_.provenance->source();
    call_.plan_id =
        state_.plans.Put(call_.owner, NetworkKey(expression_), found.plan, *call_.provenance)->id;
  }

  absl::Status TakeStored() {
    const auto stored = state_.plans.Find(call_.owner, call_.plan_id);
    if (stored == nullptr) {
      return Error(Reason::kNotFound, StrCat("there is no plan '", call_.plan_id, "' (any more)"))
          .Field("header.plan_id");
    }
    TENON_ASSIGN_OR_RETURN(expression_, ExpressionOf(call_));
    if (stored->network != NetworkKey(expression_)) {
      return Error(Reason::kBadPath, "the plan was made for another network")
          .Field("header.plan_id");
    }
    TakePlan(*stored);
    return absl::OkStatus();
  }

  void TakePlan(const StoredPlan& stored) {
    SetPlan(expression_, stored.plan, &call_.request);
    call_.provenance = stored.provenance;
    call_.provenance->set_source(v1::PLAN_SOURCE_PLAN_ID);
    call_.plan_source = v1::PLAN_SOURCE_PLAN_ID;
    call_.plan_id = stored.id;
  }

  // A program that must have a certain fingerprint may be that of an older plan.
  absl::Status KeepFingerprint() {
    if (call_.required_fingerprint.empty()) return absl::OkStatus();
    for (const auto& stored : state_.plans.FindFor(call_.owner, NetworkKey(expression_))) {
      ContractCall planned = CallWith(stored->plan);
      planned.providers = call_.providers;
      const auto job = PrepareCall(planned, cancel_, &state_.programs);
      if (job.ok() && (*job)->fingerprint() == call_.required_fingerprint) {
        TakePlan(*stored);
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();  // PrepareCall refuses it
  }

  ContractCall& call_;
  ServerState& state_;
  const CancelToken* const cancel_;
  const OnBetterPlan on_better_;
  Expression expression_;
  planner::SearchOptions options_;
  std::optional<planner::StepTimes> times_;  // absent: no model
  std::optional<PlanKey> key_;
  std::shared_ptr<const FoundPlan> known_;  // in the cache
  // Of plans that are compared: few will run, and the server's cache is for those that do.
  schedule::ProgramCache ranked_{64, int64_t{16} << 20};
};

PlanFinder::PlanFinder(ContractCall* call, ServerState* state, const CancelToken* cancel,
                       OnBetterPlan on_better)
    : finder_(std::make_unique<Finder>(*call, *state, cancel, std::move(on_better))) {}
PlanFinder::~PlanFinder() = default;

absl::StatusOr<bool> PlanFinder::FindAtOnce() { return finder_->FindAtOnce(); }
absl::Status PlanFinder::Search() { return finder_->Search(); }
SearchNeed PlanFinder::search_need() const { return finder_->search_need(); }

// Engine and planner cannot differ on so few operands; and operand sets share work best along the
// engine's own path, unless the caller knows better.
bool NeedsNoPlan(const ContractCall& call) {
  if (call.plan_source == v1::PLAN_SOURCE_PLAN_ID) return false;
  if (!call.question.has_value()) return true;
  return !Asks(call) && !call.request.path.has_value() &&
         (call.operands.size() <= 2 || call.varies());
}

void QueueSearch(ServerState* state, QueueWait* wait, const CancelToken* cancel, SearchNeed need,
                 std::function<void()> search,
                 const std::function<void(const absl::Status&)>& refused) {
  // Who cancels takes the call out of the queue, if it is in one just then.
  const auto leave_if_cancelled = [wait, cancel, refused] {
    if (cancel->cancelled() && wait->Leave()) refused(cancel->Check());
  };
  Executor* const searches = need.brief ? &state->brief_searches : &state->searches;
  const auto enter = [searches, wait, search = std::move(search), refused,
                      leave_if_cancelled](Reservation reservation) {
    auto held = std::make_shared<Reservation>(std::move(reservation));
    const absl::Status submitted = wait->ForSlot(
        searches, [held = std::move(held), search] { search(); }, refused);
    if (!submitted.ok()) return refused(submitted);
    leave_if_cancelled();
  };
  auto reserved = wait->ForMemory(&state->budget, need.bytes, enter, refused);
  if (!reserved.ok()) return refused(reserved.status());
  if (reserved->has_value()) return enter(*std::move(*reserved));
  leave_if_cancelled();
}

}  // namespace tenon::server
