#include "server/job_service.h"

#include "server/refusal.h"
#include "tenon/v1/job.grpc.pb.h"

namespace tenon::server {
namespace {

class JobService final : public v1::JobService::CallbackService {
 public:
  explicit JobService(ServerState* state) : state_(state) {}

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext*, const v1::GetJobRequest*,
                                   v1::GetJobResponse*) override {
    return Refuse<grpc::ServerUnaryReactor>("tenon.v1.JobService/GetJob");
  }
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext*, const v1::ListJobsRequest*,
                                     v1::ListJobsResponse*) override {
    return Refuse<grpc::ServerUnaryReactor>("tenon.v1.JobService/ListJobs");
  }
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext*, const v1::CancelJobRequest*,
                                      v1::CancelJobResponse*) override {
    return Refuse<grpc::ServerUnaryReactor>("tenon.v1.JobService/CancelJob");
  }
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext*, const v1::DeleteJobRequest*,
                                      v1::DeleteJobResponse*) override {
    return Refuse<grpc::ServerUnaryReactor>("tenon.v1.JobService/DeleteJob");
  }
  grpc::ServerReadReactor<v1::SubmitContractionRequest>* SubmitContraction(
      grpc::CallbackServerContext*, v1::SubmitContractionResponse*) override {
    return Refuse<grpc::ServerReadReactor<v1::SubmitContractionRequest>>(
        "tenon.v1.JobService/SubmitContraction");
  }
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext*,
                                                           const v1::WatchJobRequest*) override {
    return Refuse<grpc::ServerWriteReactor<v1::WatchJobResponse>>("tenon.v1.JobService/WatchJob");
  }
  grpc::ServerWriteReactor<v1::ReadResultResponse>* ReadResult(
      grpc::CallbackServerContext*, const v1::ReadResultRequest*) override {
    return Refuse<grpc::ServerWriteReactor<v1::ReadResultResponse>>(
        "tenon.v1.JobService/ReadResult");
  }

 private:
  template <typename Reactor>
  Reactor* Refuse(std::string_view name) {
    return new Refusal<Reactor>(state_, Method::kJob, name);
  }

  ServerState* const state_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeJobService(ServerState* state) {
  return std::make_unique<JobService>(state);
}

}  // namespace tenon::server
