// `tenon bench` as a whole, against a scripted server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cpp/tool/commands.h"
#include "tests/client/fake_server.h"

namespace tenon::tool {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using namespace tenon::testing;  // NOLINT(build/namespaces): the fake server

struct Result {
  int code;
  std::string out, err;
};

Result RunBenchWith(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  std::ostringstream out, err;
  client::Canceller canceller;
  const int code = RunTool(arguments, {&out, &err, &canceller, false});
  return {code, out.str(), err.str()};
}

// Answers the first operand; every `failing`-th call is refused.
FakeServer::Script Echo(std::atomic<int>* calls, int failing = 0) {
  return {.contract = [calls, failing](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    if (failing > 0 && ++*calls % failing == 0) {
      WireError error;
      error.code = grpc::StatusCode::RESOURCE_EXHAUSTED;
      error.reason = "OVERLOADED";
      return MakeStatus(error);
    }
    const v1::Operand& operand = frame.header().einsum().operands(0);
    v1::ContractResponse answer;
    answer.mutable_single()->mutable_accepted();
    v1::ContractResult* result = answer.mutable_single()->add_results();
    *result->mutable_spec() = operand.spec();
    result->set_inline_data(operand.inline_data());
    result->mutable_report()->set_result_bytes(static_cast<int64_t>(operand.inline_data().size()));
    answer.mutable_single()->mutable_report()->set_sets(1);
    stream->Write(answer);
    return grpc::Status::OK;
  }};
}

TEST(BenchCommandTest, MeasuresANumberOfRequests) {
  std::atomic<int> calls = 0;
  FakeServer server(Echo(&calls));
  const Result result =
      RunBenchWith({"a->a", "--size", "4", "--address", server.address(), "--requests", "30",
                    "--concurrency", "3", "--connections", "2", "--warmup", "0", "--json", "-"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["requests"]["succeeded"], 30);
  EXPECT_EQ(report["load"]["connections"], 2);
  EXPECT_TRUE(report["server"].is_null());  // this server has no statistics
  EXPECT_EQ(report["kinds"]["contract"]["count"], 30);
  EXPECT_GT(report["latency_seconds"]["p50"], 0);
}

TEST(BenchCommandTest, OpenLoopAndFile) {
  std::atomic<int> calls = 0;
  FakeServer server(Echo(&calls));
  const std::string path = ::testing::TempDir() + "/bench" + std::to_string(getpid()) + ".json";
  const Result result =
      RunBenchWith({"a->a", "--server", server.address(), "--requests", "20", "--rate", "1e4",
                    "--warmup", "0", "--arrivals", "poisson", "--json", path});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("open loop, 10000 requests/s, poisson"));
  const json report = json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  EXPECT_EQ(report["load"]["loop"], "open");
  EXPECT_EQ(report["requests"]["succeeded"], 20);
}

TEST(BenchCommandTest, AMissedTargetExitsWithOne) {
  std::atomic<int> calls = 0;
  FakeServer server(Echo(&calls));
  std::vector<std::string> arguments = {"a->a",     "--server", server.address(), "--requests", "5",
                                        "--warmup", "0",        "--target-p99",   "1e6"};
  EXPECT_EQ(RunBenchWith(arguments).code, kExitOk);
  arguments.back() = "1e-6";
  const Result missed = RunBenchWith(arguments);
  EXPECT_EQ(missed.code, kExitCheckFailed);
  EXPECT_THAT(missed.out, HasSubstr("MISSED"));
}

TEST(BenchCommandTest, ErrorsAreCountedByReason) {
  std::atomic<int> calls = 0;
  FakeServer server(Echo(&calls, 4));
  const Result result = RunBenchWith(
      {"a->a", "--server", server.address(), "--requests", "20", "--warmup", "0", "--json", "-"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_EQ(json::parse(result.out)["errors"]["OVERLOADED"], 5);
}

TEST(BenchCommandTest, NothingButErrorsIsAnError) {
  std::atomic<int> calls = 0;
  FakeServer server(Echo(&calls, 1));
  const Result result =
      RunBenchWith({"a->a", "--server", server.address(), "--requests", "3", "--warmup", "0"});
  EXPECT_EQ(result.code, kExitRefused);
  EXPECT_THAT(result.err, HasSubstr("OVERLOADED"));
  EXPECT_EQ(
      RunBenchWith({"a->a", "--server", "unix:/nowhere/socket", "--requests", "1", "--warmup", "0"})
          .code,
      kExitUnreachable);
}

TEST(BenchCommandTest, BadArguments) {
  const std::vector<std::vector<std::string>> kCases = {
      {"--concurrency", "0"},
      {"--concurrency", "1e9"},
      {"--rate", "-1"},
      {"--arrivals", "poisson"},  // without a rate
      {"--rate", "5", "--arrivals", "bursty"},
      {"--requests", "0"},
      {"--duration", "0"},
      {"--duration", "1", "--stability", "5"},
      {"--target-p99", "0"},
      {"--mix", "sing"},
      {"--dtype", "int8"},
      {"--extent", "z=4"},
      {"--extent", "a"},
      {"--mix", "measure", "--spec", "tnc:q=1"},
      {"--mix", "measure", "--rows", "0"},
      {"--mix", "upload", "--bytes", "x"},
      {"ab,bc->", "--threads", "0"},
      {"no.json", "--size", "4"},
      {"a->a", "b.npy"},
      {"--address", "a:1", "--server", "b:1"},
  };
  for (const auto& arguments : kCases) {
    const Result result = RunBenchWith(arguments);
    EXPECT_EQ(result.code, kExitUsage) << arguments[0] << " " << result.err;
    EXPECT_THAT(result.err, HasSubstr("tenon: "));
  }
}

}  // namespace
}  // namespace tenon::tool
