#include "server/contraction_estimate.h"

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "backends/core/error.h"
#include "server/bidi_stream.h"
#include "server/contraction_codec.h"
#include "server/contraction_report.h"
#include "server/plan_finder.h"
#include "server/principal.h"
#include "server/queue_wait.h"
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

// Owns itself until the call is over; tasks hold it, too. First it takes its turn as any request,
// then, where the plan takes a search, as a search.
class EstimateCall final : public grpc::ServerUnaryReactor,
                           public std::enable_shared_from_this<EstimateCall>,
                           private StoppableCall {
 public:
  EstimateCall(grpc::CallbackServerContext* context, ServerState* state,
               const v1::EstimateRequest* request, v1::EstimateResponse* response)
      : StoppableCall(&state->watchdog, CallDeadline(*context)),
        state_(state),
        request_(request),
        response_(response),
        record_(&state->metrics, Method::kEstimate, kMethodName),
        wait_(state, cancel().deadline()),
        allowed_(CheckCaller(context)) {
    if (allowed_.ok()) owner_ = CallerOf(*context);
    record_.set_caller(owner_);
    const v1::ContractExecution& execution = request_->header().execution();
    wait_.SetPriority(PriorityOf(execution.priority()));
    // Another value is refused later.
    if (execution.max_queue_seconds() > 0) {
      wait_.SetLimit(execution.max_queue_seconds(), "header.execution.max_queue_seconds");
    }
  }

  // Once, right after it was made.
  void Begin() {
    self_ = shared_from_this();
    if (!allowed_.ok()) return End(allowed_);
    const auto refused = Refused();
    const absl::Status submitted =
        wait_.ForSlot(&state_->executor, Step([this] { return Prepare(); }), refused);
    if (!submitted.ok()) refused(submitted);
  }

 private:
  // A task that does `work`, which is StatusOr<bool>: whether the call is done.
  template <typename Work>
  std::function<void()> Step(Work work) {
    return [self = shared_from_this(), work = std::move(work)] {
      const WorkWatch::Entry entry(&self->state_->work_watch, &self->cancel(), kMethodName,
                                   "planning", "");
      bool done = true;
      const absl::Status status = AnswerWithinMemory([&]() -> absl::Status {
        TENON_RETURN_IF_ERROR(self->cancel().Check());
        TENON_ASSIGN_OR_RETURN(done, work());
        return absl::OkStatus();
      });
      if (!status.ok() || done) self->End(self->Outcome(status));
    };
  }
  std::function<void(const absl::Status&)> Refused() {
    return [self = shared_from_this()](const absl::Status& why) { self->End(self->Outcome(why)); };
  }

  void End(const absl::Status& status) {
    record_.End(status, {{"ran", ran_.load()}});
    Finish(ToGrpcStatus(status));
  }

  // Reads the request and answers it if no search is needed.
  absl::StatusOr<bool> Prepare() {
    TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
    v1::ContractHeader header = request_->header();
    TENON_ASSIGN_OR_RETURN(call_, DecodeHeader(&header, *state_, owner_, HeaderUse::kEstimate));
    response_->set_request_id(call_.request_id);
    record_.set_request_id(call_.request_id);
    finder_ = std::make_unique<PlanFinder>(&call_, state_, &cancel(), nullptr);
    const Clock::time_point begin = Clock::now();
    const absl::StatusOr<bool> found = finder_->FindAtOnce();
    if (found.ok() && !*found) {
      QueueSearch(state_, &wait_, &cancel(), finder_->search_need(),
                  Step([this]() -> absl::StatusOr<bool> {
                    const Clock::time_point search_begin = Clock::now();
                    TENON_RETURN_IF_ERROR(Answer(finder_->Search(), search_begin));
                    return true;
                  }),
                  Refused());
      return false;
    }
    TENON_RETURN_IF_ERROR(Answer(found.status(), begin));
    return true;
  }

  // `planned`: how the search for a plan ended, which began at `begin`.
  absl::Status Answer(const absl::Status& planned, Clock::time_point begin) {
    wait_.Admitted();
    ran_ = true;
    state_->metrics.Observe(Method::kEstimate, Phase::kQueue, wait_.seconds());
    const absl::Status answered = Describe(planned);
    const std::chrono::duration<double> setup = Clock::now() - begin;
    state_->metrics.Observe(Method::kEstimate, Phase::kSetup, setup.count());
    return answered;
  }

  absl::Status Describe(const absl::Status& planned) {
    if (!planned.ok() && IsFaulty(planned)) return planned;
    auto job = PrepareCall(call_, &cancel(), &state_->programs);
    if (!job.ok()) {
      if (IsFaulty(job.status())) return job.status();
      *response_->mutable_refusal() = ToErrorDetail(job.status());
      ContractCall unlimited = call_;
      unlimited.memory_budget_bytes = INT64_MAX;
      unlimited.required_fingerprint.clear();
      job = PrepareCall(unlimited, &cancel(), &state_->programs);
    }
    if (job.ok()) Describe(call_, **job);
    return DescribeProviders(call_);
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

  void OnCancel() override {
    cancel().Cancel();
    if (wait_.Leave()) End(Outcome(cancel().Check()));
  }
  void OnDone() override {
    Unwatch();
    self_.reset();
  }

  ServerState* const state_;
  const v1::EstimateRequest* const request_;
  v1::EstimateResponse* const response_;
  std::string owner_;
  CallRecord record_;
  QueueWait wait_;
  const absl::Status allowed_;
  std::atomic<bool> ran_ = false;
  ContractCall call_;
  std::unique_ptr<PlanFinder> finder_;
  std::shared_ptr<EstimateCall> self_;
};

}  // namespace

grpc::ServerUnaryReactor* StartEstimate(grpc::CallbackServerContext* context, ServerState* state,
                                        const v1::EstimateRequest* request,
                                        v1::EstimateResponse* response) {
  const auto call = std::make_shared<EstimateCall>(context, state, request, response);
  call->Begin();  // from here on it owns itself
  return call.get();
}

}  // namespace tenon::server
