// A server of jobs inside the test, that can stop and start again with the same store.

#ifndef TENON_TESTS_SERVER_JOB_TEST_SERVER_H_
#define TENON_TESTS_SERVER_JOB_TEST_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/job_board.h"
#include "server/job_runner.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tests/server/contraction_test_server.h"
#include "tests/support/temporary_folder.h"

namespace tenon::server {

using TestFolder = testing::TemporaryFolder;

struct JobServerOptions {
  JobBoard::Settings settings{.budget_bytes = int64_t{1} << 30};
  JobStore::Options store{};
  // Every finished group is stored.
  JobRunner::Options runner{.store_interval = std::chrono::milliseconds(0),
                            .retry_delay = std::chrono::milliseconds(1)};
  bool run = true;  // jobs; else they stay in the queue until StartRunner
  std::function<JobBoard::TimePoint()> now = std::chrono::system_clock::now;
  int64_t budget_bytes = int64_t{512} << 20;
};

// The caller is told by the metadata "test-caller"; "root" is an administrator.
class JobTestServer {
 public:
  explicit JobTestServer(const std::string& folder, JobServerOptions options = {});
  ~JobTestServer();

  ContractionTestServer& contraction() { return *server_; }
  ServerState& state() { return server_->state(); }
  testing::FakeProvider& fake() { return server_->fake(); }
  v1::JobService::Stub& stub() { return *stub_; }
  JobBoard& board() { return *state().jobs; }
  void StartRunner();
  // As the server does on its way out.
  void StopRunner() { runner_.reset(); }

  // The calls with the status as Summary tells it.
  struct Submitted {
    grpc::Status status;
    v1::SubmitContractionResponse response;
  };
  Submitted Submit(const v1::SubmitContractionHeader& header,
                   const std::vector<std::string>& operands = {}, const std::string& caller = "");
  grpc::Status Get(const std::string& name, v1::Job* job, const std::string& caller = "");
  grpc::Status Cancel(const std::string& name, v1::Job* job = nullptr,
                      const std::string& caller = "");
  grpc::Status Delete(const std::string& name, int64_t* freed = nullptr,
                      const std::string& caller = "");
  grpc::Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response,
                    const std::string& caller = "");
  struct Read {
    grpc::Status status;
    std::optional<v1::ContractResult> result;
    std::string bytes;
    int chunks = 0, checked_chunks = 0;  // that carry the right checksum
    std::string order_error;
  };
  Read ReadResult(const v1::ReadResultRequest& request, const std::string& caller = "");
  Read ReadAll(const std::string& name);
  // Follows the job to its end and returns it.
  v1::Job Wait(const std::string& name);
  // Follows the job until it is in this state (or has ended).
  v1::Job WaitFor(const std::string& name, v1::JobState state);

 private:
  std::unique_ptr<grpc::Service> service_;
  const JobServerOptions options_;
  std::unique_ptr<ContractionTestServer> server_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  std::unique_ptr<JobRunner> runner_;
};

// Holds slices of the fake provider back until it is opened.
class JobGate {
 public:
  // All slices of all blocks but the first `count` wait.
  void CloseAfter(testing::FakeProvider* fake, size_t count);
  void Open();
  // Waits until a slice stands at the gate.
  void WaitUntilReached();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<int64_t, int64_t>> seen_;  // block and slice
  bool open_ = false, reached_ = false;
};

void SetCaller(grpc::ClientContext* context, const std::string& caller);

// A product of two matrices as a job, with the bytes inside the header or without.
v1::SubmitContractionHeader ProductJob(const std::string& request_id, bool with_values = true);
// ij,jk->ik over `j` slices, each a group, with operands inside the header. `k`: columns.
v1::SubmitContractionHeader SlicedJob(const std::string& request_id, const std::string& provider,
                                      int64_t j = 16, int64_t k = 2);

}  // namespace tenon::server

#endif  // TENON_TESTS_SERVER_JOB_TEST_SERVER_H_
