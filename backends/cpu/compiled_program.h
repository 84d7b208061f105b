// A program with an implementation chosen for each of its steps.

#ifndef TENON_BACKENDS_CPU_COMPILED_PROGRAM_H_
#define TENON_BACKENDS_CPU_COMPILED_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/machine_times.h"
#include "backends/cpu/normalization.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// Implementations per kind of step, best first; the last one of each accepts everything.
struct ImplementationLists {
  std::vector<Implementation> contract, unary;
};

// The interpreter for everything.
ImplementationLists ReferenceImplementations();

// All kernels of this folder.
ImplementationLists CpuImplementations();

// Keeps the entries whose names stand in `names` (separated by commas), and the last of each list.
// BAD_PARAMETER when a name is in neither list.
absl::StatusOr<ImplementationLists> OnlyImplementations(const ImplementationLists& lists,
                                                        std::string_view names);

// Immutable once compiled, so shareable between threads. The program must outlive it.
class CompiledProgram {
 public:
  struct Step {
    StepView view;
    std::unique_ptr<StepKernel> kernel;
    std::string refusals;
    const char* name = "";
    double flops = 0;
    double seconds = 0;   // predicted, of one run on one thread
    StepSources sources;  // only of programs that normalise
  };

  // `environment` names what else decides the bits (ISA, libraries); it goes into the fingerprint.
  // UNSUPPORTED_DTYPE or UNSUPPORTED_BY_PROVIDER when the program is not one for this host.
  static absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const tenon_program& program, const tenon_compile_options& options,
      const ImplementationLists& lists, std::string_view environment);

  const tenon_program& program() const { return *program_; }
  const std::vector<Step>& steps() const { return steps_; }
  // Steps of a phase: positions [first, last) in steps().
  struct Range {
    size_t first = 0, last = 0;
  };
  Range phase(int32_t phase) const { return phases_[phase]; }
  // Positions of the slice steps to run when the outermost sliced index that changed stands at
  // loop position `changed`.
  const std::vector<int32_t>& SliceSteps(int changed) const { return slice_steps_[changed]; }
  // Every slice step, for the first slice of a group.
  const std::vector<int32_t>& AllSliceSteps() const { return slice_steps_.back(); }

  int64_t element_bytes() const { return element_bytes_; }
  // Scratch of one thread, a multiple of 64.
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // Of one operand set with all its slices and of what is done once, on one thread.
  double PredictedSeconds() const;
  // For predictions; null: by the table alone. Before others see this.
  void SetTimes(std::shared_ptr<const MachineTimes> times) { times_ = std::move(times); }
  bool has_times() const { return times_ != nullptr; }
  // Of a run with so many workers and threads in all, by the times that were set.
  tenon_prediction Predict(int workers, int threads) const;
  // Points into this.
  tenon_compiled_info Info() const;

 private:
  CompiledProgram() = default;
  static void ChooseKernel(const std::vector<Implementation>& list, Step& step);
  void ChooseKernels(const ImplementationLists& lists);
  absl::Status LinkSources();
  void ListSliceSteps();
  void FormFingerprint(std::string_view environment);
  // Slices for each run of a slice step.
  double SlicesPerRun(const Step& step) const;
  double PredictedSliceSeconds() const;
  // Of the steps that run once for all slices of a set, on one thread.
  double PredictedOnceSeconds() const;

  const tenon_program* program_ = nullptr;
  std::vector<Step> steps_;
  Range phases_[3];
  std::vector<std::vector<int32_t>> slice_steps_;
  std::vector<const char*> names_, refusals_;
  std::vector<double> step_seconds_;
  std::shared_ptr<const MachineTimes> times_;
  int64_t element_bytes_ = 0, scratch_bytes_ = 0;
  uint8_t fingerprint_[32] = {};
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_COMPILED_PROGRAM_H_
