// Runs lowered programs by the letter of backends/plugin/abi.h, and watches them doing it.

#ifndef TENON_TESTS_BACKENDS_CONTRACTION_PROGRAM_EVALUATOR_H_
#define TENON_TESTS_BACKENDS_CONTRACTION_PROGRAM_EVALUATOR_H_

#include <complex>
#include <cstdint>
#include <vector>

#include "backends/contraction/program.h"

namespace tenon::testing {

using Element = std::complex<double>;

// All arithmetic is in complex double, whatever the program's dtype. Spaces start as NaN, and the
// arena is NaN again at the start of each group. Every read of an intermediate must find what the
// latest step that wrote this very tensor left there; every access must lie inside its tensor's
// span. Violations fail the running test.
class ProgramEvaluator {
 public:
  explicit ProgramEvaluator(const contraction::Program& program);

  // Runs phase 0. Varying operands may hold anything.
  void Begin(const std::vector<std::vector<Element>>& operands);
  // Runs phase 1.
  void BindSet(const std::vector<std::vector<Element>>& operands);
  // Runs all groups of all blocks and assembles the full result.
  std::vector<Element> RunGroups();

  // Real operations of real arithmetic since construction, by the rule of total_flops(): 2 per
  // multiply-add, 1 per element a unary step reads.
  double flops() const { return flops_; }

 private:
  struct Space {
    std::vector<Element> values;
    std::vector<int> writers;  // per element: step, or -1
  };

  void Poison(Space& space, int64_t elements);
  void RunPhase(int phase);
  void RunGroup(int64_t block, int64_t first, int64_t last);
  void SetLoopValues(int64_t block, int64_t slice, std::vector<int64_t>& values) const;
  void RunStep(int step, const std::vector<int64_t>& loop_values, bool accumulate);
  int64_t Base(const tenon_tensor_ref& ref, const std::vector<int64_t>& loop_values) const;
  Element Read(int writer, const tenon_tensor_ref& ref, int64_t position) const;
  int WriterOf(int reader, const tenon_tensor_ref& ref) const;

  const contraction::Program& program_;
  const tenon_program& descriptor_;
  const std::vector<std::vector<Element>>* operands_ = nullptr;
  Space spaces_[6];  // by tenon_space
  double flops_ = 0;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CONTRACTION_PROGRAM_EVALUATOR_H_
