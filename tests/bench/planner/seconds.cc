// Predicted and measured seconds of contractions, and of plans that are chosen by seconds and by
// flops.
//
//   planner_seconds [--threads N] [--repeat N] [--search S] network.json...
//
// For every network: measures the machine, as a server does when it starts; searches for S seconds
// by flops and by seconds (results of at most 2^27 elements); then by turns measures the machine
// again and runs these plans and the file's own, and prints one JSON object with the shortest time
// of each beside the shortest that was predicted.
// Without --search only the file's own plan is run.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/contraction/path.h"
#include "backends/core/block_pool.h"
#include "backends/core/cancel.h"
#include "backends/core/network.h"
#include "backends/cpu/provider.h"
#include "backends/planner/search.h"
#include "backends/planner/time_model.h"
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

struct Options {
  int threads = 2;
  int repeat = 3;
  double search = 0;
  std::vector<std::string> files;
};

class Comparison {
 public:
  Comparison(const Options& options, const std::string& path)
      : options_(options), file_(OrDie(ReadNetworkFile(path))) {
    provider_ = OrDie(plugin::Provider::Create(cpu::CpuProviderApi(), ""));
    OrDie(provider_->WarmUp());
    OrDie(provider_->Calibrate(nullptr));
    dtype_ = file_.dtype.value_or(DType::kFloat64);
    request_.network = file_.network;
    request_.allow_slicing = false;
    request_.threads = options_.threads;
    std::vector<std::vector<int64_t>> shapes;
    for (size_t k = 0; k < file_.network.inputs.size(); ++k) {
      const TensorSpec spec{dtype_, OrDie(InputShape(file_.network, k))};
      operands_.push_back(OrDie(MakeCorpusTensor(*file_.seed, k, file_.scales[k], spec)));
      request_.operands.push_back(spec);
      shapes.push_back(spec.shape);
    }
    expression_ = OrDie(contraction::MakeExpression(file_.network, shapes));
  }

  nlohmann::json Run() {
    AddPlan("given", file_.path, file_.sliced);
    if (options_.search > 0) {
      planner::Objective flops;
      flops.read_write_weight = 0;
      Search("flops", flops);
      const planner::StepTimes times =
          planner::MakeStepTimes(*provider_->calibration(), dtype_, options_.threads);
      planner::Objective seconds;
      seconds.kind = planner::Objective::Kind::kSeconds;
      seconds.times = &times;
      Search("seconds", seconds);
    }
    for (auto& [name, plan] : plans_) plan.predicted = kNever;
    for (int round = 0; round < options_.repeat; ++round) {
      PredictAnew();
      for (auto& [name, plan] : plans_) {
        // The first one finds the memory that another plan's took, as no server's would.
        for (int i = 0; i < 2; ++i) plan.seconds = std::min(plan.seconds, Measure(plan));
      }
    }
    nlohmann::json line = {{"name", file_.name},
                           {"dtype", std::string(DTypeName(dtype_))},
                           {"threads", options_.threads}};
    for (const auto& [name, plan] : plans_) {
      line[name] = {{"predicted_seconds", plan.predicted},
                    {"seconds", plan.seconds},
                    {"log10_flops", plan.log10_flops}};
    }
    return line;
  }

 private:
  static constexpr double kNever = 1e30;
  static constexpr int64_t kCacheBytes = int64_t{64} << 20;

  struct PlanFigures {
    ContractionRequest request;
    double predicted = kNever, seconds = kNever, log10_flops = 0;
  };

  void AddPlan(const std::string& name, const std::optional<PathSteps>& path,
               const std::vector<std::string>& sliced) {
    PlanFigures plan;
    plan.request = request_;
    plan.request.path = path;
    plan.request.sliced = sliced;
    const auto job = Prepare(plan.request);
    plan.predicted = job->predicted_seconds().value_or(-1);
    plan.log10_flops = std::log10(job->cost().flops);
    plans_[name] = std::move(plan);
  }

  // Other work on the machine comes and goes: as of the measured times the shortest counts.
  void PredictAnew() {
    OrDie(provider_->Calibrate(nullptr));
    cache_ = std::make_unique<schedule::ProgramCache>(256, kCacheBytes);
    for (auto& [name, plan] : plans_) {
      const auto predicted = Prepare(plan.request)->predicted_seconds();
      plan.predicted = std::min(plan.predicted, predicted.value_or(kNever));
    }
  }

  ContractionRequest RequestOf(const planner::Plan& plan) const {
    ContractionRequest request = request_;
    request.path = contraction::MakeSteps(plan.path, PathSteps::Format::kSsa);
    for (const int index : plan.sliced) request.sliced.push_back(expression_.names[index]);
    return request;
  }

  void Search(const std::string& name, const planner::Objective& objective) {
    planner::SearchOptions options;
    options.objective = objective;
    options.max_seconds = options_.search;
    options.threads = options_.threads;
    options.target_elements = int64_t{1} << 27;
    options.predicted_seconds = [this](const planner::Plan& plan) -> std::optional<double> {
      auto job = ContractionJob::Prepare(RequestOf(plan), {provider_}, &cancel_, cache_.get());
      return job.ok() ? (*job)->predicted_seconds() : std::nullopt;
    };
    const auto found = OrDie(planner::Search(expression_, options, nullptr, nullptr));
    const ContractionRequest request = RequestOf(found.plan);
    AddPlan(name, request.path, request.sliced);
  }

  std::unique_ptr<ContractionJob> Prepare(const ContractionRequest& request) {
    return OrDie(ContractionJob::Prepare(request, {provider_}, &cancel_, cache_.get()));
  }

  double Measure(const PlanFigures& plan) {
    const auto job = Prepare(plan.request);
    std::vector<const void*> pointers;
    for (const Tensor& operand : operands_) pointers.push_back(operand.buffer.data());
    if (result_.buffer.data() == nullptr) {
      result_ = OrDie(Tensor::Allocate(job->program().output_spec()));
    }
    const Clock::time_point start = Clock::now();
    OrDie(job->Start(pointers));
    OrDie(job->RunSet({}, result_.buffer.data(), nullptr));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const Options& options_;
  const NetworkFile file_;
  std::shared_ptr<plugin::Provider> provider_;
  DType dtype_ = DType::kFloat64;
  ContractionRequest request_;
  contraction::Expression expression_;
  std::vector<Tensor> operands_;
  Tensor result_;
  CancelToken cancel_;
  std::unique_ptr<schedule::ProgramCache> cache_ =
      std::make_unique<schedule::ProgramCache>(256, kCacheBytes);
  std::map<std::string, PlanFigures> plans_;
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
    } else if (argument == "--search") {
      options.search = std::atof(value().c_str());
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
  for (const std::string& file : options.files) {
    std::cout << tenon::bench::Comparison(options, file).Run().dump() << std::endl;
  }
}
