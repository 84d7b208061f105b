#include "server/contraction_estimate.h"

#include <memory>
#include <new>
#include <utility>

#include "backends/core/error.h"
#include "server/bidi_stream.h"
#include "server/contraction_codec.h"
#include "server/contraction_report.h"
#include "server/plan_finder.h"
#include "server/principal.h"
#include "server/status.h"
#include "server/stoppable_call.h"
#include "server/tensor_codec.h"
#include "server/unary.h"

namespace tenon::server {
namespace {

using schedule::ContractionJob;

using Clock = std::chrono::steady_clock;

constexpr char kMethodName[] = "tenon.v1.ContractionService/Estimate";

// Errors that speak of the request itself, whoever would run it.
bool IsFaulty(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kCancelled ||
         GetErrorDetails(status).reason == Reason::kDraining ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

class EstimateCall final : public grpc::ServerUnaryReactor, private StoppableCall {
 public:
  EstimateCall(grpc::CallbackServerContext* context, ServerState* state,
               const v1::EstimateRequest* request, v1::EstimateResponse* response)
      : StoppableCall(&state->watchdog, CallDeadline(*context)),
        state_(state),
        request_(request),
        response_(response),
        record_(&state->metrics, Method::kEstimate, kMethodName) {
    const absl::Status allowed = CheckCaller(context);
    if (!allowed.ok()) {
      End(allowed);
      return;
    }
    owner_ = CallerOf(*context);
    record_.set_caller(owner_);
    // The call is alive until it is finished, so that the task may hold a plain pointer.
    const absl::Status submitted = state_->executor.Submit([this] { Run(); });
    if (!submitted.ok()) End(submitted);
  }

 private:
  void Run() {
    const Clock::time_point begin = Clock::now();
    const auto observe = [this](Phase phase, Clock::duration duration) {
      state_->metrics.Observe(Method::kEstimate, phase,
                              std::chrono::duration<double>(duration).count());
    };
    observe(Phase::kQueue, begin - start_);
    absl::Status status;
    {  // left before the end, which may destroy this
      const WorkWatch::Entry entry(&state_->work_watch, &cancel(), kMethodName, "");
      status = AnswerWithinMemory([this] { return Answer(); });
    }
    observe(Phase::kSetup, Clock::now() - begin);
    End(Outcome(status));
  }

  void End(const absl::Status& status) {
    record_.End(status);
    Finish(ToGrpcStatus(status));
  }

  absl::Status Answer() {
    TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
    TENON_RETURN_IF_ERROR(cancel().Check());
    v1::ContractHeader header = request_->header();
    TENON_ASSIGN_OR_RETURN(ContractCall call,
                           DecodeHeader(&header, *state_, owner_, HeaderUse::kEstimate));
    response_->set_request_id(call.request_id);
    record_.set_request_id(call.request_id);
    const absl::Status planned = FindPlan(&call, state_, &cancel(), nullptr);
    if (!planned.ok() && IsFaulty(planned)) return planned;
    auto job = PrepareCall(call, &cancel(), &state_->programs);
    if (!job.ok()) {
      if (IsFaulty(job.status())) return job.status();
      *response_->mutable_refusal() = ToErrorDetail(job.status());
      ContractCall unlimited = call;
      unlimited.memory_budget_bytes = INT64_MAX;
      unlimited.required_fingerprint.clear();
      job = PrepareCall(unlimited, &cancel(), &state_->programs);
    }
    if (job.ok()) Describe(call, **job);
    return DescribeProviders(call);
  }

  void Describe(const ContractCall& call, const ContractionJob& job) {
    const int64_t staging = StagingBytes(call, job);
    WritePlanSummary(call, job, response_->mutable_plan());
    WriteMemoryPlan(job, staging, response_->mutable_memory());
    response_->set_planned_peak_bytes(response_->memory().total_bytes());
    if (const auto seconds = job.predicted_seconds()) response_->set_estimated_seconds(*seconds);
    WriteTensorSpec(ResultSpec(call, job), response_->mutable_result_spec());
    response_->set_queue_position(static_cast<int32_t>(state_->executor.queued()));
    if (call.detail != v1::REPORT_DETAIL_BRIEF) {
      WriteKernels(job.Report().providers.front(), job.dtype(), response_->mutable_kernels());
    }
    if (response_->has_refusal()) return;
    const auto reserved = state_->budget.Reserve(response_->planned_peak_bytes());
    if (!reserved.ok()) *response_->mutable_refusal() = ToErrorDetail(reserved.status());
  }

  // What it would cost on each provider of the server alone.
  absl::Status DescribeProviders(ContractCall call) {
    call.required_fingerprint.clear();
    for (const ProviderRegistry::Entry& entry : state_->providers.entries()) {
      TENON_RETURN_IF_ERROR(cancel().Check());
      v1::ProviderEstimate* estimate = response_->add_providers();
      estimate->set_provider(entry.name);
      if (!entry.usable()) {
        *estimate->mutable_refusal() = ToErrorDetail(entry.absence);
        continue;
      }
      call.providers = {entry.provider};
      const auto job = PrepareCall(call, &cancel(), &state_->programs);
      if (!job.ok()) {
        *estimate->mutable_refusal() = ToErrorDetail(job.status());
        continue;
      }
      if (const auto seconds = (*job)->predicted_seconds()) {
        estimate->set_estimated_seconds(*seconds);
      }
      estimate->set_planned_peak_bytes((*job)->plan().Total() + StagingBytes(call, **job));
    }
    return absl::OkStatus();
  }

  void OnCancel() override { cancel().Cancel(); }
  void OnDone() override {
    Unwatch();
    delete this;
  }

  ServerState* const state_;
  const v1::EstimateRequest* const request_;
  v1::EstimateResponse* const response_;
  std::string owner_;
  CallRecord record_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

grpc::ServerUnaryReactor* StartEstimate(grpc::CallbackServerContext* context, ServerState* state,
                                        const v1::EstimateRequest* request,
                                        v1::EstimateResponse* response) {
  return new EstimateCall(context, state, request, response);
}

}  // namespace tenon::server
