// Times measures inside the engine: the original side, the first projection, and further ones.
//
//   measures_profile [--rows N] [--columns D] [--width E] [--threads N] [--repeat N] [--budget
//   BYTES]
//                    [--data hd.npy --projection ld.npy] spec...
//
// A spec is an alias with parameters: tnc:k=20. Prints one JSON object. Without files the data are
// normal, and the projection is the first columns plus noise.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "backends/core/npy.h"
#include "backends/core/tensor.h"
#include "backends/cpu/provider.h"
#include "backends/measurement/session.h"
#include "backends/plugin/provider.h"
#include "nlohmann/json.hpp"
#include "tests/bench/contraction/or_die.h"

namespace tenon::bench {
namespace {

using measurement::RawSpec;
using measurement::Session;
using measurement::SessionOptions;

struct Options {
  int64_t rows = 5000, columns = 50, width = 2, budget = 0, expected = 0;
  int threads = 2, repeat = 5;
  std::string data, projection;
  std::vector<RawSpec> specs;
};

RawSpec ParseSpec(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  RawSpec spec{parts[0], {}};
  if (parts.size() == 1) return spec;
  for (const absl::string_view pair : absl::StrSplit(parts[1], ',')) {
    const std::vector<std::string> name_value = absl::StrSplit(pair, '=');
    int64_t integer = 0;
    double real = 0;
    if (absl::SimpleAtoi(name_value[1], &integer)) {
      spec.parameters[name_value[0]] = integer;
    } else if (absl::SimpleAtod(name_value[1], &real)) {
      spec.parameters[name_value[0]] = real;
    } else {
      spec.parameters[name_value[0]] = name_value[1];
    }
  }
  return spec;
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int a = 1; a < argc; ++a) {
    const std::string name = argv[a];
    if (!name.starts_with("--")) {
      options.specs.push_back(ParseSpec(name));
      continue;
    }
    const std::string value = a + 1 < argc ? argv[++a] : "";
    if (name == "--rows") options.rows = std::atoll(value.c_str());
    if (name == "--columns") options.columns = std::atoll(value.c_str());
    if (name == "--width") options.width = std::atoll(value.c_str());
    if (name == "--expected") options.expected = std::atoll(value.c_str());
    if (name == "--budget") options.budget = std::atoll(value.c_str());
    if (name == "--threads") options.threads = std::atoi(value.c_str());
    if (name == "--repeat") options.repeat = std::atoi(value.c_str());
    if (name == "--data") options.data = value;
    if (name == "--projection") options.projection = value;
  }
  return options;
}

Tensor Normal(int64_t rows, int64_t columns) {
  Tensor tensor = OrDie(Tensor::Allocate({DType::kFloat64, {rows, columns}}));
  std::mt19937_64 engine(0);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < rows * columns; ++i) tensor.buffer.as<double>()[i] = normal(engine);
  return tensor;
}

Tensor Projection(const Tensor& data, int64_t width) {
  const int64_t rows = data.spec.shape[0], columns = data.spec.shape[1];
  Tensor tensor = OrDie(Tensor::Allocate({DType::kFloat64, {rows, width}}));
  std::mt19937_64 engine(1);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < width; ++c) {
      tensor.buffer.as<double>()[i * width + c] =
          data.buffer.as<double>()[i * columns + c % columns] + 0.5 * normal(engine);
    }
  }
  return tensor;
}

// Least seconds of the repetitions of a step: by the clock, and of the processors, all threads.
struct Least {
  double wall = std::numeric_limits<double>::infinity(), cpu = wall;

  void Add(const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    wall = std::min(wall, seconds.count());
    cpu = std::min(cpu, static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
  }
};

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const Tensor data = options.data.empty() ? Normal(options.rows, options.columns)
                                           : OrDie(ReadNpyFile(options.data));
  const Tensor projection = options.projection.empty() ? Projection(data, options.width)
                                                       : OrDie(ReadNpyFile(options.projection));
  auto provider = OrDie(plugin::Provider::Create(cpu::CpuProviderApi(), ""));
  SessionOptions session_options;
  session_options.rows = data.spec.shape[0];
  session_options.original_columns = data.spec.shape[1];
  session_options.max_embedded_columns = projection.spec.shape[1];
  session_options.memory_budget_bytes = options.budget;
  session_options.threads = options.threads;
  session_options.expected_projections = options.expected;
  nlohmann::json result;
  Least original, first, further;
  for (int r = 0; r < options.repeat; ++r) {
    auto session = OrDie(Session::Prepare(options.specs, session_options, {}, provider));
    original.Add([&] { OrDie(session->BindOriginal(data, nullptr)); });
    for (int p = 0; p < 2; ++p) {
      measurement::ProjectionScores scores;
      (p == 0 ? first : further).Add([&] {
        scores = OrDie(session->Measure(projection, nullptr));
      });
      for (size_t s = 0; s < scores.specs.size(); ++s) {
        for (const auto& [key, value] : scores.specs[s].scores) result["scores"][s][key] = value;
      }
      result["metric_seconds"] = scores.info.metric_seconds;
      result["resource_seconds"] = scores.info.resource_seconds;
    }
    result["planned_peak_bytes"] = session->planned_peak_bytes();
  }
  const std::pair<const char*, const Least*> steps[] = {
      {"original", &original}, {"first", &first}, {"further", &further}};
  for (const auto& [name, least] : steps) {
    result[std::string(name) + "_seconds"] = least->wall;
    result[std::string(name) + "_cpu_seconds"] = least->cpu;
  }
  result["threads"] = options.threads;
  std::cout << result.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) { return tenon::bench::Main(argc, argv); }
