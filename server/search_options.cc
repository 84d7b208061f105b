#include "server/search_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/core/error.h"
#include "server/contraction_checks.h"

namespace tenon::server {
namespace {

using planner::Method;
using planner::SlicingMode;

// Trials of a search that nobody limited. They end it before the time in all but large networks,
// so that the plan repeats; and before they cost more than what they can save.
constexpr int64_t kDefaultTrials = 64;
constexpr double kWorthwhile = 0.25;

constexpr std::pair<v1::SearchMethod, Method> kMethods[] = {
    {v1::SEARCH_METHOD_GREEDY, Method::kGreedy},
    {v1::SEARCH_METHOD_RANDOM_GREEDY, Method::kRandomGreedy},
    {v1::SEARCH_METHOD_EXACT, Method::kExact},
    {v1::SEARCH_METHOD_BISECTION, Method::kBisection},
    {v1::SEARCH_METHOD_LEAF_ORDER, Method::kLeafOrder},
    {v1::SEARCH_METHOD_RECONFIGURE, Method::kReconfigure},
    {v1::SEARCH_METHOD_ANNEALING, Method::kAnnealing},
    {v1::SEARCH_METHOD_TEMPERING, Method::kTempering},
};

constexpr std::pair<v1::SlicingMode, SlicingMode> kSlicingModes[] = {
    {v1::SLICING_MODE_UNSPECIFIED, SlicingMode::kAuto},
    {v1::SLICING_MODE_NONE, SlicingMode::kNone},
    {v1::SLICING_MODE_FIXED_TREE, SlicingMode::kFixedTree},
    {v1::SLICING_MODE_DYNAMIC, SlicingMode::kDynamic},
    {v1::SLICING_MODE_ANNEALED, SlicingMode::kAnnealed},
};

// Reads one message into one question, part by part.
class Reader {
 public:
  Reader(const v1::SearchOptions& search, const std::string& prefix, const ServerState& state,
         PlanQuestion& question)
      : search_(search),
        prefix_(prefix),
        state_(state),
        question_(question),
        options_(question.options) {}

  absl::Status Read() {
    TENON_RETURN_IF_ERROR(ReadObjective());
    TENON_RETURN_IF_ERROR(ReadMethods());
    TENON_RETURN_IF_ERROR(ReadBudget());
    if (search_.has_target_size()) {
      TENON_RETURN_IF_ERROR(CheckAtLeastOne(search_.target_size(), prefix_ + "target_size"));
      options_.target_elements = search_.target_size();
    }
    TENON_RETURN_IF_ERROR(CheckEnum(v1::SlicingMode_IsValid(search_.slicing_mode()),
                                    search_.slicing_mode(), prefix_ + "slicing_mode"));
    for (const auto& [wire, mode] : kSlicingModes) {
      if (wire == search_.slicing_mode()) options_.slicing_mode = mode;
    }
    TENON_RETURN_IF_ERROR(CheckEnum(v1::PlanCachePolicy_IsValid(search_.cache()), search_.cache(),
                                    prefix_ + "cache"));
    question_.cache = search_.cache() == v1::PLAN_CACHE_POLICY_UNSPECIFIED
                          ? v1::PLAN_CACHE_POLICY_USE
                          : search_.cache();
    options_.allow_output_slicing = search_.allow_output_slicing();
    options_.seed = search_.seed();
    if (search_.has_simplify()) options_.simplify = search_.simplify();
    if (search_.provider().empty()) return absl::OkStatus();
    auto provider = state_.providers.Find(search_.provider());
    if (!provider.ok()) return PrefixFields(provider.status(), prefix_ + "provider");
    question_.provider = *std::move(provider);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadObjective();
  absl::Status ReadWeight(bool has, double value, const char* name, double* out) const;
  absl::Status ReadMethods();
  absl::Status ReadBudget();

  const v1::SearchOptions& search_;
  const std::string& prefix_;
  const ServerState& state_;
  PlanQuestion& question_;
  planner::SearchOptions& options_;
};

absl::Status Reader::ReadWeight(bool has, double value, const char* name, double* out) const {
  if (!has) return absl::OkStatus();
  constexpr double kMost = 1e30;  // so that costs of networks stay within a double's range
  if (!(value >= 0 && value <= kMost)) {
    return OutOfRange(prefix_ + name, StrCat("a number from 0 to ", kMost), StrCat(value));
  }
  if (question_.objective != v1::SEARCH_OBJECTIVE_WEIGHTED) {
    return Error(Reason::kBadParameter, "weights are for the weighted objective")
        .Field(prefix_ + name);
  }
  *out = value;
  return absl::OkStatus();
}

absl::Status Reader::ReadObjective() {
  TENON_RETURN_IF_ERROR(CheckEnum(v1::SearchObjective_IsValid(search_.objective()),
                                  search_.objective(), prefix_ + "objective"));
  planner::Objective& objective = options_.objective;
  if (search_.objective() != v1::SEARCH_OBJECTIVE_UNSPECIFIED) {
    question_.objective = search_.objective();
  }
  switch (question_.objective) {
    case v1::SEARCH_OBJECTIVE_FLOPS:
      objective.read_write_weight = 0;
      break;
    case v1::SEARCH_OBJECTIVE_READ_WRITE:
      objective.flops_weight = 0;
      objective.read_write_weight = 1;
      break;
    case v1::SEARCH_OBJECTIVE_LARGEST_INTERMEDIATE:
      objective.kind = planner::Objective::Kind::kLargest;
      break;
    case v1::SEARCH_OBJECTIVE_SECONDS:
      objective.kind = planner::Objective::Kind::kSeconds;
      break;
    default:
      break;
  }
  TENON_RETURN_IF_ERROR(ReadWeight(search_.has_flops_weight(), search_.flops_weight(),
                                   "flops_weight", &objective.flops_weight));
  TENON_RETURN_IF_ERROR(ReadWeight(search_.has_read_write_weight(), search_.read_write_weight(),
                                   "read_write_weight", &objective.read_write_weight));
  if (objective.flops_weight == 0 && objective.read_write_weight == 0) {
    return Error(Reason::kBadParameter, "one of the two weights must be above 0")
        .Field(prefix_ + "read_write_weight");
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadMethods() {
  question_.has_methods = search_.methods_size() > 0;
  for (int i = 0; i < search_.methods_size(); ++i) {
    const std::string field = StrCat(prefix_, "methods[", i, "]");
    const auto wire = static_cast<v1::SearchMethod>(search_.methods(i));
    const auto* known = std::find_if(std::begin(kMethods), std::end(kMethods),
                                     [&](const auto& entry) { return entry.first == wire; });
    if (known == std::end(kMethods)) {
      return CheckEnum(false, static_cast<int>(wire), field);
    }
    auto& methods = options_.methods;
    if (std::find(methods.begin(), methods.end(), known->second) != methods.end()) {
      return OutOfRange(field, "no repetition", v1::SearchMethod_Name(wire));
    }
    methods.push_back(known->second);
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadBudget() {
  if (search_.has_max_trials()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(search_.max_trials(), prefix_ + "max_trials"));
  }
  if (search_.has_max_time_seconds()) {
    const double seconds = search_.max_time_seconds();
    TENON_RETURN_IF_ERROR(CheckPositive(seconds, prefix_ + "max_time_seconds"));
    if (seconds > state_.limits.max_plan_seconds) {
      return Error(Reason::kExceedsServerLimit,
                   StrCat("a search of ", seconds, " seconds is asked for; this server allows ",
                          state_.limits.max_plan_seconds))
          .Field(prefix_ + "max_time_seconds")
          .Meta("limit", state_.limits.max_plan_seconds)
          .Meta("actual", seconds);
    }
  }
  if (search_.has_threads()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(search_.threads(), prefix_ + "threads"));
    options_.threads = search_.threads();
  }
  question_.default_budget = !search_.has_max_trials() && !search_.has_max_time_seconds();
  if (question_.default_budget) return absl::OkStatus();
  options_.worthwhile = 0;
  options_.max_trials.reset();
  // A limit of the server keeps a search by trials from going on for ever.
  options_.max_seconds = state_.limits.max_plan_seconds;
  options_.deterministic = true;
  if (search_.has_max_trials()) options_.max_trials = search_.max_trials();
  if (search_.has_max_time_seconds()) {
    options_.max_seconds = search_.max_time_seconds();
    options_.deterministic = false;
  }
  return absl::OkStatus();
}

}  // namespace

PlanQuestion DefaultQuestion(const ServerState& state) {
  PlanQuestion question;
  question.options.max_trials = kDefaultTrials;
  question.options.worthwhile = kWorthwhile;
  question.options.max_seconds = state.limits.default_plan_seconds;
  question.options.deterministic = true;
  return question;
}

absl::Status ReadSearchOptions(const v1::SearchOptions& search, const std::string& prefix,
                               const ServerState& state, PlanQuestion* question) {
  *question = DefaultQuestion(state);
  return Reader(search, prefix, state, *question).Read();
}

v1::SearchMethod ToWire(planner::Method method) {
  for (const auto& [wire, known] : kMethods) {
    if (known == method) return wire;
  }
  return v1::SEARCH_METHOD_UNSPECIFIED;
}

v1::SlicingMode ToWire(planner::SlicingMode mode) {
  for (const auto& [wire, known] : kSlicingModes) {
    if (known == mode) return wire;
  }
  return v1::SLICING_MODE_UNSPECIFIED;
}

}  // namespace tenon::server
