// Times contractions inside the engine, step by step, against the machine's floor.
//
//   contraction_profile [--threads N] [--dtype NAME] [--repeat N] [--steps N] [--all-steps]
//                       [--no-floor] network.json...
//
// Prints one JSON object per network on stdout, with --all-steps with every step's predicted
// seconds on one thread and its fastest time, and the most expensive steps on stderr with --steps.
// --no-floor does not measure the machine. The floor of a step is max(flops / GEMM peak, bytes /
// copy rate): no implementation that stores the step's result can be faster. As in a warm server,
// repetitions find their program in the cache; prepare_seconds is what making it took.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/core/block_pool.h"
#include "backends/core/cancel.h"
#include "backends/core/network.h"
#include "backends/core/strings.h"
#include "backends/cpu/provider.h"
#include "backends/plugin/calibration.h"
#include "backends/plugin/provider.h"
#include "backends/schedule/contraction_job.h"
#include "backends/schedule/program_cache.h"
#include "nlohmann/json.hpp"
#include "tests/bench/contraction/machine_rates.h"
#include "tests/bench/contraction/or_die.h"

namespace tenon::bench {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::ContractionJob;

struct Options {
  int threads = 2;
  int repeat = 3;
  int steps = 0;
  bool all_steps = false;  // as JSON, each with its fastest time
  bool floor = true;
  std::string dtype, kernels;
  std::vector<std::string> files;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Run {
  double setup = 0, start = 0, set = 0;
  double total() const { return setup + start + set; }
};

// The figures of one step, over all its runs.
struct StepFigures {
  std::string text;
  double seconds = 0, floor = 0, runs = 0, predicted = 0;
  nlohmann::json sizes;
};

double GroupSize(const tenon_mode* modes, int count) {
  return std::accumulate(modes, modes + count, 1.0, [](double size, const tenon_mode& mode) {
    return size * static_cast<double>(mode.extent);
  });
}

std::string ModesText(const tenon_mode* modes, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += StrCat(i > 0 ? " " : "", modes[i].extent, ":", modes[i].stride_a, ",",
                   modes[i].stride_b, ",", modes[i].stride_c);
  }
  return StrCat("[", text, "]");
}

StepFigures FiguresOf(const tenon_step& step, DType dtype, const MachineRates& rates) {
  const tenon_mode* modes = step.modes;
  const double batch = GroupSize(modes, step.n_batch);
  const double m = GroupSize(modes + step.n_batch, step.n_m);
  const double n = GroupSize(modes + step.n_batch + step.n_m, step.n_n);
  const double k = GroupSize(modes + step.n_batch + step.n_m + step.n_n, step.n_k);
  const bool contracts = step.kind == TENON_STEP_CONTRACT;
  const double flops = contracts ? batch * m * n * k * (IsComplex(dtype) ? 8 : 2) : 0;
  double seconds = 0;
  const auto bytes = static_cast<double>(DTypeSize(dtype));
  for (const double elements : {m * k, contracts ? k * n : 0, m * n}) {
    const double tensor = batch * elements * bytes;
    // A copy reads and writes, so a tensor that is only read or written takes half of it.
    seconds += tensor / (tensor < kCachedTensorBytes ? rates.cached_copy_bytes : rates.copy_bytes);
  }
  StepFigures figures;
  figures.floor = std::max(flops / rates.gemm_flops, seconds);
  figures.sizes = {{"b", batch},
                   {"m", m},
                   {"n", n},
                   {"k", k},
                   {"phase", step.phase},
                   {"level", step.level},
                   {"contracts", contracts}};
  figures.text = StrCat(contracts ? "contract " : "unary ", batch, " x ", m, " x ", n, " x ", k,
                        " phase ", step.phase, " level ", step.level);
  const tenon_mode* next = modes;
  for (const auto& [name, count] :
       {std::pair("b", step.n_batch), {"m", step.n_m}, {"n", step.n_n}, {"k", step.n_k}}) {
    figures.text += StrCat(" ", name, ModesText(next, count));
    next += count;
  }
  return figures;
}

class Profile {
 public:
  explicit Profile(const Options& options) : options_(options) {}

  void Measure(const std::string& path) {
    const NetworkFile file = OrDie(ReadNetworkFile(path));
    request_ = schedule::ContractionRequest();
    request_.network = file.network;
    request_.path = file.path;
    request_.sliced = file.sliced;
    request_.allow_slicing = false;
    request_.threads = options_.threads;
    dtype_ = options_.dtype.empty() ? file.dtype.value_or(DType::kFloat64)
                                    : OrDie(DTypeFromName(options_.dtype));
    MakeOperands(file);
    fastest_steps_.clear();
    // Predictions are for the machine as it is now: neighbours come and go.
    const Clock::time_point start = Clock::now();
    provider_ = OrDie(plugin::Provider::Create(cpu::CpuProviderApi(), options_.kernels));
    OrDie(provider_->WarmUp());
    OrDie(provider_->Calibrate(nullptr));
    calibration_seconds_ = SecondsSince(start);
    cache_ = std::make_unique<schedule::ProgramCache>(64, int64_t{64} << 20);
    if (options_.floor) rates_[dtype_] = MeasureRates(dtype_, options_.threads);  // clocks drift
    // The fastest of all, as the rates are; the first one warms up.
    Run fastest = RunOnce();
    for (int i = 0; i < options_.repeat; ++i) {
      std::vector<StepFigures> figures = std::move(figures_);
      const Run run = RunOnce();
      if (i > 0 && run.total() >= fastest.total()) {
        figures_ = std::move(figures);
      } else {
        fastest = run;
      }
    }
    Print(file.name, fastest);
  }

 private:
  void MakeOperands(const NetworkFile& file) {
    operands_.clear();
    result_ = Tensor();
    for (size_t k = 0; k < file.network.inputs.size(); ++k) {
      const TensorSpec spec{dtype_, OrDie(InputShape(file.network, k))};
      operands_.push_back(OrDie(MakeCorpusTensor(*file.seed, k, file.scales[k], spec)));
      request_.operands.push_back(spec);
    }
  }

  Run RunOnce() {
    CancelToken cancel;
    Run run;
    Clock::time_point start = Clock::now();
    const auto job = OrDie(ContractionJob::Prepare(request_, {provider_}, &cancel, cache_.get()));
    run.setup = SecondsSince(start);
    if (!job->Report().cached) prepare_seconds_ = run.setup;
    std::vector<const void*> pointers;
    for (const Tensor& operand : operands_) pointers.push_back(operand.buffer.data());
    if (result_.buffer.data() == nullptr) {
      result_ = OrDie(Tensor::Allocate(job->program().output_spec()));
    }
    start = Clock::now();
    OrDie(job->Start(pointers));
    run.start = SecondsSince(start);
    start = Clock::now();
    OrDie(job->RunSet({}, result_.buffer.data(), nullptr));
    run.set = SecondsSince(start);
    TakeFigures(*job);
    return run;
  }

  void TakeFigures(const ContractionJob& job) {
    const schedule::ContractionReport report = job.Report();
    const tenon_run_statistics& statistics = report.providers.front().statistics;
    flops_ = report.flops_done;
    predicted_ = job.predicted_seconds().value_or(-1);
    workers_ = report.providers.front().workers;
    peak_bytes_ = report.measured_peak_bytes;
    figures_.clear();
    for (int i = 0; i < job.program().descriptor().n_steps; ++i) {
      StepFigures figures = FiguresOf(job.program().descriptor().steps[i], dtype_, rates_[dtype_]);
      figures.runs = static_cast<double>(statistics.step_runs[i]);
      figures.floor *= figures.runs;
      figures.seconds = statistics.step_seconds[i];
      double& fastest = fastest_steps_.emplace(i, figures.seconds).first->second;
      fastest = std::min(fastest, figures.seconds);
      figures.sizes["seconds"] = fastest;
      figures.predicted = job.StepPredictedSeconds(i).value_or(0) * figures.runs;
      figures.sizes["kernel"] = std::string(job.StepKernelName(i));
      figures.text = StrCat(job.StepKernelName(i), " ", figures.text);
      figures_.push_back(std::move(figures));
    }
  }

  void Print(const std::string& name, const Run& run) {
    double floor = 0;
    for (const StepFigures& figures : figures_) floor += figures.floor;
    const MachineRates& rates = rates_[dtype_];
    nlohmann::json line = {{"name", name},
                           {"dtype", std::string(DTypeName(dtype_))},
                           {"threads", options_.threads},
                           {"seconds", run.total()},
                           {"predicted_seconds", predicted_},
                           {"workers", workers_},
                           {"calibration_seconds", calibration_seconds_},
                           {"prepare_seconds", prepare_seconds_},
                           {"setup_seconds", run.setup},
                           {"start_seconds", run.start},
                           {"set_seconds", run.set},
                           {"floor_seconds", floor},
                           {"steps", figures_.size()},
                           {"gflops", flops_ / run.total() / 1e9},
                           {"peak_bytes", peak_bytes_},
                           {"gemm_peak_gflops", rates.gemm_flops / 1e9},
                           {"copy_gb_s", rates.copy_bytes / 1e9},
                           {"cached_copy_gb_s", rates.cached_copy_bytes / 1e9}};
    if (options_.all_steps) {
      const tenon_calibration& times = *provider_->calibration();
      line["speedups"] = {times.arithmetic_speedup, times.traffic_speedup};
      line["factors"] = std::vector<double>(times.factors, times.factors + times.n_factors);
      for (const StepFigures& figures : figures_) {
        nlohmann::json step = figures.sizes;
        step["runs"] = figures.runs;
        step["predicted_seconds"] = figures.predicted;
        line["all_steps"].push_back(std::move(step));
      }
    }
    std::cout << line.dump() << std::endl;
    std::sort(figures_.begin(), figures_.end(), [](const StepFigures& x, const StepFigures& y) {
      return x.seconds - x.floor > y.seconds - y.floor;
    });
    for (int i = 0; i < std::min<int>(options_.steps, static_cast<int>(figures_.size())); ++i) {
      const StepFigures& figures = figures_[i];
      std::cerr << StrCat("  ", figures.seconds * 1e3, " ms, floor ", figures.floor * 1e3, " ms, ",
                          figures.runs, " runs: ", figures.text, "\n");
    }
  }

  const Options& options_;
  std::shared_ptr<plugin::Provider> provider_;
  schedule::ContractionRequest request_;
  DType dtype_ = DType::kFloat64;
  std::vector<Tensor> operands_;
  Tensor result_;
  std::map<DType, MachineRates> rates_;
  std::map<int, double> fastest_steps_;  // seconds, by step
  std::vector<StepFigures> figures_;
  std::unique_ptr<schedule::ProgramCache> cache_;
  double calibration_seconds_ = 0;
  double prepare_seconds_ = 0;
  double flops_ = 0, predicted_ = 0;
  int64_t workers_ = 0;
  int64_t peak_bytes_ = 0;
};

Options ParseArguments(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return std::string(++i < argc ? argv[i] : ""); };
    if (argument == "--threads") {
      options.threads = std::atoi(value().c_str());
    } else if (argument == "--repeat") {
      options.repeat = std::atoi(value().c_str());
    } else if (argument == "--steps") {
      options.steps = std::atoi(value().c_str());
    } else if (argument == "--no-floor") {
      options.floor = false;
    } else if (argument == "--all-steps") {
      options.all_steps = true;
    } else if (argument == "--dtype") {
      options.dtype = value();
    } else if (argument == "--kernels") {
      options.kernels = "kernels=" + value();
    } else {
      options.files.push_back(argument);
    }
  }
  return options;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  const tenon::bench::Options options = tenon::bench::ParseArguments(argc, argv);
  tenon::BlockPool::Shared().SetLimit(int64_t{8} << 30);  // memory stays warm, as in a server
  tenon::bench::Profile profile(options);
  for (const std::string& file : options.files) profile.Measure(file);
}
