#include "server/job_service.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "backends/core/error.h"
#include "server/frames.h"
#include "server/job_board.h"
#include "server/job_streams.h"
#include "server/job_submission.h"
#include "server/refusal.h"
#include "tenon/v1/job.grpc.pb.h"

namespace tenon::server {
namespace {

constexpr int32_t kDefaultPageSize = 100;
constexpr int32_t kMaxPageSize = 1000;
constexpr size_t kMaxPageBytes = size_t{2} << 20;  // clients take 4 MiB; a page may be shorter
constexpr char kTokenPrefix[] = "v1.jobs.";

// A page ends at a job; the next one begins after it, whatever has come or gone meanwhile.
absl::StatusOr<int64_t> ReadPageToken(const std::string& token) {
  if (token.empty()) return 0;
  absl::string_view rest(token);
  int64_t number = 0;
  if (absl::ConsumePrefix(&rest, kTokenPrefix) && absl::SimpleAtoi(rest, &number) && number > 0) {
    return number;
  }
  return Error(Reason::kBadParameter, "the page token is none of this list").Field("page_token");
}

absl::Status WritePage(JobBoard* board, const std::optional<std::string>& owner,
                       const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return Error(Reason::kBadParameter, StrCat("the page size is ", request.page_size(), "; 1 to ",
                                               kMaxPageSize, " is offered"))
        .Field("page_size")
        .Meta("maximum", kMaxPageSize)
        .Meta("actual", request.page_size());
  }
  std::vector<bool> wanted(v1::JobState_ARRAYSIZE, request.states().empty());
  for (int i = 0; i < request.states_size(); ++i) {
    const int state = request.states(i);
    if (!v1::JobState_IsValid(state)) {
      return Error(Reason::kBadParameter, StrCat("the state ", state, " is unknown"))
          .Field(StrCat("states[", i, "]"))
          .Meta("value", state);
    }
    // Unspecified is any.
    if (state == v1::JOB_STATE_UNSPECIFIED) wanted.assign(wanted.size(), true);
    wanted[static_cast<size_t>(state)] = true;
  }
  TENON_ASSIGN_OR_RETURN(const int64_t before, ReadPageToken(request.page_token()));
  const int32_t size = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  int64_t last = 0;
  size_t bytes = 0;
  board->List(owner, before, [&](int64_t number, v1::Job job) {
    if (!wanted[static_cast<size_t>(job.state())]) return true;
    if (response->jobs_size() == size || bytes > kMaxPageBytes) {
      response->set_next_page_token(StrCat(kTokenPrefix, last));
      return false;
    }
    last = number;
    bytes += job.ByteSizeLong();
    *response->add_jobs() = std::move(job);
    return true;
  });
  return absl::OkStatus();
}

// Client streams come as bytes: see JobSubmission.
using Grpc = v1::JobService;
using Unary = Grpc::WithCallbackMethod_GetJob<Grpc::WithCallbackMethod_ListJobs<
    Grpc::WithCallbackMethod_CancelJob<Grpc::WithCallbackMethod_DeleteJob<Grpc::Service>>>>;
using Methods = Grpc::WithRawCallbackMethod_SubmitContraction<
    Grpc::WithCallbackMethod_WatchJob<Grpc::WithCallbackMethod_ReadResult<Unary>>>;

class JobService final : public Methods {
 public:
  JobService(ServerState* state, std::function<Principal(const grpc::ServerContextBase&)> identify)
      : state_(state), identify_(std::move(identify)) {}

  grpc::ServerReadReactor<grpc::ByteBuffer>* SubmitContraction(
      grpc::CallbackServerContext* context, grpc::ByteBuffer* response) override {
    if (auto* refused = RefusedCall<grpc::ServerReadReactor<grpc::ByteBuffer>>(
            context, "tenon.v1.JobService/SubmitContraction")) {
      return refused;
    }
    return new JobSubmission(context, state_, identify_(*context).name, response);
  }

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override {
    constexpr char kName[] = "tenon.v1.JobService/GetJob";
    if (state_->jobs == nullptr) return NotOffered<grpc::ServerUnaryReactor>(kName);
    return AnswerNow(context, &state_->metrics, Method::kJob, kName, [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(*response->mutable_job(),
                             state_->jobs->Get(OwnerFor(*context), request->name()));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    constexpr char kName[] = "tenon.v1.JobService/ListJobs";
    if (state_->jobs == nullptr) return NotOffered<grpc::ServerUnaryReactor>(kName);
    return AnswerNow(context, &state_->metrics, Method::kJob, kName, [&]() -> absl::Status {
      const Principal caller = identify_(*context);
      if (request->all_owners() && !caller.administrator) {
        return Error(Reason::kPermissionDenied, "only administrators list the jobs of all owners")
            .Field("all_owners");
      }
      const auto owner = request->all_owners() ? std::nullopt : std::optional(caller.name);
      return WritePage(state_->jobs.get(), owner, *request, response);
    });
  }

  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override {
    return AnswerOnceStored(context, "tenon.v1.JobService/CancelJob", [=, this]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(*response->mutable_job(),
                             state_->jobs->Cancel(OwnerFor(*context), request->name()));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override {
    return AnswerOnceStored(context, "tenon.v1.JobService/DeleteJob", [=, this]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const int64_t bytes,
                             state_->jobs->Delete(OwnerFor(*context), request->name()));
      response->set_freed_bytes(bytes);
      return absl::OkStatus();
    });
  }

  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override {
    if (auto* refused = RefusedCall<grpc::ServerWriteReactor<v1::WatchJobResponse>>(
            context, "tenon.v1.JobService/WatchJob")) {
      return refused;
    }
    return StartWatchJob(context, state_, identify_(*context).name, *request);
  }

  grpc::ServerWriteReactor<v1::ReadResultResponse>* ReadResult(
      grpc::CallbackServerContext* context, const v1::ReadResultRequest* request) override {
    if (auto* refused = RefusedCall<grpc::ServerWriteReactor<v1::ReadResultResponse>>(
            context, "tenon.v1.JobService/ReadResult")) {
      return refused;
    }
    return StartReadResult(context, state_, identify_(*context).name, *request);
  }

 private:
  // Whose jobs the caller sees, ends and puts out; absent: everybody's. Results are their owner's.
  std::optional<std::string> OwnerFor(const grpc::ServerContextBase& context) const {
    Principal caller = identify_(context);
    if (caller.administrator) return std::nullopt;
    return std::move(caller.name);
  }
  // A server without a --state_dir.
  template <typename Reactor>
  Reactor* NotOffered(std::string_view name) {
    return new Refusal<Reactor>(state_, Method::kJob, name);
  }

  // Null for a call that may go on.
  template <typename Reactor>
  Reactor* RefusedCall(grpc::CallbackServerContext* context, std::string_view name) {
    if (state_->jobs == nullptr) return NotOffered<Reactor>(name);
    const absl::Status allowed = CheckCaller(context);
    if (allowed.ok()) return nullptr;
    return new Refusal<Reactor>(state_, Method::kJob, name, allowed);
  }

  // Runs `answer`, which writes a little, where waiting for a disk holds up no call that needs
  // none.
  grpc::ServerUnaryReactor* AnswerOnceStored(grpc::CallbackServerContext* context,
                                             std::string_view name,
                                             std::function<absl::Status()> answer) {
    if (auto* refused = RefusedCall<grpc::ServerUnaryReactor>(context, name)) return refused;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    auto record = std::make_shared<CallRecord>(&state_->metrics, Method::kJob, name);
    state_->storing.Continue([reactor, record, answer = std::move(answer)] {
      const absl::Status status = AnswerWithinMemory(answer);
      record->End(status);
      reactor->Finish(ToGrpcStatus(status));
    });
    return reactor;
  }

  ServerState* const state_;
  const std::function<Principal(const grpc::ServerContextBase&)> identify_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeJobService(
    ServerState* state, std::function<Principal(const grpc::ServerContextBase&)> identify) {
  return std::make_unique<JobService>(state, std::move(identify));
}

}  // namespace tenon::server
