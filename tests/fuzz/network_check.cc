#include "tests/fuzz/network_check.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "tests/fuzz/check.h"

namespace tenon::fuzz {
namespace {

using contraction::Expression;
using contraction::Path;
using contraction::PathCost;

constexpr size_t kMostTensors = 24;
constexpr size_t kMostAxes = 120;  // of all tensors together

// Names against numbers, independently of how they were given out.
void CheckExpression(const Network& network, const Expression& expression) {
  const auto same = [&](const std::vector<std::string>& names, const std::vector<int>& indices) {
    FUZZ_CHECK(names.size() == indices.size());
    for (size_t axis = 0; axis < names.size(); ++axis) {
      const int index = indices[axis];
      FUZZ_CHECK(index >= 0 && static_cast<size_t>(index) < expression.names.size());
      FUZZ_CHECK(expression.names[index] == names[axis]);
    }
  };
  FUZZ_CHECK(expression.names.size() == expression.sizes.size());
  FUZZ_CHECK(std::set<std::string>(expression.names.begin(), expression.names.end()).size() ==
             expression.names.size());
  FUZZ_CHECK(expression.inputs.size() == network.inputs.size());
  for (size_t k = 0; k < network.inputs.size(); ++k) same(network.inputs[k], expression.inputs[k]);
  same(network.output, expression.output);
  FUZZ_CHECK(std::set<int>(expression.output.begin(), expression.output.end()).size() ==
             expression.output.size());
  for (size_t index = 0; index < expression.names.size(); ++index) {
    FUZZ_CHECK(expression.sizes[index] >= 0);
    FUZZ_CHECK(expression.sizes[index] == network.sizes.at(expression.names[index]));
  }
}

// Figures may be infinite, for joint spaces may be of any size; but they are numbers.
void CheckCost(const PathCost& cost) {
  for (const double figure : {cost.flops, cost.write, cost.read_write, cost.max_size, cost.max_step,
                              cost.peak_size, cost.slices}) {
    FUZZ_CHECK(!std::isnan(figure) && figure >= 0);
  }
}

void CheckPath(const Expression& expression, const Path& path, const std::vector<int>& sliced) {
  const size_t n = expression.inputs.size();
  FUZZ_CHECK(path.pairs.size() == n - 1);
  std::set<int> used;
  for (size_t s = 0; s < path.pairs.size(); ++s) {
    for (const int tensor : {path.pairs[s].first, path.pairs[s].second}) {
      FUZZ_CHECK(tensor >= 0 && static_cast<size_t>(tensor) < n + s);
      FUZZ_CHECK(used.insert(tensor).second);
    }
  }
  for (const auto format : {PathSteps::Format::kSsa, PathSteps::Format::kLinear}) {
    const auto again = contraction::MakePath(contraction::MakeSteps(path, format), n);
    FUZZ_CHECK(again.ok() && again->pairs == path.pairs);
  }
  CheckCost(contraction::ComputeCost(expression, path, sliced));
  const auto work = contraction::ComputeExecutedWork(expression, path, sliced);
  FUZZ_CHECK(!std::isnan(work.flops) && !std::isnan(work.read_write));
}

auto Fields(const PlanFile& plan) {
  const PlanProvenance& from = plan.provenance;
  return std::tie(plan.name, plan.network.inputs, plan.network.output, plan.network.sizes,
                  plan.path.format, plan.path.steps, plan.sliced, plan.target_elements,
                  plan.memory_bytes, plan.costs, plan.unsliced_costs, from.objective,
                  from.flops_weight, from.read_write_weight, from.methods, from.slicing_mode,
                  from.seed, from.trials, from.seconds, from.stopped_by, from.planner_version);
}

}  // namespace

void CheckNetwork(const Network& network, const std::optional<PathSteps>& path,
                  const std::vector<std::string>& sliced) {
  std::vector<std::vector<int64_t>> shapes;
  size_t axes = 0;
  for (size_t k = 0; k < network.inputs.size(); ++k) {
    auto shape = InputShape(network, k);
    if (!shape.ok()) return CheckError(shape.status());
    axes += shape->size();
    shapes.push_back(*std::move(shape));
  }
  const auto expression = contraction::MakeExpression(network, shapes);
  if (!expression.ok()) return CheckError(expression.status());
  CheckExpression(network, *expression);
  if (shapes.size() > kMostTensors || axes > kMostAxes) return;
  auto made = path.has_value() ? contraction::MakePath(*path, shapes.size())
                               : contraction::GreedyPath(*expression);
  if (!made.ok()) return CheckError(made.status());
  const auto slices = contraction::MakeSliced(*expression, sliced);
  if (!slices.ok()) return CheckError(slices.status());
  CheckPath(*expression, *made, *slices);
  const auto chosen = contraction::SliceToTarget(*expression, *made, 1 << 20, true);
  if (chosen.ok()) CheckCost(contraction::ComputeCost(*expression, *made, *chosen));
}

void CheckPrintsAndParses(const PlanFile& plan) {
  const auto printed = FormatPlanFile(plan);
  FUZZ_CHECK(printed.ok());
  const auto parsed = ParsePlanFile(*printed);
  FUZZ_CHECK(parsed.ok());
  FUZZ_CHECK(Fields(*parsed) == Fields(plan));
  const auto again = FormatPlanFile(*parsed);
  FUZZ_CHECK(again.ok() && *again == *printed);
}

}  // namespace tenon::fuzz
