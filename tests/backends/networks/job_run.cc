#include "tests/backends/networks/job_run.h"

#include <gtest/gtest.h>

#include <utility>

#include "backends/core/error.h"
#include "backends/cpu/provider.h"
#include "oneapi/tbb/global_control.h"

namespace tenon::testing {
namespace {

int32_t DescribeWithMoreWorkers(tenon_provider* provider, tenon_provider_info* info,
                                tenon_status* status) {
  const int32_t code = cpu::CpuProviderApi()->describe(provider, info, status);
  info->max_workers = kMostThreads;
  return code;
}

const tenon_provider_api* ApiWithMoreWorkers() {
  static const tenon_provider_api api = [] {
    tenon_provider_api table = *cpu::CpuProviderApi();
    table.describe = DescribeWithMoreWorkers;
    return table;
  }();
  return &api;
}

}  // namespace

std::shared_ptr<plugin::Provider> CpuProvider() {
  static const tbb::global_control more_threads_than_cores(
      tbb::global_control::max_allowed_parallelism, kMostThreads);
  static const auto& provider = *new std::shared_ptr<plugin::Provider>([] {
    auto created = plugin::Provider::Create(ApiWithMoreWorkers(), "");
    EXPECT_TRUE(created.ok()) << created.status();
    EXPECT_TRUE((*created)->WarmUp().ok());
    return *std::move(created);
  }());
  return provider;
}

bool IsSanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

absl::StatusOr<std::unique_ptr<JobRun>> JobRun::Prepare(
    const schedule::ContractionRequest& request) {
  std::unique_ptr<JobRun> run(new JobRun);
  TENON_ASSIGN_OR_RETURN(
      run->job_, schedule::ContractionJob::Prepare(request, {CpuProvider()}, &run->cancel_));
  run->varying_ = request.varying;
  return run;
}

absl::StatusOr<Tensor> JobRun::Run(const std::vector<Tensor>& operands) {
  std::vector<const void*> pointers, varying;
  for (size_t k = 0; k < operands.size(); ++k) {
    const void* data = operands[k].buffer.data();
    const bool varies = !varying_.empty() && varying_[k];
    pointers.push_back(varies ? nullptr : data);
    if (varies) varying.push_back(data);
  }
  TENON_ASSIGN_OR_RETURN(Tensor result, Tensor::Allocate(job_->program().output_spec()));
  if (!is_started_) TENON_RETURN_IF_ERROR(job_->Start(std::move(pointers)));
  is_started_ = true;
  TENON_RETURN_IF_ERROR(job_->RunSet(varying, result.buffer.data(), nullptr));
  return result;
}

double JobRun::Depth() const {
  const tenon_program& program = job_->program().descriptor();
  auto depth = static_cast<double>(program.slices_per_block);
  for (int i = 0; i < program.n_steps; ++i) {
    const tenon_step& step = program.steps[i];
    double terms = 1;
    for (int k = 0; k < step.n_k; ++k) {
      terms *= static_cast<double>(step.modes[step.n_batch + step.n_m + step.n_n + k].extent);
    }
    depth += terms + 1;
  }
  return depth;
}

}  // namespace tenon::testing
