#include "server/contraction_work.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "server/contraction_report.h"
#include "server/plan_finder.h"
#include "server/queue_wait.h"
#include "server/work_metrics.h"

namespace tenon::server {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

absl::StatusOr<Tensor> CopyOf(const SharedSpan& span, const TensorSpec& spec) {
  TENON_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(spec));
  std::memcpy(tensor.buffer.data(), span.data, static_cast<size_t>(span.size_bytes));
  return tensor;
}

}  // namespace

absl::Status ContractWork::Prepare() {
  TENON_ASSIGN_OR_RETURN(job_, PrepareCall(call_, cancel_, &state_->programs));
  TENON_RETURN_IF_ERROR(CheckDeadline());
  const bool timed = call_.detail == v1::REPORT_DETAIL_TIMELINE;
  ObserveGroups(job_.get(), &state_->metrics, timed ? &timeline_ : nullptr);
  staging_bytes_ = StagingBytes(call_, *job_);
  TENON_ASSIGN_OR_RETURN(result_bytes_, CheckedByteCount(ResultSpec(call_, *job_)));
  TENON_ASSIGN_OR_RETURN(result_region_, ResultSpan(call_, result_bytes_));
  if (call_.detail == v1::REPORT_DETAIL_BRIEF) {
    WritePlanFigures(call_, *job_, &plan_summary_);
  } else {
    WritePlanSummary(call_, *job_, &plan_summary_);
  }
  return absl::OkStatus();
}

std::optional<double> ContractWork::SecondsIfPlanned() const {
  if (!NeedsNoPlan(call_)) return std::nullopt;
  return SecondsIfPrepared(call_, &state_->programs);
}

// Whether the work can end in time, by a prediction that is to be trusted: that of a whole set on
// one provider which has measured itself. It was within 1.4 of what was measured, 1.13 in the mean,
// for work that is not very short; of several providers, and of a part of the groups, nobody
// predicts the seconds; and the time of what waits before is not counted. So what is refused would
// have failed.
absl::Status ContractWork::CheckDeadline() const {
  constexpr double kVeryShort = 0.1;
  const auto deadline = cancel_->deadline();
  const auto seconds = job_->predicted_seconds();
  const bool whole = call_.request.last_group == 0;
  const bool measured = call_.providers.front()->calibration() != nullptr;  // else it guesses
  if (!deadline.has_value() || !seconds.has_value() || call_.providers.size() != 1 || !whole ||
      !measured) {
    return absl::OkStatus();
  }
  const double sets =
      call_.varies() ? static_cast<double>(std::max<int64_t>(1, call_.request.expected_sets)) : 1;
  if (*seconds * sets < kVeryShort) return absl::OkStatus();
  return CheckFeasible(*seconds * sets,
                       std::chrono::duration<double>(*deadline - Clock::now()).count());
}

absl::StatusOr<std::unique_ptr<ContractUpload>> ContractWork::CreateUpload() {
  const Clock::time_point start = Clock::now();
  auto upload = ContractUpload::Create(&call_.operands, state_->limits,
                                       {call_.pool.get(), result_bytes_, result_region_});
  prepare_seconds_ += SecondsSince(start);
  return upload;
}

// Brings the fixed operands to the compute type and starts the job with them.
absl::Status ContractWork::Start() {
  if (std::exchange(started_, true)) return absl::OkStatus();
  const Clock::time_point start = Clock::now();
  timeline_.Start(start);
  std::vector<const void*> pointers(fixed_.size(), nullptr);
  for (size_t k = 0; k < fixed_.size(); ++k) {
    const OperandSource& source = call_.operands[k];
    if (source.varying) continue;
    if (source.shared.has_value()) {
      if (source.spec.dtype == job_->dtype()) {
        pointers[k] = source.shared->data;
        continue;
      }
      TENON_ASSIGN_OR_RETURN(fixed_[k], CopyOf(*source.shared, source.spec));
    }
    const Tensor& arrived = source.stored != nullptr ? source.stored->tensor : fixed_[k];
    if (arrived.spec.dtype == job_->dtype()) {
      pointers[k] = arrived.buffer.data();
      continue;
    }
    TENON_ASSIGN_OR_RETURN(fixed_[k], ConvertTensor(arrived, job_->dtype()));
    pointers[k] = fixed_[k].buffer.data();
  }
  prepare_seconds_ += SecondsSince(start);
  const absl::Status status = job_->Start(std::move(pointers));
  // Of several providers it is not known which one failed to begin.
  if (call_.providers.size() == 1) {
    RecordFault(call_.providers.front()->name(), status, &state_->metrics);
  }
  return status;
}

absl::StatusOr<std::vector<const void*>> ContractWork::Varying(SetInputs* inputs) {
  const Clock::time_point start = Clock::now();
  std::vector<const void*> pointers;
  for (TensorReceiver& receiver : inputs->operands) {
    if (receiver.spec().dtype == job_->dtype()) {
      pointers.push_back(receiver.data());
      continue;
    }
    TENON_ASSIGN_OR_RETURN(Tensor tensor, ConvertTensor(receiver.Private(), job_->dtype()));
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
  if (tensor != nullptr && tensor->spec.dtype == job_->dtype())
    free_results_.push_back(std::move(tensor));
}

// Brings a result to the type and the place asked for and describes it. `tensor` is null when it
// was written in place.
absl::StatusOr<ContractWork::Result> ContractWork::Finish(const SetInputs& inputs,
                                                          std::shared_ptr<Tensor> tensor) {
  if (tensor != nullptr && call_.result_dtype != job_->dtype()) {
    TENON_ASSIGN_OR_RETURN(Tensor rounded, ConvertTensor(*tensor, call_.result_dtype));
    Recycle(std::exchange(tensor, std::make_shared<Tensor>(std::move(rounded))));
  }
  if (tensor != nullptr && inputs.result.has_value()) {
    std::memcpy(inputs.result->data, tensor->buffer.data(), static_cast<size_t>(result_bytes_));
    Recycle(std::exchange(tensor, nullptr));
  }
  ++sets_done_;
  Result result{inputs.set,    ResultSpec(call_, *job_), std::move(tensor),
                inputs.result, job_->log10_scale(),      {}};
  result.report.set_set(inputs.set);
  const double shared = call_.varies() ? job_->shared_flops() : 0;
  const double flops = job_->OneSetFlops(job_->program().total_flops());
  result.report.set_flops(MultiplyAdds(flops - shared, job_->dtype()));
  result.report.set_latency_seconds(SecondsSince(inputs.complete_time));
  result.report.set_result_bytes(result.size_bytes());
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
    std::shared_ptr<Tensor>& tensor = tensors.emplace_back();
    std::byte* place = nullptr;
    if (WritesInPlace(*set)) {
      place = set->result->data;
    } else {
      TENON_ASSIGN_OR_RETURN(tensor, TakeResult());
      place = tensor->buffer.data();
    }
    TENON_ASSIGN_OR_RETURN(std::vector<const void*> varying, Varying(set.get()));
    sets.push_back({std::move(varying), place});
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
