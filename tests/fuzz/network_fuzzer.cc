// Network files in JSON.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/core/network.h"
#include "backends/core/plan_file.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/network_check.h"

namespace tenon::fuzz {
namespace {

void CheckOne(std::string_view json) {
  const auto file = ParseNetworkJson(json);
  if (!file.ok()) return CheckError(file.status());
  FUZZ_CHECK(!file->dtype.has_value() || IsContractionDType(*file->dtype));
  FUZZ_CHECK(file->scales.empty() || file->scales.size() == file->network.inputs.size());
  FUZZ_CHECK(!file->seed.has_value() || file->scales.size() == file->network.inputs.size());
  for (const double scale : file->scales) FUZZ_CHECK(std::isfinite(scale));
  CheckNetwork(file->network, file->path, file->sliced);

  PlanFile plan;
  plan.name = file->name;
  plan.network = file->network;
  plan.path = file->path.value_or(PathSteps());
  plan.sliced = file->sliced;
  CheckPrintsAndParses(plan);
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::CheckOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
