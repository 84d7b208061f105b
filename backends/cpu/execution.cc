#include "backends/cpu/execution.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/memory.h"
#include "backends/core/strings.h"

namespace tenon::cpu {
namespace {

// Adds the life time of this to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<double>& sum) : sum_(sum) {}
  ~Stopwatch() {
    sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::atomic<double>& sum_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

absl::Status BadArgument(std::string_view field, int64_t value, int64_t limit) {
  return Error(Reason::kBadParameter, StrCat(field, " is ", value, "; the execution has ", limit))
      .Field(std::string(field))
      .Meta("value", value)
      .Meta("limit", limit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Execution>> Execution::Begin(
    const CompiledProgram& compiled, const tenon_host& memory, const void* const* operands,
    const tenon_execution_options& options) {
  if (options.workers < 1) return BadArgument("options.workers", options.workers, 1);
  if (options.threads_per_worker < 1) {
    return BadArgument("options.threads_per_worker", options.threads_per_worker, 1);
  }
  auto execution = std::unique_ptr<Execution>(new Execution(compiled, options));
  execution->operands_.assign(operands, operands + compiled.program().n_operands);
  TENON_RETURN_IF_ERROR(execution->TakeMemory(memory, options));
  if (execution->normalizes()) TENON_RETURN_IF_ERROR(execution->TakeScales(memory));
  TENON_RETURN_IF_ERROR(execution->RunPhase(TENON_PHASE_CONSTANT));
  return execution;
}

absl::Status Execution::TakeMemory(const tenon_host& memory,
                                   const tenon_execution_options& options) {
  const int64_t element = compiled_.element_bytes();
  TENON_ASSIGN_OR_RETURN(constant_,
                         HostBlock::Allocate(memory, program_.constant_elements * element,
                                             "results of slice-independent steps"));
  TENON_ASSIGN_OR_RETURN(set_, HostBlock::Allocate(memory, program_.set_elements * element,
                                                   "results of steps per operand set"));
  // Work that is done sooner than other threads come to help is the caller's alone.
  constexpr double kWorthThreadsSeconds = 3e-5;
  const bool is_short = options.workers == 1 && compiled_.PredictedSeconds() < kWorthThreadsSeconds;
  const int wanted =
      is_short ? 1 : std::max(options.threads, options.workers * options.threads_per_worker);
  const int threads = ThreadTeam::Threads(wanted);
  TENON_ASSIGN_OR_RETURN(scratch_, HostBlock::Allocate(memory, compiled_.scratch_bytes() * threads,
                                                       "packing buffers"));
  team_ = std::make_unique<ThreadTeam>(wanted, scratch_.data(), compiled_.scratch_bytes());
  for (int32_t i = 0; i < options.workers; ++i) {
    Worker& worker = workers_.emplace_back();
    TENON_ASSIGN_OR_RETURN(worker.arena,
                           HostBlock::Allocate(memory, program_.arena_elements * element,
                                               StrCat("intermediates of worker ", i)));
    worker.values.resize(program_.n_sliced);
    worker.step_runs.resize(program_.n_steps);
    worker.step_seconds.resize(program_.n_steps);
  }
  return absl::OkStatus();
}

// What only programs that normalise need.
absl::Status Execution::TakeScales(const tenon_host& memory) {
  memory_ = &memory;
  exponents_.resize(program_.n_steps);
  for (Worker& worker : workers_) {
    worker.exponents.resize(program_.n_steps);
    TENON_ASSIGN_OR_RETURN(
        worker.term,
        HostBlock::Allocate(memory, NormalizationWorkerBytes(program_), "the results of slices"));
  }
  scaled_operands_ = std::make_unique<ScaledOperands>(program_);
  return scaled_operands_->BindConstant(memory, TeamLoop(*team_, cancel_), operands_);
}

absl::Status Execution::BindSet(const void* const* operands) {
  operands_.assign(operands, operands + program_.n_operands);
  if (normalizes()) {
    TENON_RETURN_IF_ERROR(
        scaled_operands_->BindSet(*memory_, TeamLoop(*team_, cancel_), operands_));
  }
  return RunPhase(TENON_PHASE_SET);
}

absl::Status Execution::RunPhase(int32_t phase) {
  const Stopwatch stopwatch(seconds_);
  const CompiledProgram::Range range = compiled_.phase(phase);
  if (range.first == range.last) return absl::OkStatus();
  absl::Status status;
  team_->Enter([&] {
    for (size_t i = range.first; i < range.last && status.ok(); ++i) {
      // No group runs now, so the first worker is free.
      status = RunStep(i, workers_[0], /*accumulate=*/false);
    }
  });
  return status;
}

std::byte* Execution::Address(const tenon_tensor_ref& tensor, const Worker& worker) const {
  int64_t offset = tensor.offset;
  std::byte* base = nullptr;
  switch (tensor.space) {
    case TENON_SPACE_OPERAND:
      // Operands are only read; the cast spares a second, constant version of this function.
      base = static_cast<std::byte*>(const_cast<void*>(operands_[tensor.index]));
      for (int32_t i = 0; i < tensor.n_slice_terms; ++i) {
        const tenon_slice_term& term = tensor.slice_terms[i];
        offset += term.stride * worker.values[term.sliced];
      }
      break;
    case TENON_SPACE_CONSTANT:
      base = constant_.data();
      break;
    case TENON_SPACE_SET:
      base = set_.data();
      break;
    case TENON_SPACE_ARENA:
      base = worker.arena.data();
      break;
    case TENON_SPACE_RESULT:
      base = worker.adds_term ? worker.term.data() : static_cast<std::byte*>(worker.partial_sum);
      break;
    default:
      return nullptr;  // B of a unary step
  }
  // A tensor without elements may lie in a space without memory.
  return base == nullptr ? nullptr : base + offset * compiled_.element_bytes();
}

// The system clears pages when they are first written, which can take a second for each gigabyte.
// A kernel that scatters its writes would do all of that before it looks at the cancel flag again.
void Execution::Populate(void* begin, int64_t bytes) {
  constexpr int64_t kLargeBytes = 8 << 20;
  if (bytes < kLargeBytes) return;
  const int64_t pieces = (bytes + kHugePageBytes - 1) / kHugePageBytes;
  team_->For(pieces, 1, [&](int64_t first, int64_t last, Scratch) {
    for (int64_t i = first; i < last && !IsCancelled(cancel_); ++i) {
      const int64_t offset = i * kHugePageBytes;
      PopulateMemory(static_cast<std::byte*>(begin) + offset,
                     std::min(kHugePageBytes, bytes - offset));
    }
  });
}

absl::Status Execution::RunStep(size_t number, Worker& worker, bool accumulate) {
  if (IsCancelled(cancel_)) {
    return Error(Reason::kClientCancelled, "the contraction was cancelled while it was running");
  }
  const CompiledProgram::Step& step = compiled_.steps()[number];
  const tenon_step& description = *step.view.step;
  const auto start = std::chrono::steady_clock::now();
  StepArguments arguments;
  arguments.a = Address(description.a, worker);
  arguments.b = Address(description.b, worker);
  arguments.c = Address(description.c, worker);
  arguments.accumulate = accumulate && description.c.space == TENON_SPACE_RESULT && !normalizes();
  arguments.team = team_.get();
  arguments.cancel = cancel_;
  if (worker.step_runs[number] == 0) {
    Populate(arguments.c, description.c.extent_elements * compiled_.element_bytes());
  }
  step.kernel->Run(arguments);
  if (normalizes()) NormalizeResult(number, worker, arguments.c);
  const std::chrono::duration<double> duration = std::chrono::steady_clock::now() - start;
  worker.step_seconds[number] += duration.count();
  ++worker.step_runs[number];
  worker.flops += step.flops;
  return absl::OkStatus();
}

// The exponent of a tensor that a step reads, `source` its writer.
int64_t Execution::ExponentOf(const tenon_tensor_ref& tensor, int32_t source,
                              const Worker& worker) const {
  if (tensor.space == TENON_SPACE_OPERAND) return scaled_operands_->exponent(tensor.index);
  if (source < 0) return 0;
  const bool in_slice = program_.steps[source].phase == TENON_PHASE_SLICE;
  return (in_slice ? worker.exponents : exponents_)[source];
}

// Brings a step's result into comfortable range and notes its exponent.
void Execution::NormalizeResult(size_t number, Worker& worker, void* result) {
  const tenon_step& step = program_.steps[number];
  const StepSources& sources = compiled_.steps()[number].sources;
  const int64_t exponent =
      SumOfExponents(ExponentOf(step.a, sources.a, worker), ExponentOf(step.b, sources.b, worker));
  const bool in_slice = step.phase == TENON_PHASE_SLICE;
  (in_slice ? worker.exponents : exponents_)[number] =
      Rescale(dtype_, result, exponent, step.c.extent_elements, TeamLoop(*team_, cancel_));
}

// A group's first slice is its partial sum; the others are added with their own exponents.
void Execution::AddSlice(Worker& worker, bool is_first) const {
  const int64_t exponent = worker.exponents[program_.n_steps - 1];
  worker.sum_exponent =
      is_first ? exponent
               : AddScaled(dtype_, worker.partial_sum, worker.sum_exponent, worker.term.data(),
                           exponent, program_.block_elements, TeamLoop(*team_, cancel_));
}

void Execution::SetSlice(int64_t block, int64_t slice, std::vector<int64_t>& values) const {
  for (int32_t i = program_.n_sliced; i-- > 0;) {
    const tenon_sliced_index& index = program_.sliced[i];
    int64_t& number = index.is_output ? block : slice;
    values[i] = number % index.extent;
    number /= index.extent;
  }
}

int Execution::NextSlice(std::vector<int64_t>& values) const {
  for (int32_t i = program_.n_sliced; i-- > 0;) {
    if (++values[i] < program_.sliced[i].extent) return i;
    values[i] = 0;
  }
  return 0;
}

absl::Status Execution::RunSlices(Worker& worker, int64_t block, int64_t first_slice,
                                  int64_t last_slice) {
  SetSlice(block, first_slice, worker.values);
  for (int64_t slice = first_slice; slice < last_slice; ++slice) {
    const bool is_first = slice == first_slice;
    worker.adds_term = normalizes() && !is_first;
    const std::vector<int32_t>& steps =
        is_first ? compiled_.AllSliceSteps() : compiled_.SliceSteps(NextSlice(worker.values));
    for (const int32_t step : steps) {
      TENON_RETURN_IF_ERROR(RunStep(step, worker, !is_first));
    }
    if (normalizes()) AddSlice(worker, is_first);
    ++worker.slices;
  }
  // A long last step may have stopped half-way.
  if (IsCancelled(cancel_)) {
    return Error(Reason::kClientCancelled, "the contraction was cancelled while it was running");
  }
  return absl::OkStatus();
}

absl::Status Execution::CheckGroup(int32_t worker, int64_t block, int64_t first_slice,
                                   int64_t last_slice, const void* partial_sum,
                                   const int64_t* exponent) const {
  const auto n_workers = static_cast<int64_t>(workers_.size());
  if (worker < 0 || worker >= n_workers) return BadArgument("worker", worker, n_workers);
  if (block < 0 || block >= program_.n_blocks)
    return BadArgument("block", block, program_.n_blocks);
  if (first_slice < 0 || first_slice > last_slice) {
    return BadArgument("first_slice", first_slice, program_.slices_per_block);
  }
  if (last_slice > program_.slices_per_block) {
    return BadArgument("last_slice", last_slice, program_.slices_per_block);
  }
  if (partial_sum == nullptr && program_.block_elements > 0) {
    return Error(Reason::kBadParameter, "partial_sum is null").Field("partial_sum");
  }
  if (normalizes() && exponent == nullptr) {
    return Error(Reason::kBadParameter, "the groups of a program that normalises have exponents")
        .Field("exponent");
  }
  return absl::OkStatus();
}

absl::Status Execution::RunGroup(int32_t worker_number, int64_t block, int64_t first_slice,
                                 int64_t last_slice, void* partial_sum, int64_t* exponent) {
  const Stopwatch stopwatch(seconds_);
  TENON_RETURN_IF_ERROR(
      CheckGroup(worker_number, block, first_slice, last_slice, partial_sum, exponent));
  if (first_slice == last_slice && program_.block_elements > 0) {
    std::memset(partial_sum, 0,
                static_cast<size_t>(program_.block_elements * compiled_.element_bytes()));
  }
  Worker& worker = workers_[worker_number];
  worker.partial_sum = partial_sum;
  worker.sum_exponent = normalizes() ? kNoExponent : 0;
  absl::Status status;
  team_->Enter([&] { status = RunSlices(worker, block, first_slice, last_slice); });
  TENON_RETURN_IF_ERROR(status);
  if (exponent != nullptr) *exponent = worker.sum_exponent;
  return absl::OkStatus();
}

tenon_run_statistics Execution::Statistics() const {
  tenon_run_statistics statistics{};
  statistics.struct_size = sizeof(statistics);
  statistics.timing_scope = 1;
  step_runs_.assign(program_.n_steps, 0);
  step_seconds_.assign(program_.n_steps, 0);
  for (const Worker& worker : workers_) {
    statistics.slices += worker.slices;
    statistics.flops += worker.flops;
    for (int32_t i = 0; i < program_.n_steps; ++i) {
      step_runs_[i] += worker.step_runs[i];
      step_seconds_[i] += worker.step_seconds[i];
    }
  }
  statistics.step_runs = step_runs_.data();
  statistics.step_seconds = step_seconds_.data();
  statistics.execution_seconds = seconds_.load();
  statistics.dispatch_seconds = statistics.execution_seconds;
  return statistics;
}

}  // namespace tenon::cpu
