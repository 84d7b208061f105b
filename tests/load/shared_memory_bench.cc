// How fast large tensors get to a server on the same host and back: over the stream, and in shared
// memory, in one run.
//
//   shared_memory_bench [--bytes=100000000,1073741824] [--rounds=5]
//
// Prints JSON. Upload: a matrix of so many bytes is summed over its rows. Download: an outer
// product of so many bytes. Each way takes turns, after a round that does not count; medians of the
// rounds.
//   stream   in chunks
//   copied   in a pool of shared memory, where the client copies its operand first
//   in_place in the pool, where the operand was made; results are written there
// "seconds" are those of a whole call, "transport_seconds" without the provider's execution, and
// "gb_per_second" (1e9 bytes) by the latter. "ratio" compares with the stream.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "server/logging.h"
#include "tenon/client.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

using client::Client;
using client::ContractRequest;
using client::SharedPool;
using client::TensorView;
using Clock = std::chrono::steady_clock;

constexpr int64_t kRow = 1024;  // elements

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "shared_memory_bench: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status().ToString());
  return *std::move(value);
}

struct Samples {
  std::vector<double> seconds, transport_seconds;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(Client* client, const ContractRequest& request, bool counts, Samples* samples) {
  const Clock::time_point start = Clock::now();
  const auto outcome = OrDie(client->Contract(request));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!counts) return;
  if (request.result_in_pool && outcome.results.at(0).block == nullptr)
    Die("the pool was not used");
  samples->seconds.push_back(seconds);
  samples->transport_seconds.push_back(seconds - outcome.report.timing().execution_seconds());
}

nlohmann::ordered_json Describe(const std::map<std::string, Samples>& ways, int64_t bytes) {
  nlohmann::ordered_json object;
  const double stream = Median(ways.at("stream").transport_seconds);
  const double whole = Median(ways.at("stream").seconds);
  for (const auto& [way, samples] : ways) {
    const double transport = Median(samples.transport_seconds), seconds = Median(samples.seconds);
    object[way] = {{"seconds", seconds},
                   {"transport_seconds", transport},
                   {"gb_per_second", static_cast<double>(bytes) / transport / 1e9},
                   {"ratio", stream / transport},
                   {"whole_call_ratio", whole / seconds}};
  }
  return object;
}

nlohmann::ordered_json Upload(Client* client, const std::shared_ptr<SharedPool>& pool,
                              int64_t bytes, int rounds) {
  const TensorSpec spec{DType::kFloat64, {bytes / 8 / kRow, kRow}};
  const Tensor operand = OrDie(MakeCorpusTensor(1, 0, 1.0, spec));
  auto block = OrDie(pool->Allocate(operand.buffer.size_bytes()));
  std::memcpy(block.bytes().data(), operand.buffer.data(), block.bytes().size());
  ContractRequest request;
  request.einsum = "ab->b";
  std::map<std::string, Samples> ways;
  for (int round = 0; round <= rounds; ++round) {
    request.operands = {operand};
    request.pool = nullptr;
    Measure(client, request, round > 0, &ways["stream"]);
    request.pool = pool;
    Measure(client, request, round > 0, &ways["copied"]);
    request.operands = {TensorView(spec, block.bytes())};
    Measure(client, request, round > 0, &ways["in_place"]);
  }
  return Describe(ways, operand.buffer.size_bytes());
}

nlohmann::ordered_json Download(Client* client, const std::shared_ptr<SharedPool>& pool,
                                int64_t bytes, int rounds) {
  const Tensor left = OrDie(MakeCorpusTensor(1, 0, 1.0, {DType::kFloat64, {bytes / 8 / kRow}}));
  const Tensor right = OrDie(MakeCorpusTensor(1, 1, 1.0, {DType::kFloat64, {kRow}}));
  ContractRequest request;
  request.einsum = "a,b->ab";
  request.operands = {left, right};
  std::map<std::string, Samples> ways;
  for (int round = 0; round <= rounds; ++round) {
    request.pool = nullptr;
    request.result_in_pool = false;
    Measure(client, request, round > 0, &ways["stream"]);
    request.pool = pool;
    request.result_in_pool = true;
    Measure(client, request, round > 0, &ways["in_place"]);
  }
  return Describe(ways, bytes / 8 / kRow * kRow * 8);
}

void Run(const std::vector<int64_t>& sizes, int rounds) {
  server::InitLogging("error", false);
  server::Config config = TestConfig();
  const std::string prefix = "/tmp/tenon-bench-" + std::to_string(getpid());
  config.listen = {*server::ParseAddress("unix:" + prefix)};
  config.shared_memory_socket = prefix + ".shm";
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  // What was made in place, and a copy.
  const int64_t pool_bytes = 2 * largest + (int64_t{64} << 20);
  config.shared_memory_limit_bytes = config.shared_memory_pool_limit_bytes = pool_bytes;
  const auto server = StartOrDie(config);
  if (server == nullptr || !server->WaitUntilReady()) Die("the server did not start");
  Client client = OrDie(Client::Connect(server->addresses().front()));
  const auto pool = OrDie(client.OpenSharedPool(pool_bytes));
  nlohmann::ordered_json report = {{"rounds", rounds}, {"sizes", nlohmann::json::array()}};
  for (const int64_t bytes : sizes) {
    report["sizes"].push_back({{"bytes", bytes},
                               {"upload", Upload(&client, pool, bytes, rounds)},
                               {"download", Download(&client, pool, bytes, rounds)}});
  }
  std::puts(report.dump(2).c_str());
}

}  // namespace
}  // namespace tenon::testing

int main(int argc, char** argv) {
  std::vector<int64_t> sizes = {100'000'000, int64_t{1} << 30};
  int rounds = 5;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool good = false;
    if (absl::ConsumePrefix(&argument, "--rounds=")) {
      good = absl::SimpleAtoi(argument, &rounds) && rounds > 0;
    } else if (absl::ConsumePrefix(&argument, "--bytes=")) {
      sizes.clear();
      good = true;
      for (const auto part : absl::StrSplit(argument, ',')) {
        good &= absl::SimpleAtoi(part, &sizes.emplace_back()) && sizes.back() >= (1 << 20);
      }
    }
    if (good) continue;
    std::fprintf(stderr, "usage: %s [--bytes=N,...] [--rounds=N]\n", argv[0]);
    return 2;
  }
  tenon::testing::Run(sizes, rounds);
  return 0;
}
