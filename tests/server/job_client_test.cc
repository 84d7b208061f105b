// The client library's jobs, and the commands of `tenon job`, against a server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "backends/core/npy.h"
#include "client/cpp/tool/commands.h"
#include "tenon/client.h"
#include "tests/server/job_test_server.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using nlohmann::json;
using ::tenon::testing::Fails;
using ::testing::HasSubstr;

class JobClientTest : public ::testing::Test {
 protected:
  JobClientTest() : client_(*client::Client::Connect(Address())) {}

  std::string Address() { return server_.contraction().address(); }
  // 300 x 300 ones: larger than what goes with the header, and than a chunk is small.
  static Tensor Ones(int64_t rows, int64_t columns) {
    Tensor tensor = *Tensor::Allocate({DType::kFloat64, {rows, columns}});
    std::fill_n(tensor.buffer.as<double>(), rows * columns, 1.0);
    return tensor;
  }
  struct Output {
    int code;
    std::string out, err;
  };
  Output Run(std::vector<std::string> arguments) {
    std::ostringstream out, err;
    client::Canceller canceller;
    arguments.push_back("--server=" + Address());
    const int code = tool::RunTool(arguments, {&out, &err, &canceller, false});
    return {code, out.str(), err.str()};
  }

  TestFolder folder_, files_;
  JobTestServer server_{folder_.path()};
  client::Client client_;
};

TEST_F(JobClientTest, FromSubmissionToResult) {
  const Tensor a = Ones(300, 300), b = Ones(300, 2);
  client::JobRequest request;
  request.contraction.einsum = "ab,bc->ac";
  request.contraction.operands = {a, b};
  request.contraction.request_id = "mine";
  request.display_name = "ones";
  request.ttl = absl::Hours(1);
  const auto submitted = client_.SubmitJob(request);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  const std::string name = submitted->job().name();
  EXPECT_EQ(client_.SubmitJob(request)->existed(), true);
  std::vector<v1::JobState> states;
  client::JobCallbacks callbacks;
  callbacks.on_job = [&](const v1::Job& job) { states.push_back(job.state()); };
  const auto ended = client_.WatchJob(name, {}, callbacks);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(states.back(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(client_.GetJob(name)->display_name(), "ones");
  EXPECT_EQ(client_.ListJobs()->jobs_size(), 1);
  const auto result = client_.ReadJobResult(name);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tensor.spec.shape, (std::vector<int64_t>{300, 2}));
  EXPECT_EQ(result->tensor.buffer.as<double>()[599], 300.0);
  EXPECT_EQ(client_.CancelJob(name)->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_GT(*client_.DeleteJob(name), 0);
  EXPECT_TRUE(Fails(client_.GetJob(name), Reason::kNotFound, "name"));
}

TEST_F(JobClientTest, TheCommandsDoTheSame) {
  const std::string a = files_.path() + "/a.npy", b = files_.path() + "/b.npy";
  ASSERT_TRUE(WriteNpyFile(a, Ones(3, 300)).ok());
  ASSERT_TRUE(WriteNpyFile(b, Ones(300, 2)).ok());
  const Output submitted =
      Run({"job", "submit", "ab,bc->ac", a, b, "--request-id", "mine", "--ttl=100", "--json"});
  ASSERT_EQ(submitted.code, tool::kExitOk) << submitted.err;
  const std::string name = json::parse(submitted.out)["job"]["name"];
  const std::string id = name.substr(5);
  const Output again = Run({"job", "submit", "ab,bc->ac", a, b, "--request-id=mine", "--ttl=100"});
  EXPECT_THAT(again.out, HasSubstr("it existed already"));
  EXPECT_THAT(again.out, HasSubstr(name));
  const Output watched = Run({"job", "watch", id});
  EXPECT_EQ(watched.code, tool::kExitOk) << watched.err;
  EXPECT_THAT(watched.out, HasSubstr("succeeded"));
  const std::string output = files_.path() + "/c.npy";
  const Output result = Run({"job", "result", name, "--output", output});
  EXPECT_EQ(result.code, tool::kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("300"));
  EXPECT_EQ(std::filesystem::file_size(output) % 64, 48u);
  EXPECT_EQ(json::parse(Run({"job", "result", id, "--json"}).out)["value"][2][1], 300.0);
  EXPECT_EQ(json::parse(Run({"job", "show", id, "--json"}).out)["state"], "succeeded");
  EXPECT_THAT(Run({"job", "list"}).out, HasSubstr(name));
  EXPECT_EQ(json::parse(Run({"job", "list", "--state=failed", "--json"}).out).size(), 0u);
  EXPECT_EQ(Run({"job", "list", "--state=lost"}).code, tool::kExitUsage);
  EXPECT_EQ(json::parse(Run({"job", "cancel", id, "--json"}).out)["state"], "succeeded");
  EXPECT_THAT(Run({"job", "delete", id}).out, HasSubstr("freed"));
  EXPECT_EQ(Run({"job", "show", id}).code, tool::kExitRefused);
}

TEST_F(JobClientTest, AJobThatFailedShowsInTheExitCode) {
  server_.fake().FailNth(testing::FakeProvider::Entry::kRunGroup, 1,
                         Error(Reason::kInternal, "broken"));
  const std::string a = files_.path() + "/a.npy";
  ASSERT_TRUE(WriteNpyFile(a, Ones(3, 3)).ok());
  const Output submitted = Run({"job", "submit", "ab->a", a, "--providers=fake", "--json"});
  ASSERT_EQ(submitted.code, tool::kExitOk) << submitted.err;
  const std::string name = json::parse(submitted.out)["job"]["name"];
  const Output watched = Run({"job", "watch", name});
  EXPECT_EQ(watched.code, tool::kExitRefused);
  EXPECT_THAT(watched.out, HasSubstr("INTERNAL: "));
  EXPECT_THAT(watched.out, HasSubstr("broken"));
}

TEST_F(JobClientTest, CommandsOfTwoWordsAreFound) {
  std::ostringstream out, err;
  client::Canceller canceller;
  const tool::Session session{&out, &err, &canceller, false};
  const std::vector<std::string> help = {"help", "job", "submit"};
  EXPECT_EQ(tool::RunTool(help, session), tool::kExitOk);
  EXPECT_THAT(out.str(), HasSubstr("--request-id"));
  const std::vector<std::string> unknown = {"job", "shwo"};
  EXPECT_EQ(tool::RunTool(unknown, session), tool::kExitUsage);
  EXPECT_THAT(err.str(), HasSubstr("did you mean 'job show'"));
}

}  // namespace
}  // namespace tenon::server
