#include "client/cpp/tool/search_input.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "backends/core/error.h"
#include "client/cpp/tool/enums.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

absl::Status ReadChoices(const Arguments& arguments, v1::SearchOptions* search) {
  if (const auto objective = arguments.Get("objective")) {
    TENON_ASSIGN_OR_RETURN(const auto value,
                           ParseEnum<v1::SearchObjective>(*objective, "objective"));
    search->set_objective(value);
  }
  if (const auto provider = arguments.Get("plan-for")) search->set_provider(*provider);
  if (const auto mode = arguments.Get("slicing")) {
    TENON_ASSIGN_OR_RETURN(const auto value, ParseEnum<v1::SlicingMode>(*mode, "slicing"));
    search->set_slicing_mode(value);
  }
  if (const auto policy = arguments.Get("plan-cache")) {
    TENON_ASSIGN_OR_RETURN(const auto value, ParseEnum<v1::PlanCachePolicy>(*policy, "plan-cache"));
    search->set_cache(value);
  }
  TENON_ASSIGN_OR_RETURN(const auto methods,
                         GetParsed<std::vector<std::string>>(arguments, "methods", ParseNames));
  for (const std::string& name : methods.value_or(std::vector<std::string>())) {
    TENON_ASSIGN_OR_RETURN(const auto value, ParseEnum<v1::SearchMethod>(name, "methods"));
    search->add_methods(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ParseWeight(std::string_view text, std::string_view option) {
  if (text == "0") return 0.0;
  return ParsePositive(text, option);
}

absl::Status ReadBudget(const Arguments& arguments, v1::SearchOptions* search) {
  TENON_ASSIGN_OR_RETURN(const auto target,
                         GetParsed<int64_t>(arguments, "target-size", ParseCount));
  if (target.has_value()) search->set_target_size(*target);
  TENON_ASSIGN_OR_RETURN(const auto memory,
                         GetParsed<int64_t>(arguments, "target-memory", ParseSize));
  if (memory.has_value()) search->set_memory_bytes(*memory);
  TENON_ASSIGN_OR_RETURN(const auto flops,
                         GetParsed<double>(arguments, "flops-weight", ParseWeight));
  if (flops.has_value()) search->set_flops_weight(*flops);
  TENON_ASSIGN_OR_RETURN(const auto elements,
                         GetParsed<double>(arguments, "read-write-weight", ParseWeight));
  if (elements.has_value()) search->set_read_write_weight(*elements);
  TENON_ASSIGN_OR_RETURN(const auto seconds,
                         GetParsed<double>(arguments, "max-time", ParsePositive));
  if (seconds.has_value()) search->set_max_time_seconds(*seconds);
  TENON_ASSIGN_OR_RETURN(const auto trials,
                         GetParsed<int64_t>(arguments, "max-trials", ParseCount));
  if (trials.has_value()) search->set_max_trials(*trials);
  TENON_ASSIGN_OR_RETURN(const auto threads,
                         GetParsed<int32_t>(arguments, "search-threads", ParseSmallCount));
  if (threads.has_value()) search->set_threads(*threads);
  if (const auto seed = arguments.Get("seed")) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(*seed, &number)) {
      return Error(Reason::kBadParameter,
                   StrCat("--seed is '", *seed, "'; expected is a number from 0 to 2^64 - 1"))
          .Field("--seed");
    }
    search->set_seed(number);
  }
  return absl::OkStatus();
}

// Inputs and output with indices numbered by first appearance, and their sizes.
struct Numbered {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  std::vector<int64_t> sizes;
  std::vector<std::string> names;

  explicit Numbered(const Network& network) {
    std::map<std::string, int> numbers;
    const auto number = [&](const std::string& name) {
      const auto [known, is_new] = numbers.emplace(name, static_cast<int>(names.size()));
      if (is_new) {
        names.push_back(name);
        const auto size = network.sizes.find(name);
        sizes.push_back(size == network.sizes.end() ? -1 : size->second);
      }
      return known->second;
    };
    for (const auto& input : network.inputs) {
      inputs.emplace_back();
      for (const std::string& name : input) inputs.back().push_back(number(name));
    }
    for (const std::string& name : network.output) output.push_back(number(name));
  }
};

// Those beyond the range of a double are infinite. All are counts: what rounding made of their
// logarithms is taken back.
PlanFigures Figures(const v1::PlanCost& cost, double log2_slices) {
  PlanFigures figures = {{"flops", std::pow(10.0, cost.log10_flops())},
                         {"write", std::exp2(cost.log2_writes())},
                         {"read_write", std::exp2(cost.log2_read_write())},
                         {"max_size", std::exp2(cost.log2_largest_intermediate())},
                         {"max_step", std::exp2(cost.log2_largest_step())},
                         {"peak_size", std::exp2(cost.log2_peak())},
                         {"slices", std::exp2(log2_slices)}};
  for (auto& [name, figure] : figures) figure = std::round(figure);
  return figures;
}

PlanFigures FiniteFigures(const v1::PlanCost& cost, double log2_slices) {
  PlanFigures figures = Figures(cost, log2_slices);
  std::erase_if(figures, [](const auto& figure) { return !std::isfinite(figure.second); });
  return figures;
}

absl::Status CompareCosts(const PlanFigures& told, PlanFigures derived, const PlanFile& plan,
                          const std::string& key) {
  if (const auto score = PlanScore(derived, plan.provenance)) derived["score"] = *score;
  return ComparePlanFigures(told, derived, key);
}

}  // namespace

std::vector<Option> SearchOptionsOfTool() {
  return {
      {"target-size", "N",
       "Largest number of elements of an intermediate, such as 2^24; the server slices to meet "
       "it."},
      {"target-memory", "SIZE", "Largest planned peak that the slices are to meet, such as 4GiB."},
      {"max-time", "S", "Seconds to search for a plan, at most 600."},
      {"max-trials", "N",
       "Trials of the search; without --max-time the plan depends on them and the seed alone."},
      {"seed", "N", "Seed of the search (default: 0)."},
      {"search-threads", "N", "Threads of the search (default: all cores)."},
      {"objective", "NAME",
       "flops, read_write, weighted (1 : 64, the default), largest_intermediate or seconds.", false,
       EnumNames<v1::SearchObjective>()},
      {"flops-weight", "X", "Of a multiply-add, with the weighted objective (default: 1)."},
      {"read-write-weight", "X", "Of an element read or written (default: 64)."},
      {"plan-for", "PROVIDER",
       "Provider whose predicted seconds and memory count (default: the first that runs it)."},
      {"methods", "NAMES",
       "greedy, random_greedy, exact, bisection, leaf_order, reconfigure, annealing, tempering, "
       "with "
       "commas between (default: the server's portfolio). exact gives up where about 20 tensors or "
       "more are left of the network; the plan tells the methods that made it."},
      {"slicing", "NAME", "none, fixed_tree, dynamic or annealed (default: the server's choice).",
       false, EnumNames<v1::SlicingMode>()},
      {"allow-output-slicing", "", "Indices of the output may be sliced too."},
      {"no-simplify", "", "Search the network as it is."},
      {"plan-cache", "NAME", "use (the default), improve or bypass.", false,
       EnumNames<v1::PlanCachePolicy>()},
  };
}

absl::StatusOr<std::optional<v1::SearchOptions>> ReadSearch(const Arguments& arguments) {
  bool given = false;
  for (const Option& option : SearchOptionsOfTool()) given |= arguments.Has(option.name);
  if (!given) return std::optional<v1::SearchOptions>();
  v1::SearchOptions search;
  TENON_RETURN_IF_ERROR(ReadChoices(arguments, &search));
  TENON_RETURN_IF_ERROR(ReadBudget(arguments, &search));
  search.set_allow_output_slicing(arguments.Has("allow-output-slicing"));
  if (arguments.Has("no-simplify")) search.set_simplify(false);
  return std::optional<v1::SearchOptions>(std::move(search));
}

absl::Status CheckPlanFigures(const PlanFile& plan, const v1::PlanSummary& derived) {
  const PlanFigures total = Figures(derived.total(), derived.log2_slices());
  absl::Status status = CompareCosts(plan.costs, total, plan, "costs");
  if (status.ok()) {
    status =
        CompareCosts(plan.unsliced_costs, Figures(derived.unsliced(), 0), plan, "unsliced_costs");
  }
  const double target = static_cast<double>(plan.target_elements.value_or(INT64_MAX));
  const double largest = total.at("max_size");
  constexpr double kRounding = 1 + 1e-9;  // of a logarithm
  if (status.ok() && largest > target * kRounding) {
    status =
        Error(Reason::kBadParameter,
              StrCat("the plan tells a target of ", *plan.target_elements,
                     " elements, but it makes results of ", FormatNumber(std::round(largest), 16)));
  }
  if (status.ok()) return status;
  return Error(Reason::kBadParameter, std::string(status.message())).Field("--plan");
}

absl::StatusOr<v1::PathFormat> ReadPathFormat(const Arguments& arguments) {
  const auto name = arguments.Get("path-format");
  if (!name.has_value()) return v1::PATH_FORMAT_UNSPECIFIED;
  return ParseEnum<v1::PathFormat>(*name, "path-format");
}

absl::Status NamePlanFile(const absl::Status& status, const std::string& path) {
  return PrefixMessage(status, StrCat("'", path, "': "));
}

absl::Status UsePlanFile(const PlanFile& plan, const Network& network,
                         client::ContractRequest* request) {
  const Numbered made_for(plan.network);
  const Numbered here(network);
  if (made_for.inputs != here.inputs || made_for.output != here.output ||
      made_for.sizes != here.sizes) {
    return Error(Reason::kBadParameter, "the plan was made for another network").Field("--plan");
  }
  request->path = plan.path;
  request->sliced.clear();
  for (const std::string& name : plan.sliced) {
    const auto known = std::find(made_for.names.begin(), made_for.names.end(), name);
    if (known == made_for.names.end()) {
      return Error(Reason::kBadParameter,
                   StrCat("the plan slices '", name, "', which its network does not have"))
          .Field("--plan");
    }
    request->sliced.push_back(here.names[known - made_for.names.begin()]);
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanFile> MakePlanFile(const std::string& name, const Network& network,
                                      const v1::SearchOptions& search,
                                      const v1::PlanResult& result) {
  const v1::PlanSummary& plan = result.plan();
  PlanFile file;
  file.name = name;
  file.network = network;
  file.path.format = plan.path().format() == v1::PATH_FORMAT_LINEAR ? PathSteps::Format::kLinear
                                                                    : PathSteps::Format::kSsa;
  for (const v1::PathStep& step : plan.path().steps()) {
    file.path.steps.emplace_back(step.operands().begin(), step.operands().end());
  }
  file.sliced.assign(plan.sliced_indices().begin(), plan.sliced_indices().end());
  if (search.has_target_size()) file.target_elements = search.target_size();
  if (search.has_memory_bytes()) file.memory_bytes = search.memory_bytes();
  file.costs = FiniteFigures(plan.total(), plan.log2_slices());
  file.unsliced_costs = FiniteFigures(plan.unsliced(), 0);
  const v1::PlanProvenance& made = plan.provenance();
  file.provenance.objective = static_cast<PlanObjective>(
      made.objective() == v1::SEARCH_OBJECTIVE_UNSPECIFIED ? PlanObjective::kWeighted
                                                           : PlanObjective(made.objective() - 1));
  file.provenance.flops_weight = made.flops_weight();
  file.provenance.read_write_weight = made.read_write_weight();
  for (const int method : made.methods()) {
    file.provenance.methods.push_back(ShortEnumName(static_cast<v1::SearchMethod>(method)));
  }
  if (plan.sliced_indices_size() > 0) {
    file.provenance.slicing_mode = ShortEnumName(made.slicing_mode());
  }
  if (made.has_seed()) file.provenance.seed = made.seed();
  file.provenance.trials = made.trials();
  file.provenance.seconds = made.search_seconds();
  file.provenance.stopped_by = ShortEnumName(made.stopped_by());
  file.provenance.planner_version = made.planner_version();
  return file;
}

}  // namespace tenon::tool
