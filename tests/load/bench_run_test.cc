// `tenon bench` against a real server: every kind of request, and the server's own figures.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cpp/tool/commands.h"
#include "server/logging.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

using nlohmann::json;

class BenchRunTest : public ::testing::Test {
 protected:
  BenchRunTest() : server_(StartOrDie(TestConfig())) {
    server::InitLogging("error", /*json=*/false);
    server_->WaitUntilReady();
  }

  json Bench(std::vector<std::string> arguments) {
    for (const char* more : {"--warmup", "0", "--json", "-", "--server"}) arguments.push_back(more);
    arguments.push_back(server_->addresses()[0]);
    arguments.insert(arguments.begin(), "bench");
    std::ostringstream out, err;
    client::Canceller canceller;
    EXPECT_EQ(tool::RunTool(arguments, {&out, &err, &canceller, false}), 0) << err.str();
    return json::parse(out.str(), nullptr, false);
  }

 private:
  std::unique_ptr<server::Server> server_;
};

TEST_F(BenchRunTest, ContractionsWithTheServersSplit) {
  const json report = Bench({"--requests", "40", "--concurrency", "4"});
  EXPECT_EQ(report["requests"]["succeeded"], 40);
  EXPECT_EQ(report["requests"]["failed"], 0);
  for (const char* phase : {"queue", "input_receive", "input_prepare", "setup", "execution",
                            "result_send", "request"}) {
    EXPECT_EQ(report["server"][phase]["count"], 40) << phase;
  }
  EXPECT_LT(report["server"]["request"]["mean_seconds"], report["latency_seconds"]["mean"]);
}

TEST_F(BenchRunTest, SetsOnOpenCallsAreOneCallPerWorker) {
  const json report = Bench({"--requests", "50", "--concurrency", "2", "--keep-open", "--dtype",
                             "complex64", "--size", "3", "--extent", "b=5"});
  EXPECT_EQ(report["requests"]["succeeded"], 50);
  EXPECT_EQ(report["server"]["request"]["count"], 2);
  EXPECT_GT(report["bytes_per_second"], 0);
}

TEST_F(BenchRunTest, MixOfAllKinds) {
  const json report =
      Bench({"--requests", "20", "--mix", "contract=2,measure=1,upload=1,download=1", "--rows",
             "60", "--columns", "5", "--spec", "stress", "--bytes", "1MiB", "--concurrency", "2"});
  EXPECT_EQ(report["requests"]["succeeded"], 20);
  EXPECT_EQ(report["kinds"]["contract"]["count"], 8);
  for (const char* kind : {"measure", "upload", "download"}) {
    EXPECT_EQ(report["kinds"][kind]["count"], 4) << kind;
  }
}

TEST_F(BenchRunTest, LargeProjectionsGoInChunks) {
  const json report = Bench({"--requests", "2", "--mix", "measure", "--rows", "2100", "--columns",
                             "3", "--spec", "stress", "--projections", "2"});
  EXPECT_EQ(report["requests"]["succeeded"], 2);
}

TEST_F(BenchRunTest, WindowsUntilStableOrTheirNumberIsUp) {
  const json report = Bench({"--window", "0.05", "--windows", "4", "--stability", "1e-9"});
  EXPECT_EQ(report["stable"], false);
  EXPECT_EQ(report["windows"].size(), 4u);
  const json stable = Bench({"--window", "0.05", "--windows", "9", "--stability", "1e6"});
  EXPECT_EQ(stable["stable"], true);
  EXPECT_EQ(stable["windows"].size(), 3u);
}

}  // namespace
}  // namespace tenon::testing
