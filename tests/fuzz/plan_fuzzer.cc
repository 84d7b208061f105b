// Plan files, Tenon's and ArcTN's, and what derives everything in them anew.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/core/plan_file.h"
#include "backends/planner/plan_check.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/network_check.h"

namespace tenon::fuzz {
namespace {

constexpr size_t kMostTensors = 24;

void CheckOne(std::string_view json) {
  const auto file = ParsePlanFile(json);
  if (!file.ok()) return CheckError(file.status());
  CheckPrintsAndParses(*file);
  CheckNetwork(file->network, file->path, file->sliced);
  if (file->network.inputs.size() > kMostTensors) return;
  const auto checked = planner::CheckPlan(*file);
  if (!checked.ok()) return CheckError(checked.status());
  // What was derived is a plan that holds, whatever the file told or left out.
  const auto format = json.size() % 2 == 0 ? PathSteps::Format::kSsa : PathSteps::Format::kLinear;
  const PlanFile made = planner::MakePlanFile(file->network, checked->expression, checked->plan,
                                              format, file->provenance);
  CheckPrintsAndParses(made);
  FUZZ_CHECK(planner::CheckPlan(made).ok());
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::CheckOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
