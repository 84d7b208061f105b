#include "client/cpp/tool/bench_report.h"

#include <algorithm>
#include <cmath>

#include "backends/core/error.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

constexpr std::pair<const char*, double> kPercentiles[] = {
    {"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"p99.9", 99.9}};

double Rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

Json LatencyJson(const LatencyHistogram& histogram) {
  Json json;
  json["count"] = histogram.count();
  json["mean"] = histogram.Mean() / 1e9;
  for (const auto& [name, percent] : kPercentiles) {
    json[name] = static_cast<double>(histogram.Percentile(percent)) / 1e9;
  }
  json["max"] = static_cast<double>(histogram.max()) / 1e9;
  return json;
}

std::vector<std::string> LatencyRow(const std::string& name, const LatencyHistogram& histogram) {
  std::vector<std::string> row = {name, StrCat(histogram.count()),
                                  FormatSeconds(histogram.Mean() / 1e9)};
  for (const auto& [label, percent] : kPercentiles) {
    row.push_back(FormatSeconds(static_cast<double>(histogram.Percentile(percent)) / 1e9));
  }
  row.push_back(FormatSeconds(static_cast<double>(histogram.max()) / 1e9));
  return row;
}

// With what was never sent: it has waited until the end at least.
LatencyHistogram Latencies(const LoadResult& load) {
  LatencyHistogram all = load.total.All();
  all.Merge(load.unsent);
  return all;
}

Json LoadJson(const BenchReport& report) {
  const LoadOptions& options = report.options;
  Json json;
  json["loop"] = options.rate.has_value() ? "open" : "closed";
  json["concurrency"] = options.concurrency;
  json["connections"] = report.connections;
  json["rate"] = options.rate.has_value() ? Json(*options.rate) : Json();
  json["arrivals"] =
      options.rate.has_value() ? Json(options.poisson ? "poisson" : "constant") : Json();
  json["warmup_seconds"] = options.warmup_seconds;
  json["window_seconds"] = options.window_seconds;
  return json;
}

const v1::MethodStatistics* Find(const v1::GetStatisticsResponse& statistics,
                                 const std::string& method) {
  for (const v1::MethodStatistics& known : statistics.methods()) {
    if (known.method() == method) return &known;
  }
  return nullptr;
}

v1::PhaseStatistics PhaseOf(const v1::MethodStatistics* method, const std::string& name) {
  for (int i = 0; method != nullptr && i < method->phases_size(); ++i) {
    if (method->phases(i).phase() == name) return method->phases(i);
  }
  return v1::PhaseStatistics();
}

void AddPhase(const std::string& name, int64_t count, double seconds, ServerSplit* split) {
  const auto known = std::find_if(split->phases.begin(), split->phases.end(),
                                  [&](const auto& phase) { return phase.name == name; });
  ServerSplit::Phase& phase = known == split->phases.end() ? split->phases.emplace_back() : *known;
  phase.name = name;
  phase.count += count;
  phase.seconds += seconds;
}

}  // namespace

void AddServerSplit(const v1::GetStatisticsResponse& before, const v1::GetStatisticsResponse& after,
                    ServerSplit* split) {
  for (const v1::MethodStatistics& method : after.methods()) {
    // What the load asks for; the statistics calls themselves are none of it.
    if (method.method() != "tenon.v1.ContractionService/Contract" &&
        method.method() != "tenon.v1.MeasurementService/Measure") {
      continue;
    }
    const v1::MethodStatistics* earlier = Find(before, method.method());
    for (const v1::PhaseStatistics& phase : method.phases()) {
      const v1::PhaseStatistics start = PhaseOf(earlier, phase.phase());
      const int64_t count = phase.count() - start.count();
      if (count <= 0) continue;
      AddPhase(phase.phase(), count, phase.total_seconds() - start.total_seconds(), split);
    }
  }
}

bool MeetsTarget(const LoadResult& load, double target_seconds) {
  const LatencyHistogram all = load.total.All();
  const auto requests =
      static_cast<double>(all.count() + load.total.failed() + load.unsent.count());
  if (requests == 0) return false;
  // The rank among all requests; those without an answer stand at the end.
  const double rank = std::ceil(0.99 * requests);
  if (rank > static_cast<double>(all.count())) return false;
  const double percent = 100 * rank / static_cast<double>(all.count());
  return static_cast<double>(all.Percentile(percent)) / 1e9 <= target_seconds;
}

Json BenchToJson(const BenchReport& report) {
  const Window& total = report.load.total;
  Json json;
  json["work"] = report.description;
  json["servers"] = report.servers;
  json["load"] = LoadJson(report);
  json["seconds"] = report.load.seconds;
  json["stable"] = report.load.stable.has_value() ? Json(*report.load.stable) : Json();
  json["requests"] = {{"succeeded", total.succeeded()},
                      {"failed", total.failed()},
                      {"unsent", report.load.unsent.count()}};
  json["requests_per_second"] = Rate(static_cast<double>(total.succeeded()), report.load.seconds);
  json["bytes_per_second"] = Rate(static_cast<double>(total.bytes), report.load.seconds);
  json["latency_seconds"] = LatencyJson(Latencies(report.load));
  for (size_t k = 0; k < report.mix.size(); ++k) {
    json["kinds"][report.mix[k].first] = LatencyJson(total.latency[k]);
  }
  json["errors"] = Json::object();
  for (const auto& [reason, count] : total.errors) json["errors"][reason] = count;
  json["server"] = report.split.has_value() ? Json::object() : Json();
  for (size_t i = 0; report.split.has_value() && i < report.split->phases.size(); ++i) {
    const ServerSplit::Phase& phase = report.split->phases[i];
    json["server"][phase.name] = {
        {"count", phase.count}, {"mean_seconds", phase.seconds / static_cast<double>(phase.count)}};
  }
  json["windows"] = Json::array();
  for (const WindowFigures& window : report.load.windows) {
    json["windows"].push_back({{"requests_per_second", window.requests_per_second},
                               {"p99_seconds", window.p99_seconds},
                               {"failed", window.failed}});
  }
  if (report.target_p99_seconds.has_value()) {
    json["target"] = {{"p99_seconds", *report.target_p99_seconds}, {"met", report.target_met}};
  }
  return json;
}

std::string BenchToText(const BenchReport& report) {
  const Window& total = report.load.total;
  const LoadOptions& options = report.options;
  std::string loop = StrCat("closed loop of ", options.concurrency);
  if (options.rate.has_value()) {
    loop = StrCat("open loop, ", FormatNumber(*options.rate), " requests/s, ",
                  options.poisson ? "poisson" : "constant", ", at most ", options.concurrency,
                  " at the same time");
  }
  std::vector<std::pair<std::string, std::string>> rows = {
      {"work", report.description},
      {"load", StrCat(loop, ", ", report.connections, " connection(s)")},
      {"measured",
       StrCat(FormatSeconds(report.load.seconds), !report.load.stable.has_value() ? ""
                                                  : *report.load.stable           ? ", stable"
                                                                        : ", NOT stable")},
      {"requests/s",
       FormatNumber(Rate(static_cast<double>(total.succeeded()), report.load.seconds))}};
  if (total.bytes > 0) {
    rows.emplace_back(
        "payload",
        StrCat(FormatBytes(Rate(static_cast<double>(total.bytes), report.load.seconds)), "/s"));
  }
  if (report.load.unsent.count() > 0) {
    rows.emplace_back("never sent",
                      StrCat(report.load.unsent.count(), ": the rate can't be kept up"));
  }
  for (const auto& [reason, count] : total.errors)
    rows.emplace_back("failed", StrCat(count, " ", reason));
  std::string text = FormatPairs(rows);

  std::vector<std::string> header = {"latency", "requests", "mean"};
  for (const auto& [name, percent] : kPercentiles) header.emplace_back(name);
  header.emplace_back("max");
  std::vector<std::vector<std::string>> table = {LatencyRow("all", Latencies(report.load))};
  for (size_t k = 0; report.mix.size() > 1 && k < report.mix.size(); ++k) {
    table.push_back(LatencyRow(report.mix[k].first, total.latency[k]));
  }
  text += StrCat("\n", FormatTable(header, table));
  if (report.split.has_value() && !report.split->phases.empty()) {
    table.clear();
    for (const ServerSplit::Phase& phase : report.split->phases) {
      table.push_back({phase.name, StrCat(phase.count),
                       FormatSeconds(phase.seconds / static_cast<double>(phase.count))});
    }
    text += StrCat("\n", FormatTable({"on the server", "calls", "mean"}, table));
  }
  if (report.target_p99_seconds.has_value()) {
    text += StrCat("\ntarget: p99 of ", FormatSeconds(*report.target_p99_seconds),
                   report.target_met ? " is met\n" : " is MISSED\n");
  }
  return text;
}

}  // namespace tenon::tool
