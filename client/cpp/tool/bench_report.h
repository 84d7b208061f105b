// What `tenon bench` tells: for people and as JSON.

#ifndef TENON_CLIENT_CPP_TOOL_BENCH_REPORT_H_
#define TENON_CLIENT_CPP_TOOL_BENCH_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/tool/bench_load.h"
#include "client/cpp/tool/bench_work.h"
#include "client/cpp/tool/json.h"
#include "tenon/v1/provider.pb.h"

namespace tenon::tool {

// Where the servers' calls spent their time: the difference of the statistics after and before.
// Other clients' calls are among them.
struct ServerSplit {
  struct Phase {
    std::string name;  // as PhaseStatistics.phase
    int64_t count = 0;
    double seconds = 0;
  };
  // In the order of the statistics.
  std::vector<Phase> phases;
};
// Adds the difference of one server.
void AddServerSplit(const v1::GetStatisticsResponse& before, const v1::GetStatisticsResponse& after,
                    ServerSplit* split);

// Whether a latency target is met: the 99th percentile of all requests lies at or below it, where
// those that failed or were never sent count as never answered.
bool MeetsTarget(const LoadResult& load, double target_seconds);

// Everything that the report is made from.
struct BenchReport {
  std::string description;
  std::vector<std::string> servers;
  LoadOptions options;
  int connections = 1;
  BenchMix mix;
  LoadResult load;
  std::optional<ServerSplit> split;  // absent: a server has no statistics
  std::optional<double> target_p99_seconds;
  bool target_met = true;
};

// Seconds and counts; percentiles by the names "p50" to "p99.9" and "max".
Json BenchToJson(const BenchReport& report);
std::string BenchToText(const BenchReport& report);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_BENCH_REPORT_H_
