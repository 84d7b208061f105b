// What the engine costs beside the arithmetic: a contraction of three tiny tensors, an empty slice,
// and preparing a request that was prepared before.
//
//   contraction_overhead [--threads N] [network.json]
//
// Prints one JSON object of seconds: medians of many repetitions, warm. With a network, also what
// preparing it takes, anew and from the cache.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "backends/core/cancel.h"
#include "backends/core/network.h"
#include "backends/cpu/provider.h"
#include "backends/plugin/provider.h"
#include "backends/schedule/contraction_job.h"
#include "backends/schedule/program_cache.h"
#include "nlohmann/json.hpp"
#include "tests/bench/contraction/or_die.h"

namespace tenon::bench {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::ContractionJob;
using schedule::ContractionRequest;

double MedianSeconds(int repeats, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const Clock::time_point start = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[repeats / 2];
}

class Overhead {
 public:
  explicit Overhead(int threads) : threads_(threads) {
    provider_ = OrDie(plugin::Provider::Create(cpu::CpuProviderApi(), ""));
    OrDie(provider_->WarmUp());
  }

  ContractionRequest Request(const Network& network, const std::vector<std::string>& sliced) const {
    ContractionRequest request;
    request.network = network;
    for (size_t k = 0; k < network.inputs.size(); ++k) {
      request.operands.push_back({DType::kFloat64, OrDie(InputShape(network, k))});
    }
    request.sliced = sliced;
    request.allow_slicing = false;
    request.threads = threads_;
    return request;
  }

  std::unique_ptr<ContractionJob> Prepare(const ContractionRequest& request,
                                          schedule::ProgramCache* cache) const {
    return OrDie(ContractionJob::Prepare(request, {provider_}, &cancel_, cache));
  }

  // Start and RunSet of three tensors of 2 by 2.
  double TinySeconds() {
    Network network;
    network.inputs = {{"a", "b"}, {"b", "c"}, {"c", "d"}};
    network.output = {"a", "d"};
    network.sizes = {{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}};
    const ContractionRequest request = Request(network, {});
    std::vector<std::unique_ptr<ContractionJob>> jobs;
    for (int i = 0; i < kRepeats; ++i) jobs.push_back(Prepare(request, &cache_));
    size_t next = 0;
    return MedianSeconds(kRepeats, [&] { Run(*jobs[next++], 3); });
  }

  // Per slice, where nothing is left to do in one: a product of numbers.
  double EmptySliceSeconds() {
    Network network;
    network.inputs = {{"a"}, {"b"}, {"a", "b"}};
    network.sizes = {{"a", 256}, {"b", 256}};
    const ContractionRequest request = Request(network, {"a", "b"});
    const double seconds = MedianSeconds(20, [&] { Run(*Prepare(request, &cache_), 3); });
    return seconds / (256 * 256);
  }

  double PrepareSeconds(const ContractionRequest& request, schedule::ProgramCache* cache) {
    return MedianSeconds(50, [&] { Prepare(request, cache); });
  }

  schedule::ProgramCache* cache() { return &cache_; }

 private:
  static constexpr int kRepeats = 2000;

  void Run(ContractionJob& job, size_t operands) {
    OrDie(job.Start(std::vector<const void*>(operands, values_.data())));
    OrDie(job.RunSet({}, result_.data(), nullptr));
  }

  const int threads_;
  std::shared_ptr<plugin::Provider> provider_;
  CancelToken cancel_;
  schedule::ProgramCache cache_{64, int64_t{64} << 20};
  const std::vector<double> values_ = std::vector<double>(256 * 256, 1.0);
  std::vector<double> result_ = std::vector<double>(16);
};

int Main(int argc, char** argv) {
  int threads = 2;
  std::string file;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--threads" && i + 1 < argc) {
      threads = std::atoi(argv[++i]);
    } else {
      file = argv[i];
    }
  }
  Overhead overhead(threads);
  nlohmann::json line = {{"threads", threads},
                         {"three_tiny_tensors_seconds", overhead.TinySeconds()},
                         {"empty_slice_seconds", overhead.EmptySliceSeconds()}};
  if (!file.empty()) {
    const NetworkFile network = OrDie(ReadNetworkFile(file));
    ContractionRequest request = overhead.Request(network.network, network.sliced);
    request.path = network.path;
    line["name"] = network.name;
    line["prepare_seconds"] = overhead.PrepareSeconds(request, nullptr);
    line["prepare_cached_seconds"] = overhead.PrepareSeconds(request, overhead.cache());
  }
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) { return tenon::bench::Main(argc, argv); }
