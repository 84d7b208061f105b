#include "server/plan_call.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "backends/contraction/path.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "server/bidi_stream.h"
#include "server/contraction_checks.h"
#include "server/contraction_codec.h"
#include "server/contraction_report.h"
#include "server/plan_finder.h"
#include "server/principal.h"
#include "server/queue_wait.h"
#include "server/status.h"
#include "server/stoppable_call.h"
#include "server/tensor_codec.h"
#include "server/ticker.h"
#include "server/unary.h"

namespace tenon::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMethodName[] = "tenon.v1.ContractionService/PlanContraction";

constexpr size_t kLoggedIdBytes = 1024;  // of an id that is refused

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The request as a contraction's header.
v1::ContractHeader HeaderOf(const v1::PlanContractionRequest& request) {
  v1::ContractHeader header;
  header.set_request_id(request.request_id());
  if (request.has_einsum()) *header.mutable_einsum() = request.einsum();
  if (request.has_network()) *header.mutable_network() = request.network();
  if (request.has_search()) *header.mutable_search() = request.search();
  if (request.has_execution()) *header.mutable_execution() = request.execution();
  return header;
}

// Owns itself until the call is over; tasks hold it, too. First it takes its turn as any request,
// which answers what is known, and then, where that takes a search, as a search.
class PlanCall final : public grpc::ServerWriteReactor<v1::PlanContractionResponse>,
                       public std::enable_shared_from_this<PlanCall>,
                       private StoppableCall {
 public:
  PlanCall(grpc::CallbackServerContext* context, ServerState* state,
           const v1::PlanContractionRequest* request)
      : StoppableCall(&state->watchdog, CallDeadline(*context)),
        context_(context),
        state_(state),
        request_(*request),
        record_(&state->metrics, Method::kPlanContraction, kMethodName),
        wait_(state, cancel().deadline()) {
    record_.set_request_id(Utf8Prefix(request_.request_id(), kLoggedIdBytes));
    wait_.SetPriority(PriorityOf(request_.execution().priority()));
    // Another value is refused later.
    if (request_.execution().max_queue_seconds() > 0) {
      wait_.SetLimit(request_.execution().max_queue_seconds(), "execution.max_queue_seconds");
    }
    allowed_ = CheckCaller(context);
    if (allowed_.ok()) owner_ = CallerOf(*context);
    record_.set_caller(owner_);
  }

  // Once, right after it was made.
  void Begin() {
    self_ = shared_from_this();
    if (!allowed_.ok()) return End(allowed_);
    const double interval = request_.execution().progress_interval_seconds();
    // Another value is refused later.
    if (interval > 0) ticker_ = std::make_unique<Ticker>(interval, [this] { SendProgress(); });
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
      const WorkWatch::Entry entry(
          &self->state_->work_watch, &self->cancel(), kMethodName, "planning",
          std::string(Utf8Prefix(self->request_.request_id(), kLoggedIdBytes)));
      absl::Status status;
      bool done = true;
      status = AnswerWithinMemory([&]() -> absl::Status {
        TENON_RETURN_IF_ERROR(self->cancel().Check());
        TENON_ASSIGN_OR_RETURN(done, work());
        return absl::OkStatus();
      });
      if (!status.ok() || done) self->EndAs(status);
    };
  }
  std::function<void(const absl::Status&)> Refused() {
    return [self = shared_from_this()](const absl::Status& why) { self->EndAs(why); };
  }
  void EndAs(const absl::Status& status) {
    End(Outcome(WithoutHeader(status)));  // this request has no header
  }

  // Reads the request and answers it if no search is needed.
  absl::StatusOr<bool> Prepare() {
    TENON_RETURN_IF_ERROR(state_->lifecycle.CheckAdmitting());
    if (!v1::PathFormat_IsValid(request_.path_format())) {
      return OutOfRange("path_format", "PATH_FORMAT_SSA or PATH_FORMAT_LINEAR",
                        StrCat(static_cast<int>(request_.path_format())));
    }
    v1::ContractHeader header = HeaderOf(request_);
    TENON_ASSIGN_OR_RETURN(const DType dtype, DefaultDType());
    TENON_ASSIGN_OR_RETURN(call_,
                           DecodeHeader(&header, *state_, owner_, HeaderUse::kEstimate, dtype));
    record_.set_request_id(call_.request_id);
    if (call_.question.has_value()) call_.question->options.trials_made = &trials_;
    if (call_.question.has_value() && call_.question->provider != nullptr) {
      call_.providers = {call_.question->provider};
    }
    // A plan may be for another machine.
    if (call_.budget_is_the_servers) call_.memory_budget_bytes = INT64_MAX;
    finder_ = std::make_unique<PlanFinder>(
        &call_, state_, &cancel(),
        [this](const planner::FoundPlan& found, const ContractCall& with) {
          SendImprovement(found, with);
        });
    const Clock::time_point begin = Clock::now();
    TENON_ASSIGN_OR_RETURN(const bool found, finder_->FindAtOnce());
    if (found) {
      TENON_RETURN_IF_ERROR(Answer(begin));
      return true;
    }
    QueueSearch(state_, &wait_, &cancel(), finder_->search_need(),
                Step([this] { return Search(); }), Refused());
    return false;
  }

  absl::StatusOr<bool> Search() {
    ran_ = true;
    const Clock::time_point begin = Clock::now();
    TENON_RETURN_IF_ERROR(finder_->Search());
    TENON_RETURN_IF_ERROR(Answer(begin));
    return true;
  }

  absl::Status Answer(Clock::time_point begin) {
    wait_.Admitted();
    ran_ = true;
    state_->metrics.Observe(Method::kPlanContraction, Phase::kQueue, wait_.seconds());
    v1::PlanContractionResponse answer;
    v1::PlanResult* plan = answer.mutable_plan();
    plan->set_request_id(call_.request_id);
    TENON_RETURN_IF_ERROR(Describe(call_, plan));
    if (request_.path_format() == v1::PATH_FORMAT_LINEAR) {
      TENON_RETURN_IF_ERROR(ToLinear(plan->mutable_plan()->mutable_path()));
    }
    plan->mutable_timing()->set_queue_seconds(wait_.seconds());
    plan->mutable_timing()->set_planning_seconds(SecondsSince(begin));
    plan->mutable_timing()->set_request_seconds(SecondsSince(start_));
    Send(std::move(answer), /*replaces=*/false);
    return absl::OkStatus();
  }

  // Networks that no machine could run have plans, too, but no program.
  absl::Status Describe(const ContractCall& call, v1::PlanResult* plan) {
    const auto job = PrepareCall(call, &cancel(), &state_->programs);
    TENON_RETURN_IF_ERROR(cancel().Check());
    if (!job.ok()) {
      // What is asked of a program is not met by none.
      const bool asks = !call.required_fingerprint.empty() ||
                        request_.execution().has_slice_groups() ||
                        request_.execution().has_memory_budget_bytes();
      if (asks) return job.status();
      *plan->mutable_refusal() = ToErrorDetail(WithoutHeader(job.status()));
      TENON_RETURN_IF_ERROR(WritePlanWithoutProgram(call, plan->mutable_plan()));
      return KeepEnginesPlan(call, plan->mutable_plan());
    }
    WritePlanSummary(call, **job, plan->mutable_plan());
    TENON_RETURN_IF_ERROR(KeepEnginesPlan(call, plan->mutable_plan()));
    WriteMemoryPlan(**job, StagingBytes(call, **job), plan->mutable_memory());
    plan->set_planned_peak_bytes(plan->memory().total_bytes());
    const absl::Status fits = state_->budget.CheckFits(plan->planned_peak_bytes());
    if (!fits.ok()) *plan->mutable_refusal() = ToErrorDetail(fits);
    return absl::OkStatus();
  }

  // What no search has kept gets a name, too.
  absl::Status KeepEnginesPlan(const ContractCall& call, v1::PlanSummary* plan) const {
    if (!plan->plan_id().empty()) return absl::OkStatus();
    TENON_ASSIGN_OR_RETURN(const contraction::Expression expression, ExpressionOf(call));
    planner::Plan kept;
    TENON_ASSIGN_OR_RETURN(kept.path,
                           contraction::MakePath(StepsOf(plan->path()), call.operands.size()));
    TENON_ASSIGN_OR_RETURN(kept.sliced,
                           contraction::MakeSliced(expression, {plan->sliced_indices().begin(),
                                                                plan->sliced_indices().end()}));
    plan->set_plan_id(
        state_->plans.Put(call.owner, NetworkKey(expression), std::move(kept), plan->provenance())
            ->id);
    return absl::OkStatus();
  }

  static PathSteps StepsOf(const v1::ContractionPath& path) {
    PathSteps ssa;
    for (const v1::PathStep& step : path.steps()) {
      ssa.steps.emplace_back(step.operands().begin(), step.operands().end());
    }
    return ssa;
  }

  static absl::Status ToLinear(v1::ContractionPath* path) {
    TENON_ASSIGN_OR_RETURN(const contraction::Path pairs,
                           contraction::MakePath(StepsOf(*path), path->steps_size() + 1));
    path->set_format(v1::PATH_FORMAT_LINEAR);
    path->clear_steps();
    for (const auto& step : contraction::MakeSteps(pairs, PathSteps::Format::kLinear).steps) {
      path->add_steps()->mutable_operands()->Add(step.begin(), step.end());
    }
    return absl::OkStatus();
  }

  // Of operands without a spec.
  absl::StatusOr<DType> DefaultDType() const {
    if (request_.default_dtype() == v1::DATA_TYPE_UNSPECIFIED) return DType::kComplex128;
    const auto dtype = static_cast<DType>(request_.default_dtype());
    if (v1::DataType_IsValid(request_.default_dtype()) && IsContractionDType(dtype)) return dtype;
    return Error(Reason::kUnsupportedDtype, "expected is float32, float64, complex64 or complex128")
        .Field("default_dtype");
  }

  void SendImprovement(const planner::FoundPlan& found, const ContractCall& with) {
    v1::PlanContractionResponse frame;
    v1::PlanImprovement* out = frame.mutable_improvement();
    out->set_elapsed_seconds(found.seconds);
    out->set_trials(found.trials);
    if (!found.methods.empty()) out->set_method(ToWire(found.methods.back()));
    if (!WritePlanCosts(with, found.predicted_seconds, out).ok())
      return;  // the search checks what it makes
    Send(std::move(frame), /*replaces=*/true);
  }

  // Not while a client that reads slowly has not taken what came before.
  void SendProgress() {
    std::lock_guard lock(mutex_);
    if (writing_ || !waiting_.empty()) return;
    v1::PlanProgress* out = waiting_.emplace_back().mutable_progress();
    out->set_elapsed_seconds(SecondsSince(start_));
    out->set_trials(trials_);
    out->set_queue_position(static_cast<int32_t>(wait_.position()));
    WriteNext();
  }

  // With `replaces`, an improvement that is still waiting is overtaken.
  void Send(v1::PlanContractionResponse frame, bool replaces) {
    std::lock_guard lock(mutex_);
    if (replaces && !waiting_.empty()) waiting_.pop_back();
    waiting_.push_back(std::move(frame));
    WriteNext();
  }

  void End(const absl::Status& status) {
    std::unique_ptr<Ticker> ticker;
    std::lock_guard lock(mutex_);
    if (ending_.has_value()) return;
    ticker = std::move(ticker_);
    ending_ = status;
    if (!status.ok()) waiting_.clear();
    WriteNext();
  }

  // With the lock held.
  void WriteNext() {
    if (writing_ || finished_) return;
    if (!waiting_.empty()) {
      writing_ = true;
      write_started_ = std::chrono::steady_clock::now();
      current_ = std::move(waiting_.front());
      waiting_.pop_front();
      StartWrite(&current_);
    } else if (ending_.has_value()) {
      finished_ = true;
      record_.End(*ending_, {{"ran", ran_.load()}});
      Finish(ToGrpcStatus(*ending_));
    }
  }

  void OnWriteDone(bool ok) override {
    if (!ok) cancel().Cancel();
    std::lock_guard lock(mutex_);
    writing_ = false;
    write_started_.reset();
    if (!ok) waiting_.clear();
    WriteNext();
  }
  bool WriteStalledSince(std::chrono::steady_clock::time_point limit) override {
    std::lock_guard lock(mutex_);
    return write_started_.has_value() && *write_started_ < limit;
  }
  // The search stops, too: nobody takes its plan.
  void CutSlowReader() override {
    const absl::Status slow = Error(Reason::kSlowReader, "the client did not read for too long");
    cancel().Cancel(Reason::kSlowReader);
    End(slow);
    {
      std::lock_guard lock(mutex_);
      if (ending_->ok()) ending_ = slow;  // the end was there, but not taken
      waiting_.clear();
    }
    CancelCall(context_, slow);
  }
  void OnCancel() override {
    cancel().Cancel();
    if (wait_.Leave()) EndAs(cancel().Check());
  }
  void OnDone() override {
    Unwatch();
    self_.reset();
  }

  grpc::CallbackServerContext* const context_;
  ServerState* const state_;
  const v1::PlanContractionRequest request_;
  std::string owner_;
  const Clock::time_point start_ = Clock::now();
  CallRecord record_;
  QueueWait wait_;
  absl::Status allowed_;
  std::atomic<bool> ran_ = false;
  ContractCall call_;
  std::unique_ptr<PlanFinder> finder_;
  std::atomic<int64_t> trials_ = 0;
  std::unique_ptr<Ticker> ticker_;
  std::mutex mutex_;
  std::deque<v1::PlanContractionResponse> waiting_;
  v1::PlanContractionResponse current_;
  bool writing_ = false, finished_ = false;
  std::optional<absl::Status> ending_;
  std::optional<std::chrono::steady_clock::time_point> write_started_;
  std::shared_ptr<PlanCall> self_;
};

}  // namespace

grpc::ServerWriteReactor<v1::PlanContractionResponse>* StartPlanContraction(
    grpc::CallbackServerContext* context, ServerState* state,
    const v1::PlanContractionRequest* request) {
  const auto call = std::make_shared<PlanCall>(context, state, request);
  call->Begin();  // from here on it owns itself
  return call.get();
}

}  // namespace tenon::server
