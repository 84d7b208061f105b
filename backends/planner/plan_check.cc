#include "backends/planner/plan_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/figure.h"

namespace tenon::planner {
namespace {

using contraction::Expression;
using contraction::PathCost;

PlanFigures Figures(const PathCost& cost, const PlanProvenance& from) {
  PlanFigures figures = {{"flops", cost.flops},           {"write", cost.write},
                         {"read_write", cost.read_write}, {"max_size", cost.max_size},
                         {"max_step", cost.max_step},     {"peak_size", cost.peak_size},
                         {"slices", cost.slices}};
  if (const auto score = PlanScore(figures, from); score.has_value()) figures["score"] = *score;
  return figures;
}

absl::StatusOr<Expression> ExpressionOf(const Network& network) {
  std::vector<std::vector<int64_t>> shapes;
  for (size_t k = 0; k < network.inputs.size(); ++k) {
    TENON_ASSIGN_OR_RETURN(shapes.emplace_back(), InputShape(network, k));
  }
  return contraction::MakeExpression(network, shapes);
}

absl::Status CheckBinary(const PathSteps& path) {
  for (size_t s = 0; s < path.steps.size(); ++s) {
    if (path.steps[s].size() == 2) continue;
    return Error(Reason::kBadPath, StrCat("path step ", s, " has ", path.steps[s].size(),
                                          " tensors; the steps of a plan have two"))
        .Field(StrCat("path.steps[", s, "]"))
        .Meta("step", s);
  }
  return absl::OkStatus();
}

absl::Status CheckTarget(const PlanFile& file, const CheckedPlan& checked) {
  if (!file.target_elements.has_value()) return absl::OkStatus();
  auto results =
      contraction::TensorIndices(checked.expression, checked.plan.path, checked.plan.sliced);
  const size_t n = checked.expression.inputs.size();
  if (n == 1) {
    results.push_back(checked.expression.output);
    std::erase_if(results.back(), [&](int index) {
      return std::count(checked.plan.sliced.begin(), checked.plan.sliced.end(), index) != 0;
    });
  }
  for (size_t t = n; t < results.size(); ++t) {
    if (FitsIn(checked.expression, results[t], *file.target_elements)) continue;
    return Error(Reason::kExceedsMemoryBudget,
                 StrCat("a slice of the plan has results of ", FigureText(checked.cost.max_size),
                        " elements, more than its target of ", *file.target_elements))
        .Field("target.elements")
        .Meta("target_elements", *file.target_elements)
        .Meta("needed_elements", FigureText(checked.cost.max_size));
  }
  return absl::OkStatus();
}

// What differs first between two networks by content; empty if nothing does.
std::string Difference(const Expression& told, const Expression& given) {
  if (told.inputs.size() != given.inputs.size()) {
    return StrCat("it has ", told.inputs.size(), " tensors, not ", given.inputs.size());
  }
  for (size_t k = 0; k < told.inputs.size(); ++k) {
    if (told.inputs[k] != given.inputs[k]) return StrCat("the indices of tensor ", k, " differ");
  }
  if (told.output != given.output) return "the outputs differ";
  for (size_t index = 0; index < told.sizes.size(); ++index) {
    if (told.sizes[index] == given.sizes[index]) continue;
    return StrCat("index '", told.names[index], "' has size ", told.sizes[index], ", not ",
                  given.sizes[index]);
  }
  return "";
}

}  // namespace

bool FitsIn(const Expression& expression, const std::vector<int>& indices, int64_t limit) {
  const auto is_empty = [&](int index) { return expression.sizes[index] == 0; };
  if (std::any_of(indices.begin(), indices.end(), is_empty)) return true;
  // floor(floor(x / a) / b) = floor(x / (a b))
  for (const int index : indices) limit /= expression.sizes[index];
  return limit > 0;
}

absl::StatusOr<CheckedPlan> CheckPlan(const PlanFile& file) {
  CheckedPlan checked;
  absl::StatusOr<Expression> expression = ExpressionOf(file.network);
  if (!expression.ok()) return PrefixFields(expression.status(), "network.");
  checked.expression = *std::move(expression);
  TENON_RETURN_IF_ERROR(CheckBinary(file.path));
  TENON_ASSIGN_OR_RETURN(checked.plan.path,
                         contraction::MakePath(file.path, file.network.inputs.size()));
  TENON_ASSIGN_OR_RETURN(checked.plan.sliced,
                         contraction::MakeSliced(checked.expression, file.sliced));
  checked.cost = ComputeCost(checked.expression, checked.plan.path, checked.plan.sliced);
  TENON_RETURN_IF_ERROR(CheckTarget(file, checked));
  TENON_RETURN_IF_ERROR(
      ComparePlanFigures(file.costs, Figures(checked.cost, file.provenance), "costs"));
  const PathCost unsliced = ComputeCost(checked.expression, checked.plan.path, {});
  TENON_RETURN_IF_ERROR(ComparePlanFigures(file.unsliced_costs, Figures(unsliced, file.provenance),
                                           "unsliced_costs"));
  return checked;
}

absl::StatusOr<CheckedPlan> CheckPlanFor(const PlanFile& file, const Expression& expression) {
  TENON_ASSIGN_OR_RETURN(CheckedPlan checked, CheckPlan(file));
  const std::string difference = Difference(checked.expression, expression);
  if (difference.empty()) return checked;
  return Error(Reason::kBadExpression, StrCat("the plan is for another network: ", difference))
      .Field("network");
}

PlanFile MakePlanFile(const Network& network, const Expression& expression, const Plan& plan,
                      PathSteps::Format format, PlanProvenance provenance) {
  PlanFile file;
  file.network = network;
  file.path = contraction::MakeSteps(plan.path, format);
  for (const int index : plan.sliced) file.sliced.push_back(expression.names[index]);
  file.costs = Figures(ComputeCost(expression, plan.path, plan.sliced), provenance);
  file.unsliced_costs = Figures(ComputeCost(expression, plan.path, {}), provenance);
  for (PlanFigures* figures : {&file.costs, &file.unsliced_costs}) {
    std::erase_if(*figures, [](const auto& figure) { return !std::isfinite(figure.second); });
  }
  file.provenance = std::move(provenance);
  return file;
}

}  // namespace tenon::planner
