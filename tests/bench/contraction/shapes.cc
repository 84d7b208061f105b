// Times the shapes that contractions of circuits are made of, one step at a time, against what the
// machine can do: contraction_shapes [--threads N] [--repeat N]. One JSON object per line.
//
// - gate: a 4 x 4 gate into a state of 24 binary indices, complex64, at several positions; `ratio`
//   is the time over that of a non-temporal copy of the same bytes.
// - batch: products of n x n matrices, complex64, batches that fit in the second cache; `gflops`
//   on one core.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "backends/core/cancel.h"
#include "backends/core/strings.h"
#include "backends/cpu/provider.h"
#include "backends/schedule/contraction_job.h"
#include "nlohmann/json.hpp"
#include "tests/bench/contraction/machine_rates.h"
#include "tests/bench/contraction/or_die.h"

namespace tenon::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Fastest of `repeat` runs, each of `inner` contractions, in seconds per contraction.
struct Timing {
  double seconds = 1e30;
  std::string kernel;
};

class Shapes {
 public:
  Shapes(int threads, int repeat) : threads_(threads), repeat_(repeat) {
    provider_ = OrDie(plugin::Provider::Create(cpu::CpuProviderApi(), ""));
    OrDie(provider_->WarmUp());
  }

  void Gate(int x, int y) {
    constexpr int kQubits = 24;
    Network network;
    std::vector<std::string> state, output;
    for (int i = 0; i < kQubits; ++i) {
      state.push_back(StrCat("q", i));
      output.push_back(i == x || i == y ? StrCat("r", i) : state.back());
    }
    network.inputs = {state, {StrCat("r", x), StrCat("r", y), StrCat("q", x), StrCat("q", y)}};
    network.output = output;
    const Timing timing = Time(network, 2, threads_, 1);
    const MachineRates rates = MeasureRates(DType::kComplex64, threads_);
    const double bytes = 2.0 * 8 * (1 << kQubits);
    Print({{"shape", "gate"},
           {"axes", {x, y}},
           {"threads", threads_},
           {"seconds", timing.seconds},
           {"ratio", timing.seconds * rates.copy_bytes / bytes},
           {"copy_gb_s", rates.copy_bytes / 1e9},
           {"kernel", timing.kernel}});
  }

  // `batch_last`: the batch is the innermost axis of all three tensors.
  void Batch(int64_t n, bool batch_last) {
    const int64_t items = 16384 / (n * n);  // three tensors of 128 KiB
    Network network;
    network.inputs = {{"b", "i", "k"}, {"b", "k", "j"}};
    network.output = {"b", "i", "j"};
    if (batch_last) {
      network.inputs = {{"i", "k", "b"}, {"k", "j", "b"}};
      network.output = {"i", "j", "b"};
    }
    sizes_ = {{"b", items}, {"i", n}, {"j", n}, {"k", n}};
    const Timing timing = Time(network, 0, 1, 200);
    Print({{"shape", "batch"},
           {"n", n},
           {"items", items},
           {"batch_last", batch_last},
           {"gflops", 8.0 * static_cast<double>(items * n * n * n) / timing.seconds / 1e9},
           {"kernel", timing.kernel}});
  }

 private:
  static void Print(const nlohmann::json& line) { std::cout << line.dump() << std::endl; }

  // `extent` of every index, or 0: sizes_ has them.
  Timing Time(const Network& network, int64_t extent, int threads, int inner) {
    schedule::ContractionRequest request;
    request.network = network;
    request.threads = threads;
    std::vector<Tensor> operands;
    for (const auto& input : network.inputs) {
      TensorSpec spec{DType::kComplex64, {}};
      for (const std::string& index : input) {
        spec.shape.push_back(extent > 0 ? extent : sizes_.at(index));
      }
      operands.push_back(OrDie(MakeCorpusTensor(7, operands.size(), 1.0, spec)));
      request.operands.push_back(spec);
    }
    CancelToken cancel;
    const auto job = OrDie(schedule::ContractionJob::Prepare(request, {provider_}, &cancel));
    Tensor result = OrDie(Tensor::Allocate(job->program().output_spec()));
    std::vector<const void*> pointers;
    for (const Tensor& operand : operands) pointers.push_back(operand.buffer.data());
    OrDie(job->Start(pointers));
    Timing timing;
    timing.kernel = std::string(job->StepKernelName(0));
    for (int i = 0; i <= repeat_; ++i) {
      const Clock::time_point start = Clock::now();
      for (int j = 0; j < inner; ++j) OrDie(job->RunSet({}, result.buffer.data(), nullptr));
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / inner;
      if (i > 0) timing.seconds = std::min(timing.seconds, seconds);
    }
    return timing;
  }

  const int threads_, repeat_;
  std::shared_ptr<plugin::Provider> provider_;
  std::map<std::string, int64_t> sizes_;
};

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  int threads = 2, repeat = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    (std::string(argv[i]) == "--threads" ? threads : repeat) = std::atoi(argv[i + 1]);
  }
  tenon::bench::Shapes shapes(threads, repeat);
  for (const int64_t n : {2, 4, 8, 16}) {
    for (const bool batch_last : {false, true}) shapes.Batch(n, batch_last);
  }
  for (const auto& [x, y] : {std::pair(2, 7), {5, 19}, {10, 22}, {1, 23}, {22, 23}, {20, 21}}) {
    shapes.Gate(x, y);
  }
}
