// Programs that normalise: where a step's exponents come from, and operands brought into range.

#ifndef TENON_BACKENDS_CPU_NORMALIZATION_H_
#define TENON_BACKENDS_CPU_NORMALIZATION_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "backends/core/binary_scale.h"
#include "backends/cpu/host_block.h"
#include "backends/cpu/threads.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// The steps whose results A and B of a step are; -1 for operands and for the B of unary steps.
struct StepSources {
  int32_t a = -1, b = -1;
};

// Per step. INTERNAL when a step reads what none before it wrote.
absl::StatusOr<std::vector<StepSources>> FindSources(const tenon_program& program);

// What an execution that normalises takes beyond what any other does: per worker, the result of one
// slice, which is scaled before it is added; shared, a copy of every operand, should all of them be
// out of range. Both 0 for programs that don't normalise.
int64_t NormalizationWorkerBytes(const tenon_program& program);
int64_t NormalizationSharedBytes(const tenon_program& program);

// A loop over elements on a worker's threads; once cancelled it leaves the rest out.
class TeamLoop {
 public:
  TeamLoop(ThreadTeam& team, const int32_t* cancel) : team_(team), cancel_(cancel) {}
  void operator()(int64_t count, RangeBody body) const;

 private:
  ThreadTeam& team_;
  const int32_t* const cancel_;
};

// The operands of an execution as its steps read them: themselves while their magnitudes are
// within comfort, else scaled copies, with exponents. Not thread-safe.
class ScaledOperands {
 public:
  explicit ScaledOperands(const tenon_program& program)
      : program_(program), operands_(program.n_operands) {}

  // Looks at the operands that are the same in all sets and replaces pointers in `operands`.
  // EXCEEDS_MEMORY_BUDGET when `memory`, which outlives this, refuses a copy.
  absl::Status BindConstant(const tenon_host& memory, const TeamLoop& loop,
                            std::vector<const void*>& operands);
  // The same for the varying ones; `operands` holds all.
  absl::Status BindSet(const tenon_host& memory, const TeamLoop& loop,
                       std::vector<const void*>& operands);

  // Of an operand: its true value is what is read * 2^exponent.
  int64_t exponent(int32_t operand) const { return operands_[operand].exponent; }

 private:
  struct Operand {
    HostBlock copy;
    bool copied = false;
    int64_t exponent = 0;
  };

  bool Varies(int32_t operand) const {
    return program_.varying != nullptr && program_.varying[operand] != 0;
  }
  absl::Status Bind(int32_t operand, const tenon_host& memory, const TeamLoop& loop,
                    const void*& data);

  const tenon_program& program_;
  std::vector<Operand> operands_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_NORMALIZATION_H_
