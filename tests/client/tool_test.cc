// The command as a whole: arguments in, text and exit codes out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "backends/core/npy.h"
#include "client/cpp/tool/commands.h"
#include "tests/client/fake_server.h"
#include "tests/client/tool_fixture.h"

namespace tenon::tool {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using namespace tenon::testing;  // NOLINT(build/namespaces): the fake server

// Answers every contraction with the first operand's bytes.
FakeServer::Script EchoContract(v1::ContractHeader* header,
                                std::optional<double> log10_scale = std::nullopt) {
  return {.contract = [header, log10_scale](grpc::ServerContext*, ContractServerStream* stream) {
    v1::ContractRequest frame;
    stream->Read(&frame);
    *header = frame.header();
    const v1::Operand& operand = frame.header().has_network() ? frame.header().network().operands(0)
                                                              : frame.header().einsum().operands(0);
    v1::ContractResponse answer;
    answer.mutable_single()->mutable_accepted();
    v1::ContractResult* result = answer.mutable_single()->add_results();
    *result->mutable_spec() = operand.spec();
    result->set_inline_data(operand.inline_data());
    if (log10_scale.has_value()) result->set_log10_scale(*log10_scale);
    result->mutable_report()->set_result_bytes(static_cast<int64_t>(operand.inline_data().size()));
    answer.mutable_single()->mutable_report()->set_sets(1);
    answer.mutable_single()->mutable_report()->mutable_timing()->set_execution_seconds(0.25);
    stream->Write(answer);
    return grpc::Status::OK;
  }};
}

constexpr char kNetwork[] =
    R"({"name": "net", "inputs": [["x"], ["x"]], "output": [], "size_dict": {"x": 2},
        "dtype": "float32", "path_ssa": [[0, 1]], "sliced": ["x"], "seed": 1000,
        "scales": [1.0, 1.0]})";

TEST_F(ToolTest, UsageErrorsExitWithTwo) {
  const std::vector<std::vector<std::string>> kCases = {
      {},
      {"contrct"},
      {"contract"},
      {"contract", "--nope"},
      {"contract", "ab,bc->ac"},
      {"contract", "/no/such.json"},
      {"contract", "a->a", "/no/such.npy"},
      {"contract", "a->a", "x.npy", "--dtype", "int8"},
      {"estimate", "a->a", "--shape", "x"},
      {"measure", "--spec", "tnc"},
      {"measure", "--hd", "/no/such.npy", "--spec", "tnc", "x.npy"},
      {"measure", "--hd", "x.npy", "--spec", "tnc:q=1", "x.npy"},
      {"measures", "a", "b"},
      {"info", "--wait", "-1"},
      {"info", "--timeout", "soon"},
      {"help", "nothing"},
      {"info", "\xFF"},
  };
  for (const auto& arguments : kCases) {
    const Result result = RunWith(arguments);
    EXPECT_EQ(result.code, kExitUsage) << (arguments.empty() ? "" : arguments[0]) << result.err;
    EXPECT_THAT(result.err, HasSubstr("tenon: "));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(ToolTest, HelpAndVersion) {
  for (const char* command :
       {"contract", "estimate", "measure", "measures", "bench", "info", "version"}) {
    const Result by_help = RunWith({"help", command});
    EXPECT_EQ(by_help.code, kExitOk);
    EXPECT_EQ(by_help.out, RunWith({command, "--help"}).out);
    EXPECT_THAT(RunWith({"help"}).out, HasSubstr(command));
    EXPECT_EQ(RunWith({"help", "help"}).out, RunWith({"help"}).out);
  }
  EXPECT_THAT(RunWith({"version"}).out, HasSubstr("tenon "));
  EXPECT_EQ(RunWith({"--version"}).out, RunWith({"version"}).out);
}

TEST_F(ToolTest, ContractsAnEinsum) {
  v1::ContractHeader header;
  FakeServer server(EchoContract(&header));
  const std::string a = WriteNpy("a.npy", MakeTensor({2}, {1.5, -2}));
  const Result result =
      RunWith({"contract", "a->a", a, "--server", server.address(), "--json", "--threads", "2",
               "--providers", "cpu,reference", "--memory-budget", "1KiB", "--target-size", "2^4",
               "--search-threads", "3", "--output", Path("r.npy")});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["value"], json({1.5, -2}));
  EXPECT_EQ(answer["report"]["execution_seconds"], 0.25);
  EXPECT_GE(answer["report"]["client_seconds"].get<double>(), 0);
  EXPECT_EQ(ReadNpyFile(Path("r.npy"))->buffer.as<double>()[0], 1.5);
  EXPECT_EQ(header.execution().threads(), 2);
  EXPECT_EQ(header.execution().providers(1), "reference");
  EXPECT_EQ(header.execution().memory_budget_bytes(), 1024);
  EXPECT_EQ(header.search().target_size(), 16);
  EXPECT_EQ(header.search().threads(), 3);
  EXPECT_FALSE(header.execution().has_progress_interval_seconds());
}

TEST_F(ToolTest, ContractsANetworkFile) {
  v1::ContractHeader header;
  FakeServer server(EchoContract(&header));
  const std::string file = WriteText("net.json", kNetwork);
  Result result = RunWith({"contract", file, "--server", server.address(), "--json"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  // The corpus rule's own test vector, seed 1000, rounded to float32.
  const json value = json::parse(result.out)["value"];
  EXPECT_EQ(value[0].get<double>(), static_cast<double>(-0.017791864035785032f));
  EXPECT_EQ(value[1].get<double>(), static_cast<double>(-0.9720520441249609f));
  EXPECT_EQ(header.path().path().steps_size(), 1);
  EXPECT_EQ(header.path().sliced_indices(0), "x");

  const std::string ones = WriteNpy("ones.npy", MakeTensor({2}, {1, 1}));
  result = RunWith({"contract", file, "--server", server.address(), "--replan", "--operand",
                    "0=" + ones, "--dtype", "float64"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[1, 1]"));
  EXPECT_THAT(result.out, HasSubstr("execution"));
  EXPECT_FALSE(header.has_path());
  EXPECT_EQ(header.network().operands(1).spec().dtype(), v1::DATA_TYPE_FLOAT64);
}

TEST_F(ToolTest, NetworkFilesWithWrongOptions) {
  const std::string file = WriteText("net.json", kNetwork);
  const std::string bare =
      WriteText("bare.json", R"({"inputs": [["x"]], "output": [], "size_dict": {"x": 2}})");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"contract", file, "--target-size", "4"},
                                             {"contract", file, "--operand", "2=a.npy"},
                                             {"contract", file, "--operand", "a.npy"},
                                             {"contract", file, "a.npy"},
                                             {"contract", file, "--slice-groups", "1-2"},
                                             {"contract", bare},
                                             {"estimate", file, "--shape", "2"}}) {
    EXPECT_EQ(RunWith(arguments).code, kExitUsage) << arguments.back();
  }
}

TEST_F(ToolTest, ChecksAgainstReferences) {
  v1::ContractHeader header;
  FakeServer server(EchoContract(&header));
  const std::string a = WriteNpy("a.npy", MakeTensor({}, {1.5}));
  const std::string reference =
      WriteText("ref.json", R"({"->": {"float64": {"shape": [], "max_abs": 1.5, "values": [1.5]}},
                      " ->": {"float64": {"shape": [], "max_abs": 2, "values": [2]}}})");
  Result result =
      RunWith({"contract", "->", a, "--server", server.address(), "--check", reference});
  EXPECT_EQ(result.code, kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1.5  (reference)"));
  EXPECT_THAT(result.out, HasSubstr("agrees"));
  result = RunWith({"contract", " ->", a, "--server", server.address(), "--check", reference});
  EXPECT_EQ(result.code, kExitCheckFailed);
  EXPECT_THAT(result.out, HasSubstr("DISAGREES"));
  // A file that can't serve is found before the work: nothing has been printed.
  for (const std::string& bad : {Path("missing.json"), WriteText("other.json", "{}")}) {
    result = RunWith({"contract", "->", a, "--server", server.address(), "--check", bad});
    EXPECT_EQ(result.code, kExitUsage);
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(ToolTest, PrintsMantissaAndPowerOfTen) {
  v1::ContractHeader header;
  FakeServer server(EchoContract(&header, 6020.5999132796237));  // 2^20000
  const std::string a = WriteNpy("a.npy", MakeTensor({}, {0.5}));
  Result result = RunWith({"contract", "->", a, "--server", server.address(), "--normalize"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_TRUE(header.execution().normalize());
  EXPECT_THAT(result.out, HasSubstr("0.5\ntimes 10 to the power 6020.5999132796"));
  EXPECT_THAT(result.out, HasSubstr("log10 of the magnitude: 6020.298883283"));
  result = RunWith({"contract", "->", a, "--server", server.address(), "--normalize", "--json"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["value"], 0.5);
  EXPECT_EQ(answer["log10_scale"], 6020.5999132796237);
  result = RunWith({"contract", "->", a, "--server", server.address()});
  EXPECT_FALSE(header.execution().normalize());
}

TEST_F(ToolTest, PrintsTheScaleOfZero) {
  v1::ContractHeader header;
  FakeServer server(EchoContract(&header, -std::numeric_limits<double>::infinity()));
  const std::string a = WriteNpy("a.npy", MakeTensor({}, {0}));
  Result result = RunWith({"contract", "->", a, "--server", server.address(), "--normalize"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("log10 of the magnitude: -inf"));
  result = RunWith({"contract", "->", a, "--server", server.address(), "--normalize", "--json"});
  EXPECT_TRUE(json::parse(result.out)["log10_scale"].is_null());
}

TEST_F(ToolTest, ChecksTheTrueValueOfANormalisedResult) {
  v1::ContractHeader header;
  FakeServer server(EchoContract(&header, 0.90308998699194354));  // 2^3
  const std::string a = WriteNpy("a.npy", MakeTensor({}, {0.75}));
  const std::string reference =
      WriteText("ref.json", R"({"->": {"float64": {"shape": [], "max_abs": 6, "values": [6]}}})");
  const Result result = RunWith(
      {"contract", "->", a, "--server", server.address(), "--normalize", "--check", reference});
  EXPECT_EQ(result.code, kExitOk) << result.out;
}

TEST_F(ToolTest, RefusalsExitWithThree) {
  FakeServer server({.contract = [](grpc::ServerContext*, ContractServerStream*) {
    return MakeStatus({grpc::StatusCode::INVALID_ARGUMENT,
                       "SHAPE_MISMATCH",
                       "sizes differ",
                       "header.einsum",
                       {{"actual", "3"}},
                       0});
  }});
  const std::string a = WriteNpy("a.npy", MakeTensor({2}, {1, 2}));
  const Result result = RunWith({"contract", "a->a", a, "--server", server.address()});
  EXPECT_EQ(result.code, kExitRefused);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "tenon: INVALID_ARGUMENT SHAPE_MISMATCH: sizes differ\n"
            "  field header.einsum: wrong here\n"
            "  actual = 3\n");
}

TEST_F(ToolTest, UnreachableServersExitWithFourAndInterruptsWith130) {
  std::string address;
  {
    FakeServer server({});
    address = server.address();
  }
  const Result result = RunWith({"info", "--server", address});
  EXPECT_EQ(result.code, kExitUnreachable);
  EXPECT_THAT(result.err, HasSubstr("cannot reach the server at " + address));
  EXPECT_EQ(RunWith({"info", "--wait", "0.01", "--server", address}).code, kExitUnreachable);
  const Result interrupted = RunWith({"info", "--server", address}, true);
  EXPECT_EQ(interrupted.code, kExitInterrupted);
  EXPECT_EQ(interrupted.err, "tenon: interrupted\n");
}

TEST_F(ToolTest, TheVariableNamesTheServer) {
  setenv("TENON_SERVER", "127.0.0.1:1", 1);
  EXPECT_THAT(RunWith({"info"}).err, HasSubstr("127.0.0.1:1"));
  unsetenv("TENON_SERVER");
}

TEST_F(ToolTest, EstimatesWithoutArrays) {
  v1::EstimateRequest seen;
  FakeServer server(
      {.estimate = [&](const v1::EstimateRequest& request, v1::EstimateResponse* response) {
        seen = request;
        response->set_planned_peak_bytes(2048);
        response->mutable_refusal()->set_reason("OVERLOADED");
        response->mutable_refusal()->set_message("full");
        auto* provider = response->add_providers();
        provider->set_provider("cpu");
        provider->set_estimated_seconds(0.5);
        return grpc::Status::OK;
      }});
  Result result = RunWith({"estimate", "ab,bc->ac", "--shape", "2,3", "--shape", "3,4", "--dtype",
                           "complex64", "--server", server.address()});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  for (const char* part : {"2 KiB", "cpu", "500 ms", "OVERLOADED: full"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  const v1::Operand& operand = seen.header().einsum().operands(1);
  EXPECT_EQ(operand.spec().dtype(), v1::DATA_TYPE_COMPLEX64);
  EXPECT_EQ(operand.spec().shape(1), 4);
  EXPECT_FALSE(operand.has_inline_data());

  result = RunWith(
      {"estimate", WriteText("net.json", kNetwork), "--json", "--server", server.address()});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_EQ(json::parse(result.out)["planned_peak_bytes"], 2048);
  EXPECT_EQ(seen.header().path().sliced_indices(0), "x");
}

TEST_F(ToolTest, InfoAndMeasures) {
  FakeServer server(
      {.list_measures =
           [](const v1::ListMeasuresRequest& request, v1::ListMeasuresResponse* response) {
             auto* measure = response->add_measures();
             measure->set_id("trustworthiness_continuity");
             measure->set_alias("tnc");
             measure->set_title("Trust");
             measure->set_available(!request.id().empty());
             measure->add_outputs()->set_key("continuity");
             auto* parameter = measure->add_parameters();
             parameter->set_name("k");
             parameter->set_default_value("20");
             return grpc::Status::OK;
           },
       .server_info =
           [](v1::GetServerInfoResponse* response) {
             response->set_version("1.2.3");
             response->set_state(v1::SERVER_STATE_READY);
             response->mutable_quotas()->set_calls(1);
             response->mutable_quotas()->set_max_calls(7);
             response->mutable_quotas()->set_stored_bytes(1024);
             return grpc::Status::OK;
           },
       .list_providers =
           [](const v1::ListProvidersRequest&, v1::ListProvidersResponse* response) {
             response->add_providers()->set_name("cpu");
             return grpc::Status::OK;
           }});
  const std::string address = server.address();
  const std::string told = RunWith({"info", "--server", address}).out;
  EXPECT_THAT(told, HasSubstr("tenond 1.2.3"));
  EXPECT_THAT(told, HasSubstr("calls 1 of 7, stored 1 KiB, no limit"));
  const json info =
      json::parse(RunWith({"info", "--wait", "60", "--json", "--server", address}).out);
  EXPECT_EQ(info["server"]["state"], "ready");
  EXPECT_EQ(info["providers"][0]["name"], "cpu");
  EXPECT_THAT(RunWith({"measures", "--server", address}).out, HasSubstr("(not offered yet)"));
  EXPECT_THAT(RunWith({"measures", "tnc", "--server", address}).out, HasSubstr("default 20"));
  EXPECT_EQ(json::parse(RunWith({"measures", "--json", "--server", address}).out)[0]["alias"],
            "tnc");
}

FakeServer::Script ServerInState(v1::ServerState state, v1::ProviderState provider) {
  return {.server_info =
              [state](v1::GetServerInfoResponse* response) {
                response->set_version("1.2.3");
                response->set_state(state);
                response->mutable_build()->set_type("Release");
                response->mutable_start_time()->set_seconds(time(nullptr));
                response->mutable_host()->set_memory_bytes(int64_t{1} << 30);
                response->mutable_limits()->set_memory_budget_bytes(int64_t{1} << 29);
                auto* feature = response->add_features();
                feature->set_name("tls");
                return grpc::Status::OK;
              },
          .list_providers =
              [provider](const v1::ListProvidersRequest&, v1::ListProvidersResponse* response) {
                auto* cpu = response->add_providers();
                cpu->set_name("cpu");
                cpu->set_state(provider);
                cpu->mutable_error()->set_message("it broke");
                return grpc::Status::OK;
              }};
}

TEST_F(ToolTest, DoctorExitsWithOneWhenSomethingFails) {
  {
    FakeServer server(ServerInState(v1::SERVER_STATE_READY, v1::PROVIDER_STATE_READY));
    const Result well = RunWith({"doctor", "--server", server.address()});
    EXPECT_EQ(well.code, 0) << well.out;
    EXPECT_THAT(well.out, HasSubstr("ok    provider cpu"));
    EXPECT_THAT(well.out, HasSubstr("warn  version"));  // the server's is another one
    EXPECT_THAT(well.out, HasSubstr("0 failures"));
    const json same = json::parse(RunWith({"doctor", "--json", "--server", server.address()}).out);
    EXPECT_EQ(same["ok"], true);
    EXPECT_EQ(same["findings"][0]["subject"], "server");
  }
  {
    FakeServer server(ServerInState(v1::SERVER_STATE_READY, v1::PROVIDER_STATE_FAILED));
    const Result failed = RunWith({"doctor", "--server", server.address()});
    EXPECT_EQ(failed.code, 1);
    EXPECT_THAT(failed.out, HasSubstr("it broke"));
    EXPECT_THAT(failed.out, HasSubstr("-> restart"));
  }
  {
    FakeServer server(ServerInState(v1::SERVER_STATE_DRAINING, v1::PROVIDER_STATE_READY));
    EXPECT_EQ(RunWith({"doctor", "--server", server.address()}).code, 1);
  }
  {
    FakeServer server(ServerInState(v1::SERVER_STATE_STARTING, v1::PROVIDER_STATE_STARTING));
    EXPECT_EQ(RunWith({"doctor", "--server", server.address()}).code, 0) << "only warnings";
  }
  const Result nobody =
      RunWith({"doctor", "--timeout", "1", "--server", "unix:" + Path("nobody.sock")});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.out, HasSubstr("fail  server"));
  EXPECT_THAT(nobody.out, HasSubstr("-> start tenond"));
}

// Scores each projection by its first value; NaN is refused.
FakeServer::Script MeasureServer(v1::MeasureHeader* header) {
  return {.measure = [header](grpc::ServerContext*, MeasureServerStream* stream) {
    v1::MeasureRequest frame;
    stream->Read(&frame);
    *header = frame.header();
    v1::MeasureResponse answer;
    answer.mutable_accepted();
    stream->Write(answer);
    v1::MeasureResponse summary;
    // A client whose projections the server reads itself sends nothing more.
    while (!header->has_server_files() && stream->Read(&frame)) {
      if (!frame.has_projection()) continue;
      double first = 0;
      std::memcpy(&first, frame.projection().inline_data().data(), sizeof(first));
      answer.Clear();
      if (first != first) {
        auto* error = answer.mutable_item_error();
        error->set_index(frame.projection().index());
        error->set_name(frame.projection().name());
        error->mutable_error()->set_code(3);
        error->mutable_error()->set_reason("NOT_FINITE");
        summary.mutable_summary()->set_error_count(summary.summary().error_count() + 1);
      } else {
        auto* scores = answer.mutable_scores();
        scores->set_index(frame.projection().index());
        scores->set_name(frame.projection().name());
        (*scores->add_specs()->mutable_values())["stress"] = first;
        summary.mutable_summary()->set_scored_count(summary.summary().scored_count() + 1);
      }
      stream->Write(answer);
    }
    summary.mutable_summary()->set_stream_complete(true);
    stream->Write(summary);
    return grpc::Status::OK;
  }};
}

TEST_F(ToolTest, MeasuresProjections) {
  v1::MeasureHeader header;
  FakeServer server(MeasureServer(&header));
  const std::string hd = WriteNpy("hd.npy", MakeRange({3, 2}));
  const std::string ld0 = WriteNpy("ld0.npy", MakeTensor({3, 1}, {0.5, 1, 2}));
  const std::string ld1 = WriteNpy("ld1.npy", MakeTensor({3, 1}, {0.25, 1, 2}));
  const std::string labels = WriteText("labels.txt", "a\nb\na\n");
  Result result =
      RunWith({"measure", "--hd", hd, "--labels", labels, "--spec", "stress", "--spec", "tnc:k=1",
               ld0, ld1, "--json", "--in-flight", "3", "--server", server.address()});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["scores"]["stress"], 0.5);
  EXPECT_EQ(json::parse(line)["name"], ld0);
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["index"], 1);
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_EQ(header.labels().strings().values_size(), 3);
  EXPECT_EQ(header.execution().in_flight(), 3);
  EXPECT_EQ(header.specs(1).trustworthiness_continuity().k(), 1);

  result =
      RunWith({"measure", "--hd", hd, "--spec", "stress", ld0, ld1, "--server", server.address()});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("stress"));
  EXPECT_THAT(result.out, HasSubstr("0.25"));
  EXPECT_THAT(result.out, HasSubstr("2 scored, 0 failed"));
}

TEST_F(ToolTest, MeasureOptionsArrive) {
  v1::MeasureHeader header;
  FakeServer server(MeasureServer(&header));
  const Result result = RunWith({"measure",
                                 "--dataset",
                                 "datasets/1",
                                 "--spec",
                                 "srho",
                                 "--json",
                                 "--server-files",
                                 "runs/*.npy",
                                 "--limit",
                                 "7",
                                 "--pair-order",
                                 "external",
                                 "--batch",
                                 "2",
                                 "--temporary-budget",
                                 "1MiB",
                                 "--temporary-directory",
                                 "fast",
                                 "--fallback",
                                 "--skip-measures",
                                 "--forget-resources",
                                 "--server",
                                 server.address()});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  EXPECT_EQ(header.dataset_handle(), "datasets/1");
  EXPECT_EQ(header.server_files().glob(), "runs/*.npy");
  EXPECT_EQ(header.server_files().limit(), 7);
  const v1::MeasureExecution& execution = header.execution();
  EXPECT_EQ(execution.pair_order_strategy(), v1::PAIR_ORDER_STRATEGY_EXTERNAL);
  EXPECT_EQ(execution.batch_size(), 2);
  EXPECT_EQ(execution.temporary_budget_bytes(), 1 << 20);
  EXPECT_EQ(execution.temporary_directory(), "fast");
  EXPECT_TRUE(execution.allow_fallback());
  EXPECT_EQ(execution.on_error(), v1::ON_ERROR_SKIP_MEASURE);
  EXPECT_FALSE(execution.keep_resources());
  const Result bad =
      RunWith({"measure", "--dataset", "datasets/1", "--spec", "srho", "--pair-order", "disk",
               "--server-files", "*", "--server", server.address()});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_THAT(bad.err, HasSubstr("auto, memory or external"));
}

TEST_F(ToolTest, AProjectionWithoutScoresExitsWithThree) {
  v1::MeasureHeader header;
  FakeServer server(MeasureServer(&header));
  const std::string hd = WriteNpy("hd.npy", MakeRange({2, 2}));
  const std::string bad = WriteNpy("bad.npy", MakeTensor({2, 1}, {std::nan(""), 1}));
  const std::string good = WriteNpy("good.npy", MakeTensor({2, 1}, {1, 2}));
  const Result result = RunWith({"measure", "--hd", hd, "--spec", "stress", bad, good, "--json",
                                 "--summary", "--stop-on-error", "--server", server.address()});
  EXPECT_EQ(result.code, kExitRefused);
  std::istringstream lines(result.out);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["error"]["reason"], "NOT_FINITE");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["scores"]["stress"], 1.0);
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["summary"]["error_count"], 1);
  EXPECT_EQ(header.execution().on_error(), v1::ON_ERROR_STOP);
}

TEST_F(ToolTest, LabelsOfEveryKind) {
  v1::MeasureHeader header;
  FakeServer server(MeasureServer(&header));
  const std::string hd = WriteNpy("hd.npy", MakeRange({2, 2}));
  const auto run = [&](const std::string& labels) {
    return RunWith({"measure", "--hd", hd, "--labels", labels, "--spec", "stress", hd, "--server",
                    server.address()});
  };
  Tensor bytes = *Tensor::Allocate({DType::kUint8, {2}});
  bytes.buffer.as<uint8_t>()[0] = 200;
  bytes.buffer.as<uint8_t>()[1] = 1;
  ASSERT_EQ(run(WriteNpy("u8.npy", bytes)).code, kExitOk);
  EXPECT_EQ(header.labels().int64s().values(0), 200);
  ASSERT_EQ(run(WriteNpy("f64.npy", MakeTensor({2, 1}, {0.5, 1}))).code, kExitOk);
  EXPECT_EQ(header.labels().doubles().values(0), 0.5);
  EXPECT_EQ(run(WriteNpy("square.npy", MakeRange({2, 2}))).code, kExitUsage);
  EXPECT_EQ(run("/no/such.npy").code, kExitUsage);
  Tensor large = *Tensor::Allocate({DType::kUint64, {1}});
  large.buffer.as<uint64_t>()[0] = UINT64_MAX;
  EXPECT_EQ(run(WriteNpy("u64.npy", large)).code, kExitUsage);
}

}  // namespace
}  // namespace tenon::tool
