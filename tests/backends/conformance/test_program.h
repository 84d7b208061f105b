// Hand-built programs for provider tests, and an oracle that runs them in double precision.

#ifndef TENON_TESTS_BACKENDS_CONFORMANCE_TEST_PROGRAM_H_
#define TENON_TESTS_BACKENDS_CONFORMANCE_TEST_PROGRAM_H_

#include <complex>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "backends/plugin/abi.h"

namespace tenon::testing {

using Value = std::complex<double>;

// A tensor's elements in a program's dtype, with the same numbers for the oracle.
struct TestTensor {
  std::vector<Value> values;
  std::vector<char> bytes;  // in the dtype
};

int64_t ElementBytes(int32_t dtype);
bool IsComplexDType(int32_t dtype);
// Machine epsilon of the real type of `dtype`.
double EpsilonOf(int32_t dtype);

// `count` numbers in [-1, 1) that the dtype represents exactly.
TestTensor RandomTensor(int32_t dtype, int64_t count, std::mt19937_64& random);
// Elements of a provider's output.
std::vector<Value> ReadValues(int32_t dtype, const void* data, int64_t count);

// Collects steps and owns what their descriptors point to. Sizes of spaces are found from the
// tensors in them.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(int32_t dtype);

  // A sliced index; its number in slice terms. Output indices must be added first.
  int AddSliced(int64_t extent, bool is_output);
  // A step; `modes` holds the groups one after the other.
  void AddContract(int32_t phase, int32_t level, tenon_tensor_ref a, tenon_tensor_ref b,
                   tenon_tensor_ref c, const std::vector<tenon_mode>& batch,
                   const std::vector<tenon_mode>& m, const std::vector<tenon_mode>& n,
                   const std::vector<tenon_mode>& k);
  void AddUnary(int32_t phase, int32_t level, tenon_tensor_ref a, tenon_tensor_ref c,
                const std::vector<tenon_mode>& m, const std::vector<tenon_mode>& k);

  tenon_tensor_ref Operand(int32_t index, const std::vector<tenon_slice_term>& terms = {});
  static tenon_tensor_ref In(tenon_space space, int64_t offset = 0);

  void set_accumulate_double(bool on) { program_.accumulate_double = on ? 1 : 0; }
  void set_block_elements(int64_t elements) { program_.block_elements = elements; }

  // Valid as long as this; nothing may be added afterwards.
  const tenon_program& Build();

 private:
  void AddStep(int32_t kind, int32_t phase, int32_t level, tenon_tensor_ref a, tenon_tensor_ref b,
               tenon_tensor_ref c, const std::vector<tenon_mode> (&groups)[4]);
  void Cover(const tenon_tensor_ref& tensor, const tenon_step& step, int64_t tenon_mode::*stride);

  tenon_program program_{};
  std::vector<tenon_step> steps_;
  std::deque<std::vector<tenon_mode>> modes_;
  std::deque<std::vector<tenon_slice_term>> terms_;
  std::vector<tenon_sliced_index> sliced_;
  std::vector<int64_t> operand_elements_;
};

// What a program must give, and the sum of the absolute values of all products, which bounds
// rounding errors.
struct OracleResult {
  std::vector<Value> values;
  std::vector<double> magnitudes;
};

// Runs slices [first, last) of `block` by definition: every step of every slice, nested loops.
OracleResult RunOracle(const tenon_program& program, const std::vector<TestTensor>& operands,
                       int64_t block, int64_t first, int64_t last);

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CONFORMANCE_TEST_PROGRAM_H_
