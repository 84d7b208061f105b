#include "server/contraction_work.h"

#include <chrono>
#include <utility>

#include "server/contraction_report.h"
#include "server/plan_finder.h"

namespace tenon::server {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::Status ContractWork::Plan() {
  TENON_RETURN_IF_ERROR(FindPlan(&call_, state_, cancel_, nullptr));
  TENON_ASSIGN_OR_RETURN(job_, PrepareCall(call_, cancel_, &state_->programs));
  staging_bytes_ = StagingBytes(call_, *job_);
  TENON_ASSIGN_OR_RETURN(reservation_, state_->budget.Reserve(planned_peak_bytes()));
  WritePlanSummary(call_, *job_, &plan_summary_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ContractUpload>> ContractWork::CreateUpload() {
  const Clock::time_point start = Clock::now();
  auto upload = ContractUpload::Create(&call_.operands, state_->limits);
  prepare_seconds_ += SecondsSince(start);
  return upload;
}

// Brings the fixed operands to the compute type and starts the job with them.
absl::Status ContractWork::Start() {
  if (std::exchange(started_, true)) return absl::OkStatus();
  const Clock::time_point start = Clock::now();
  std::vector<const void*> pointers(fixed_.size(), nullptr);
  for (size_t k = 0; k < fixed_.size(); ++k) {
    const OperandSource& source = call_.operands[k];
    if (source.varying) continue;
    const Tensor& arrived = source.stored != nullptr ? source.stored->tensor : fixed_[k];
    if (arrived.spec.dtype == job_->dtype()) {
      pointers[k] = arrived.buffer.data();
      continue;
    }
    TENON_ASSIGN_OR_RETURN(fixed_[k], ConvertTensor(arrived, job_->dtype()));
    pointers[k] = fixed_[k].buffer.data();
  }
  prepare_seconds_ += SecondsSince(start);
  return job_->Start(std::move(pointers));
}

absl::StatusOr<std::vector<const void*>> ContractWork::Varying(const SetInputs& inputs) {
  const Clock::time_point start = Clock::now();
  std::vector<const void*> pointers;
  for (const TensorReceiver& receiver : inputs.operands) {
    if (receiver.spec().dtype == job_->dtype()) {
      pointers.push_back(receiver.tensor().buffer.data());
      continue;
    }
    TENON_ASSIGN_OR_RETURN(Tensor tensor, ConvertTensor(receiver.tensor(), job_->dtype()));
    pointers.push_back(tensor.buffer.data());
    converted_.push_back(std::move(tensor));
  }
  prepare_seconds_ += SecondsSince(start);
  return pointers;
}

absl::StatusOr<std::shared_ptr<Tensor>> ContractWork::TakeResult() {
  {
    std::lock_guard lock(mutex_);
    if (!free_results_.empty()) {
      std::shared_ptr<Tensor> tensor = std::move(free_results_.back());
      free_results_.pop_back();
      return tensor;
    }
  }
  TENON_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(job_->result_spec()));
  return std::make_shared<Tensor>(std::move(tensor));
}

void ContractWork::Recycle(std::shared_ptr<Tensor> tensor) {
  std::lock_guard lock(mutex_);
  if (tensor->spec.dtype == job_->dtype()) free_results_.push_back(std::move(tensor));
}

// Brings a result to the type asked for and describes it.
absl::StatusOr<ContractWork::Result> ContractWork::Finish(const SetInputs& inputs,
                                                          std::shared_ptr<Tensor> tensor) {
  if (call_.result_dtype != job_->dtype()) {
    TENON_ASSIGN_OR_RETURN(Tensor rounded, ConvertTensor(*tensor, call_.result_dtype));
    Recycle(std::exchange(tensor, std::make_shared<Tensor>(std::move(rounded))));
  }
  ++sets_done_;
  Result result{inputs.set, std::move(tensor), job_->log10_scale(), {}};
  result.report.set_set(inputs.set);
  const double shared = call_.varies() ? job_->shared_flops() : 0;
  const double flops = job_->OneSetFlops(job_->program().total_flops());
  result.report.set_flops(MultiplyAdds(flops - shared, job_->dtype()));
  result.report.set_latency_seconds(SecondsSince(inputs.complete_time));
  result.report.set_result_bytes(result.tensor->buffer.size_bytes());
  return result;
}

absl::StatusOr<std::vector<ContractWork::Result>> ContractWork::RunSets(
    std::span<const std::unique_ptr<SetInputs>> inputs,
    const schedule::ContractionJob::ProgressFn& progress) {
  TENON_RETURN_IF_ERROR(Start());
  converted_.clear();
  std::vector<std::shared_ptr<Tensor>> tensors;
  std::vector<schedule::OperandSet> sets;
  for (const auto& set : inputs) {
    TENON_ASSIGN_OR_RETURN(tensors.emplace_back(), TakeResult());
    TENON_ASSIGN_OR_RETURN(std::vector<const void*> varying, Varying(*set));
    sets.push_back({std::move(varying), tensors.back()->buffer.data()});
  }
  const Clock::time_point start = Clock::now();
  TENON_RETURN_IF_ERROR(job_->RunSets(sets, progress));
  const double seconds = SecondsSince(start);
  std::vector<Result> results;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TENON_ASSIGN_OR_RETURN(Result result, Finish(*inputs[i], std::move(tensors[i])));
    result.report.set_sets_together(static_cast<int32_t>(inputs.size()));
    // Host work is complete when the call returns; of a device the set's own part is not known.
    if (inputs.size() == 1 && job_->host_timed()) result.report.set_execution_seconds(seconds);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace tenon::server
