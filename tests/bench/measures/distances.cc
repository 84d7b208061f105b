// Times the distance matrices of a data set and of a projection alone, with the engine's kernel.
//
//   measures_distances [--rows N] [--columns D] [--width E] [--threads N] [--repeat N]
//
// All n x n distances of both spaces are computed in blocks of rows that stay in the cache, and
// dropped: what a measure of neighbours takes beyond that is its own work. Prints one JSON object:
// the least seconds of the repetitions, both matrices together, and the rows per block.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "backends/core/memory.h"
#include "backends/core/parallel.h"
#include "backends/core/tensor.h"
#include "backends/cpu/distance.h"
#include "nlohmann/json.hpp"
#include "tests/bench/contraction/or_die.h"

namespace tenon::bench {
namespace {

struct Options {
  int64_t rows = 10000, columns = 50, width = 2;
  int threads = 2, repeat = 5;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int a = 1; a + 1 < argc; a += 2) {
    const std::string name = argv[a];
    const int64_t value = std::atoll(argv[a + 1]);
    if (name == "--rows") options.rows = value;
    if (name == "--columns") options.columns = value;
    if (name == "--width") options.width = value;
    if (name == "--threads") options.threads = static_cast<int>(value);
    if (name == "--repeat") options.repeat = static_cast<int>(value);
  }
  return options;
}

// All distances of n normal points, `block_rows` rows at a time. Returns seconds, packing included.
double SecondsOfMatrix(int64_t n, int64_t columns, int64_t block_rows, const Parallel& parallel) {
  Tensor points = OrDie(Tensor::Allocate({DType::kFloat64, {n, columns}}));
  std::mt19937_64 engine(0);
  std::normal_distribution<double> normal;
  std::generate_n(points.buffer.as<double>(), n * columns, [&] { return normal(engine); });
  tenon_matrix matrix = {};
  matrix.data = points.buffer.data();
  matrix.dtype = static_cast<int32_t>(DType::kFloat64);
  matrix.rows = n;
  matrix.columns = columns;
  const int64_t row = cpu::PaddedRows(n);
  std::vector<Buffer> scratch;
  for (int slot = 0; slot < parallel.threads(); ++slot) {
    scratch.push_back(OrDie(Buffer::Allocate(block_rows * row * int64_t{sizeof(double)})));
  }

  const auto start = std::chrono::steady_clock::now();
  const cpu::PackedPoints packed = OrDie(cpu::PackedPoints::Pack(matrix));
  OrDie(parallel.ForEach((n + block_rows - 1) / block_rows, [&](int64_t block, int slot) {
    const int64_t first = block * block_rows, rows = std::min(block_rows, n - first);
    auto* keys = scratch[slot].as<double>();
    packed.KeyRows(first, rows, 0, keys);
    cpu::KeysToDistances(packed.kind(), keys, rows * row);
  }));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const Parallel parallel(options.threads, nullptr);
  // Half a level-2 cache a thread.
  constexpr int64_t kBlockBytes = int64_t{512} << 10;
  const int64_t row_bytes = cpu::PaddedRows(options.rows) * int64_t{sizeof(double)};
  const int64_t block_rows = std::max<int64_t>(4, kBlockBytes / row_bytes);
  std::vector<double> seconds;
  for (int r = 0; r < options.repeat; ++r) {
    seconds.push_back(SecondsOfMatrix(options.rows, options.columns, block_rows, parallel) +
                      SecondsOfMatrix(options.rows, options.width, block_rows, parallel));
  }
  const nlohmann::json result = {{"seconds", *std::min_element(seconds.begin(), seconds.end())},
                                 {"raw", seconds},
                                 {"rows", options.rows},
                                 {"block_rows", block_rows},
                                 {"threads", options.threads}};
  std::cout << result.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) { return tenon::bench::Main(argc, argv); }
