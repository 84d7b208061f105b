#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "client/cpp/tool/bench_report.h"
#include "client/cpp/tool/bench_work.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

constexpr int64_t kMaxConcurrency = 4096;

Error BadOption(const char* name, const std::string& what) {
  return Error(Reason::kBadParameter, StrCat("--", name, ": ", what)).Field(StrCat("--", name));
}

absl::Status ReadPositive(const Arguments& arguments, const char* name, double* value) {
  TENON_ASSIGN_OR_RETURN(const auto given, GetParsed<double>(arguments, name, ParsePositive));
  if (given.has_value()) *value = *given;
  return absl::OkStatus();
}

absl::StatusOr<int> ReadCount(const Arguments& arguments, const char* name, int absent) {
  TENON_ASSIGN_OR_RETURN(const auto given, GetParsed<int32_t>(arguments, name, ParseSmallCount));
  if (given.value_or(absent) > kMaxConcurrency) {
    return BadOption(name, StrCat("at most ", kMaxConcurrency, " are possible"));
  }
  return given.value_or(absent);
}

// --rate and what belongs to it.
absl::Status ReadArrivals(const Arguments& arguments, LoadOptions* options) {
  TENON_ASSIGN_OR_RETURN(options->rate, GetParsed<double>(arguments, "rate", ParsePositive));
  const std::string arrivals = arguments.Get("arrivals").value_or("constant");
  if (arrivals != "constant" && arrivals != "poisson") {
    return BadOption("arrivals", StrCat("'", arrivals, "'; expected is constant or poisson"));
  }
  options->poisson = arrivals == "poisson";
  for (const char* name : {"arrivals", "seed"}) {
    if (!options->rate.has_value() && arguments.Has(name)) {
      return BadOption(name, "it belongs to an open loop; give --rate");
    }
  }
  TENON_ASSIGN_OR_RETURN(const auto seed, GetParsed<int64_t>(arguments, "seed", ParseCount));
  options->seed = static_cast<uint64_t>(seed.value_or(1));
  TENON_ASSIGN_OR_RETURN(options->concurrency,
                         ReadCount(arguments, "concurrency", options->rate.has_value() ? 64 : 1));
  return absl::OkStatus();
}

// When it ends.
absl::Status ReadEnd(const Arguments& arguments, LoadOptions* options) {
  TENON_ASSIGN_OR_RETURN(options->duration_seconds,
                         GetParsed<double>(arguments, "duration", ParsePositive));
  TENON_ASSIGN_OR_RETURN(options->requests, GetParsed<int64_t>(arguments, "requests", ParseCount));
  if (options->requests.has_value() && *options->requests < 1) {
    return BadOption("requests", "at least 1 is needed");
  }
  const bool fixed = options->duration_seconds.has_value() || options->requests.has_value();
  for (const char* name : {"stability", "windows"}) {
    if (fixed && arguments.Has(name)) {
      return BadOption(name, "with --duration or --requests nothing waits for stable figures");
    }
  }
  double percent = 100 * options->stability;
  TENON_RETURN_IF_ERROR(ReadPositive(arguments, "stability", &percent));
  options->stability = percent / 100;
  TENON_RETURN_IF_ERROR(ReadPositive(arguments, "window", &options->window_seconds));
  TENON_ASSIGN_OR_RETURN(options->max_windows, ReadCount(arguments, "windows", 10));
  if (arguments.Get("warmup") == "0") {
    options->warmup_seconds = 0;
    return absl::OkStatus();
  }
  return ReadPositive(arguments, "warmup", &options->warmup_seconds);
}

// One connection per address, or --connections of them in turn.
absl::StatusOr<std::vector<client::Client>> ConnectAll(const Arguments& arguments,
                                                       std::vector<std::string>* addresses) {
  *addresses = arguments.All("address");
  if (!addresses->empty() && arguments.Has("server")) {
    return BadOption("address", "it stands for --server; give one of the two");
  }
  if (addresses->empty()) addresses->push_back(ServerAddress(arguments));
  TENON_ASSIGN_OR_RETURN(const int count, ReadCount(arguments, "connections", 1));
  std::vector<client::Client> clients;
  for (size_t i = 0; i < std::max<size_t>(static_cast<size_t>(count), addresses->size()); ++i) {
    client::ClientOptions options;
    options.user_agent = "tenon-bench";
    options.retry.patience = absl::ZeroDuration();  // refusals are what it counts
    TENON_ASSIGN_OR_RETURN(client::Client client,
                           client::Client::Connect((*addresses)[i % addresses->size()], options));
    clients.push_back(std::move(client));
  }
  return clients;
}

using Statistics = std::vector<v1::GetStatisticsResponse>;

// A call counts when its server has done with it, which may be a moment after its client has.
// Others may have calls of their own, so nobody waits long.
absl::StatusOr<v1::GetStatisticsResponse> AskSettled(client::Client& server,
                                                     const client::CallOptions& options) {
  constexpr int kMostTries = 200;
  constexpr std::chrono::milliseconds kPause(1);
  auto statistics = server.GetStatistics("", options);
  for (int tries = 0; tries < kMostTries && statistics.ok(); ++tries) {
    const auto& methods = statistics->methods();
    const auto works = [](const v1::MethodStatistics& method) {
      return method.active() > 0 && method.method() != "tenon.v1.ProviderService";  // this call
    };
    if (std::none_of(methods.begin(), methods.end(), works)) break;
    std::this_thread::sleep_for(kPause);
    statistics = server.GetStatistics("", options);
  }
  return statistics;
}

// Of every server; nothing when one of them has none.
std::optional<Statistics> AskStatistics(std::span<client::Client> servers,
                                        const client::CallOptions& options) {
  Statistics all;
  for (client::Client& server : servers) {
    auto statistics = AskSettled(server, options);
    if (!statistics.ok()) return std::nullopt;
    all.push_back(*std::move(statistics));
  }
  return all;
}

absl::Status WriteReport(const BenchReport& report, const Arguments& arguments,
                         const Session& session) {
  const auto path = arguments.Get("json");
  if (path != "-") *session.out << BenchToText(report);
  if (!path.has_value()) return absl::OkStatus();
  const std::string text = BenchToJson(report).dump(2) + "\n";
  if (*path != "-") return WriteFile(*path, {text});
  *session.out << text;
  return absl::OkStatus();
}

absl::StatusOr<int> Run(const Arguments& arguments, const Session& session) {
  BenchReport report;
  TENON_RETURN_IF_ERROR(ReadArrivals(arguments, &report.options));
  TENON_RETURN_IF_ERROR(ReadEnd(arguments, &report.options));
  TENON_ASSIGN_OR_RETURN(const auto target,
                         GetParsed<double>(arguments, "target-p99", ParsePositive));
  if (target.has_value()) report.target_p99_seconds = *target / 1e3;
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  TENON_ASSIGN_OR_RETURN(const auto plan, BenchPlan::Create(arguments, options));
  TENON_ASSIGN_OR_RETURN(auto clients, ConnectAll(arguments, &report.servers));
  report.description = plan->Description();
  report.mix = plan->mix();
  report.connections = static_cast<int>(clients.size());

  const std::span<client::Client> servers(clients.data(), report.servers.size());
  for (client::Client& server : servers) TENON_RETURN_IF_ERROR(plan->Prepare(server));
  std::vector<std::unique_ptr<BenchWork>> workers;
  for (int i = 0; i < report.options.concurrency; ++i) {
    workers.push_back(plan->MakeWork(clients[static_cast<size_t>(i) % clients.size()]));
  }
  const auto clock = MakeSteadyClock(session.canceller);
  std::optional<Statistics> before;
  report.load = RunLoad(report.options, clock.get(), report.mix.size(), workers,
                        [&] { before = AskStatistics(servers, options); });
  workers.clear();  // open calls end and are counted
  if (session.canceller->cancelled()) return absl::CancelledError("interrupted");
  const std::optional<Statistics> after = AskStatistics(servers, options);
  if (before.has_value() && after.has_value()) {
    report.split.emplace();
    for (size_t i = 0; i < after->size(); ++i) {
      AddServerSplit((*before)[i], (*after)[i], &*report.split);
    }
  }
  if (report.load.total.succeeded() == 0 && !report.load.first_error.ok()) {
    return report.load.first_error;
  }
  if (report.target_p99_seconds.has_value()) {
    report.target_met = MeetsTarget(report.load, *report.target_p99_seconds);
  }
  TENON_RETURN_IF_ERROR(WriteReport(report, arguments, session));
  return report.target_met ? kExitOk : kExitCheckFailed;
}

}  // namespace

CommandSpec BenchSpec() {
  CommandSpec spec;
  spec.name = "bench";
  spec.usage = "[NETWORK.json | EINSUM]";
  spec.summary = "Puts load on a server and tells latencies, rates, and where the time went.";
  spec.details =
      "Closed loop: --concurrency workers, each of which asks again when its answer is there. "
      "Open\n"
      "loop: --rate; a latency counts from the time at which the request was due, so that what a\n"
      "slow server keeps waiting shows. What is due before the end is sent up to a window's "
      "length\n"
      "after it; what is late even then is never sent. It measures until the rates and mean\n"
      "latencies of three windows agree, or for --duration, or --requests. Everything is as a\n"
      "program sees it that uses the C++ client, copies and checks included; nothing is retried.";
  spec.exit_codes =
      "0 success, 1 --target-p99 is missed (a request that failed or was never sent counts as "
      "never "
      "answered), 2 usage, 3 the server refused every request, 4 it can't be reached, 130 "
      "interrupted.";
  spec.example = "tenon bench --rate 100 --arrivals poisson --duration 5 --json -";
  spec.options = {
      {"concurrency", "N",
       "Requests at the same time (default: 1); of an open loop at most (default: 64)."},
      {"rate", "R", "Open loop: requests per second."},
      {"arrivals",
       "KIND",
       "Gaps of an open loop: constant (default) or poisson.",
       false,
       {"constant", "poisson"}},
      {"seed", "N", "Seed of poisson gaps (default: 1)."},
      {"connections", "N", "Connections that the workers share (default: one per address)."},
      {"address", "ADDRESS", "A server, instead of --server; workers take turns.", true},
      {"warmup", "SECONDS", "Load before anything counts (default: 1; 0: none)."},
      {"duration", "SECONDS", "Measure for this long."},
      {"requests", "N", "Measure this many requests."},
      {"window", "SECONDS", "Length of a window (default: 2)."},
      {"windows", "N", "Windows at most (default: 10)."},
      {"stability", "PERCENT",
       "How far three windows may lie from their mean to count as stable (default: 10)."},
      {"target-p99", "MS",
       "Exit with 1 when the 99th percentile is above; requests that failed or were never sent "
       "count as infinitely late."},
      {"json", "FILE", "Write the report as JSON; - for the standard output."},
  };
  for (Option& option : BenchWorkOptions()) spec.options.push_back(std::move(option));
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.max_positionals = 1;
  return spec;
}

int RunBench(const Arguments& arguments, const Session& session) {
  const absl::StatusOr<int> code = Run(arguments, session);
  return code.ok() ? *code : Fail(session, code.status());
}

}  // namespace tenon::tool
