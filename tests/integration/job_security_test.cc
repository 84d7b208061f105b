// Jobs and principals: a whole server with tokens and a job store.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/v1/job.grpc.pb.h"
#include "tests/integration/caller.h"
#include "tests/support/fake_provider.h"
#include "tests/support/temporary_folder.h"

namespace tenon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What one caller does with jobs.
class JobCaller {
 public:
  explicit JobCaller(const Caller& caller)
      : caller_(caller), stub_(v1::JobService::NewStub(caller.channel())) {}

  v1::SubmitContractionResponse Submit(const std::string& provider,
                                       const std::string& request_id = "") const {
    v1::SubmitContractionRequest frame;
    v1::ContractHeader* header = frame.mutable_header()->mutable_contraction();
    header->set_request_id(request_id);
    header->mutable_execution()->add_providers(provider);
    header->mutable_einsum()->set_subscripts("ab->a");
    v1::Operand* operand = header->mutable_einsum()->add_operands();
    operand->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
    for (int i = 0; i < 2; ++i) operand->mutable_spec()->add_shape(2);
    operand->set_inline_data(Doubles({1, 2, 3, 4}));
    v1::SubmitContractionResponse response;
    const auto context = caller_.Context();
    const auto writer = stub_->SubmitContraction(context.get(), &response);
    writer->Write(frame);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::JobState State(const std::string& name) const {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::GetJobResponse response;
    EXPECT_TRUE(stub_->GetJob(caller_.Context().get(), request, &response).ok());
    return response.job().state();
  }
  std::string Cancel(const std::string& name) const {
    return Call<v1::CancelJobRequest, v1::CancelJobResponse>(&v1::JobService::Stub::CancelJob,
                                                             name);
  }
  std::string Delete(const std::string& name) const {
    return Call<v1::DeleteJobRequest, v1::DeleteJobResponse>(&v1::JobService::Stub::DeleteJob,
                                                             name);
  }
  std::string Get(const std::string& name) const {
    return Call<v1::GetJobRequest, v1::GetJobResponse>(&v1::JobService::Stub::GetJob, name);
  }
  // To the end of the job.
  std::string Watch(const std::string& name) const {
    return Follow<v1::WatchJobRequest, v1::WatchJobResponse>(&v1::JobService::Stub::WatchJob, name);
  }
  std::string Read(const std::string& name) const {
    return Follow<v1::ReadResultRequest, v1::ReadResultResponse>(&v1::JobService::Stub::ReadResult,
                                                                 name);
  }
  // "owner:name" of each; the reason of a refusal.
  std::vector<std::string> List(bool all) const {
    v1::ListJobsRequest request;
    request.set_all_owners(all);
    v1::ListJobsResponse response;
    const grpc::Status status = stub_->ListJobs(caller_.Context().get(), request, &response);
    if (!status.ok()) return {ReasonOf(status)};
    std::vector<std::string> list;
    for (const v1::Job& job : response.jobs()) list.push_back(job.owner() + ":" + job.name());
    return list;
  }

  void ExpectNotFound(const std::string& name) const {
    const std::map<std::string, std::string> answers = {{"GetJob", Get(name)},
                                                        {"WatchJob", Watch(name)},
                                                        {"ReadResult", Read(name)},
                                                        {"CancelJob", Cancel(name)},
                                                        {"DeleteJob", Delete(name)}};
    for (const auto& [method, reason] : answers) EXPECT_EQ(reason, "NOT_FOUND") << method;
  }

 private:
  template <typename Request, typename Response>
  std::string Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
                   const std::string& name) const {
    Request request;
    request.set_name(name);
    Response response;
    return Caller::Reason((stub_.get()->*method)(caller_.Context().get(), request, &response));
  }
  template <typename Request, typename Response>
  std::string Follow(std::unique_ptr<grpc::ClientReader<Response>> (v1::JobService::Stub::*method)(
                         grpc::ClientContext*, const Request&),
                     const std::string& name) const {
    Request request;
    request.set_name(name);
    const auto context = caller_.Context();
    const auto reader = (stub_.get()->*method)(context.get(), request);
    Response response;
    while (reader->Read(&response)) {
    }
    return Caller::Reason(reader->Finish());
  }

  const Caller caller_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
};

class JobSecurityTest : public SecurityTest {
 protected:
  void SetUp() override {
    held_.StallNth(FakeProvider::Entry::kRunGroup, 1);
    server::Config config = TestConfig();
    config.tokens = Tokens();
    config.state_dir = folder_.path();
    config.state_budget_bytes = 1 << 20;
    config.providers = {"cpu", "held"};
    server::Server::Parts parts;
    parts.providers.push_back({"held", held_.api(), held_.options()});
    Start(config, std::move(parts));
  }
  void TearDown() override { server_.reset(); }  // before its provider and its folder

  JobCaller JobsOf(const std::string& name) const { return JobCaller(As(name)); }

  const TemporaryFolder folder_;
  FakeProvider held_{"held"};  // its first job runs until it is cancelled
};

TEST_F(JobSecurityTest, AFinishedJobIsItsOwnersAlone) {
  const JobCaller alice = JobsOf("alice"), bob = JobsOf("bob"), root = JobsOf("root");
  const std::string name = alice.Submit("cpu").job().name();
  ASSERT_EQ(alice.Watch(name), "OK");
  ASSERT_EQ(alice.State(name), v1::JOB_STATE_SUCCEEDED);
  bob.ExpectNotFound(name);
  EXPECT_EQ(alice.Read(name), "OK");  // it is still there
  EXPECT_EQ(root.Read(name), "NOT_FOUND");
  EXPECT_EQ(root.Get(name), "OK");
  EXPECT_EQ(root.Delete(name), "OK");  // an administrator makes room
  EXPECT_EQ(alice.Get(name), "NOT_FOUND");
}

TEST_F(JobSecurityTest, ARunningJobIsNotTouchedByOthers) {
  const JobCaller alice = JobsOf("alice"), bob = JobsOf("bob"), root = JobsOf("root");
  const std::string name = alice.Submit("held").job().name();
  ASSERT_NE(name, "");
  held_.WaitUntilStalled();
  bob.ExpectNotFound(name);
  EXPECT_EQ(alice.State(name), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(root.Cancel(name), "OK");  // an administrator ends what keeps the server busy
  EXPECT_EQ(alice.Watch(name), "OK");
  EXPECT_EQ(alice.State(name), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobSecurityTest, ListsAndRequestIdsAreOfOnePrincipal) {
  const JobCaller alice = JobsOf("alice"), bob = JobsOf("bob"), root = JobsOf("root");
  const std::string name = alice.Submit("cpu", "the same").job().name();
  EXPECT_THAT(bob.List(false), IsEmpty());
  EXPECT_THAT(root.List(false), IsEmpty());
  const v1::SubmitContractionResponse of_bob = bob.Submit("cpu", "the same");
  EXPECT_FALSE(of_bob.existed());
  EXPECT_NE(of_bob.job().name(), name);
  const v1::SubmitContractionResponse again = alice.Submit("cpu", "the same");
  EXPECT_TRUE(again.existed());
  EXPECT_EQ(again.job().name(), name);
  const std::string in_list_of_bob = "bob:" + of_bob.job().name();
  EXPECT_THAT(alice.List(false), ElementsAre("alice:" + name));
  EXPECT_THAT(bob.List(false), ElementsAre(in_list_of_bob));
  EXPECT_THAT(bob.List(true), ElementsAre("PERMISSION_DENIED"));
  EXPECT_THAT(root.List(true), ElementsAre(in_list_of_bob, "alice:" + name));  // the newest first
}

}  // namespace
}  // namespace tenon::testing
