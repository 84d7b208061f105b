#include "backends/schedule/kernel_work.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace tenon::schedule {

using contraction::Program;
using plugin::Compiled;

double StepFlops(const tenon_step& step, DType dtype) {
  double iterations = 1;
  const int n_modes = step.n_batch + step.n_m + step.n_n + step.n_k;
  for (int i = 0; i < n_modes; ++i) iterations *= static_cast<double>(step.modes[i].extent);
  if (step.kind == TENON_STEP_CONTRACT) return iterations * (IsComplex(dtype) ? 8 : 2);
  return step.n_k == 0 ? 0 : iterations * (IsComplex(dtype) ? 2 : 1);
}

void AddWork(const tenon_run_statistics& statistics, const Compiled& compiled,
             const Program& program, std::vector<ContractionReport::Kernel>& kernels) {
  if (statistics.step_runs == nullptr) return;
  const tenon_compiled_info& info = compiled.info();
  for (int i = 0; i < info.n_steps; ++i) {
    const auto kernel = std::find_if(kernels.begin(), kernels.end(), [&](const auto& candidate) {
      return candidate.name == info.kernels[i];
    });
    const double runs = static_cast<double>(statistics.step_runs[i]);
    kernel->runs += statistics.step_runs[i];
    kernel->flops += runs * StepFlops(program.descriptor().steps[i], program.output_spec().dtype);
    if (statistics.step_seconds == nullptr) continue;
    kernel->seconds = kernel->seconds.value_or(0) + statistics.step_seconds[i];
  }
}

std::vector<ContractionReport::Kernel> KernelsOf(const Compiled& compiled, const Program& program) {
  const tenon_compiled_info& info = compiled.info();
  std::map<std::string, ContractionReport::Kernel> by_name;
  for (int i = 0; i < info.n_steps; ++i) {
    ContractionReport::Kernel& kernel = by_name[info.kernels[i]];
    kernel.name = info.kernels[i];
    kernel.kind = program.descriptor().steps[i].kind == TENON_STEP_CONTRACT ? "contract" : "unary";
    ++kernel.steps;
    const std::string refusal = info.refusals == nullptr ? "" : info.refusals[i];
    if (refusal.empty()) continue;
    if (std::find(kernel.refusals.begin(), kernel.refusals.end(), refusal) ==
        kernel.refusals.end()) {
      kernel.refusals.push_back(refusal);
    }
  }
  std::vector<ContractionReport::Kernel> kernels;
  kernels.reserve(by_name.size());
  for (auto& [name, kernel] : by_name) kernels.push_back(std::move(kernel));
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const auto& a, const auto& b) { return a.steps > b.steps; });
  return kernels;
}

}  // namespace tenon::schedule
