// Runs a compiled program: memory, slices, reuse of kept tensors, cancellation, statistics.

#ifndef TENON_BACKENDS_CPU_EXECUTION_H_
#define TENON_BACKENDS_CPU_EXECUTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/dtype.h"
#include "backends/cpu/compiled_program.h"
#include "backends/cpu/host_block.h"
#include "backends/cpu/normalization.h"
#include "backends/cpu/threads.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// One running contraction, as abi.h describes: concurrency, ownership and order of calls are
// those of `begin`, `bind_set`, `run_group` and `end`.
class Execution {
 public:
  // EXCEEDS_MEMORY_BUDGET, CLIENT_CANCELLED, or BAD_PARAMETER for options out of range.
  static absl::StatusOr<std::unique_ptr<Execution>> Begin(const CompiledProgram& compiled,
                                                          const tenon_host& memory,
                                                          const void* const* operands,
                                                          const tenon_execution_options& options);

  absl::Status BindSet(const void* const* operands);
  // `exponent` as run_scaled_group gives it; 0 unless the program normalises, and null only then.
  absl::Status RunGroup(int32_t worker, int64_t block, int64_t first_slice, int64_t last_slice,
                        void* partial_sum, int64_t* exponent);
  // Not while a group runs.
  tenon_run_statistics Statistics() const;

 private:
  struct Worker {
    HostBlock arena;
    std::vector<int64_t> values;  // of the sliced indices
    std::vector<int64_t> step_runs;
    std::vector<double> step_seconds;
    int64_t slices = 0;
    double flops = 0;
    void* partial_sum = nullptr;
    // Only where the program normalises:
    HostBlock term;                  // a slice's result, before it is added
    std::vector<int64_t> exponents;  // of the slice steps' results, by step
    int64_t sum_exponent = 0;
    bool adds_term = false;  // the step of the result writes `term`
  };

  Execution(const CompiledProgram& compiled, const tenon_execution_options& options)
      : compiled_(compiled),
        program_(compiled.program()),
        dtype_(static_cast<DType>(program_.dtype)),
        cancel_(options.cancel) {}

  absl::Status TakeMemory(const tenon_host& memory, const tenon_execution_options& options);
  absl::Status TakeScales(const tenon_host& memory);
  absl::Status RunPhase(int32_t phase);
  absl::Status RunStep(size_t step, Worker& worker, bool accumulate);
  // Before a step writes a large tensor for the first time.
  void Populate(void* begin, int64_t bytes);
  absl::Status RunSlices(Worker& worker, int64_t block, int64_t first_slice, int64_t last_slice);
  absl::Status CheckGroup(int32_t worker, int64_t block, int64_t first_slice, int64_t last_slice,
                          const void* partial_sum, const int64_t* exponent) const;
  bool normalizes() const { return program_.normalize != 0; }
  int64_t ExponentOf(const tenon_tensor_ref& tensor, int32_t source, const Worker& worker) const;
  void NormalizeResult(size_t step, Worker& worker, void* result);
  void AddSlice(Worker& worker, bool is_first) const;
  std::byte* Address(const tenon_tensor_ref& tensor, const Worker& worker) const;
  void SetSlice(int64_t block, int64_t slice, std::vector<int64_t>& values) const;
  // Moves to the next slice of the block; the position of the outermost index that changed.
  int NextSlice(std::vector<int64_t>& values) const;

  const CompiledProgram& compiled_;
  const tenon_program& program_;
  const DType dtype_;
  const int32_t* const cancel_;
  std::vector<const void*> operands_;
  HostBlock constant_, set_, scratch_;
  std::unique_ptr<ThreadTeam> team_;  // of all workers
  std::vector<Worker> workers_;
  // Only where the program normalises:
  const tenon_host* memory_ = nullptr;
  std::unique_ptr<ScaledOperands> scaled_operands_;
  std::vector<int64_t> exponents_;  // of the constant and set steps' results, by step
  std::atomic<double> seconds_{0};
  mutable std::vector<int64_t> step_runs_;  // sums over the workers, for Statistics
  mutable std::vector<double> step_seconds_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_EXECUTION_H_
