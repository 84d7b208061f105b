// The lowered program: a contraction tree with a slicing set as a flat list of strided steps.
//
// The descriptors are those of backends/plugin/abi.h (tenon_program, tenon_step, ...), because a
// program is data that any provider runs; this header adds ownership, lowering, the split of slices
// into groups, and the plan of memory.

#ifndef TENON_BACKENDS_CONTRACTION_PROGRAM_H_
#define TENON_BACKENDS_CONTRACTION_PROGRAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/core/dtype.h"
#include "backends/core/tensor.h"
#include "backends/plugin/abi.h"

namespace tenon::contraction {

struct LoweringOptions {
  DType dtype = DType::kFloat64;  // of every tensor; operands are converted before
  bool accumulate_double = false;
  std::vector<bool> varying;  // per operand: changes from set to set; empty means none
  bool normalize = false;     // as tenon_program says
  // Constant and set results and one arena together should not need more: results that are kept
  // from slice to slice, or for all slices, are given up and formed again until they do not, or
  // none is left. 0: no limit.
  int64_t intermediate_bytes = 0;
};

// Owns a tenon_program and all arrays it points to. Immutable, so shareable between threads; not
// copyable, because descriptors hold pointers into it.
class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const tenon_program& descriptor() const { return descriptor_; }
  // Shape of the full result, in output order (sliced output indices included).
  const TensorSpec& output_spec() const { return output_spec_; }
  // Shape of one block: the output without its sliced indices.
  const std::vector<int64_t>& block_shape() const { return block_shape_; }
  // Strides, in elements of the full result, of the block's axes.
  const std::vector<int64_t>& block_strides() const { return block_strides_; }
  // All sliced indices in the order in which they are walked, outermost first; those without values
  // stand last, because they are no loops.
  const std::vector<int>& sliced_order() const { return sliced_order_; }
  // Element offset of block `block` in the full result.
  int64_t BlockOffset(int64_t block) const;

  // The rule that divides a block's slices into groups: looks only at the program, never at
  // threads, so that sums are formed alike everywhere. Groups are contiguous and non-empty.
  int64_t groups_per_block() const { return groups_per_block_; }
  int64_t group_slices() const { return group_slices_; }  // of every group but perhaps the last
  int64_t n_groups() const { return groups_per_block_ * descriptor_.n_blocks; }

  // Real floating-point operations of one operand set, prologue included, given that each group
  // starts cold: 2 per multiply-add (complex: 8), 1 per element that a unary step reads (complex:
  // 2); and of those what is hoisted into the prologue.
  double total_flops() const { return total_flops_; }
  double hoisted_flops() const { return hoisted_flops_; }
  // Of the results of all steps in one slice, the block of the output included.
  int64_t largest_intermediate_elements() const { return largest_intermediate_; }
  // Elements of the arena that hold tensors from slice to slice.
  int64_t kept_elements() const { return kept_elements_; }
  // Results that are not kept for want of memory.
  int64_t given_up_results() const { return given_up_results_; }
  // Lower-case hexadecimal fingerprint of the lowered program (before any provider's part).
  std::string FingerprintHex() const;

 private:
  friend class Lowering;
  tenon_program descriptor_{};
  std::vector<tenon_step> steps_;
  std::deque<std::vector<tenon_mode>> modes_;
  std::deque<std::vector<tenon_slice_term>> slice_terms_;
  std::vector<tenon_sliced_index> sliced_;
  std::vector<int64_t> operand_elements_;
  std::vector<uint8_t> varying_;
  TensorSpec output_spec_;
  std::vector<int64_t> block_shape_, block_strides_;
  std::vector<int> sliced_order_;
  int64_t groups_per_block_ = 1, group_slices_ = 1, largest_intermediate_ = 0;
  int64_t kept_elements_ = 0, given_up_results_ = 0;
  double total_flops_ = 0, hoisted_flops_ = 0;
};

// Lowers a checked path and slicing set (ids as MakeSliced gives them; their order does not
// matter). OVERFLOW when a tensor that would be formed, or all of them together, or the number of
// slices does not fit; UNSUPPORTED_DTYPE for a type that is no contraction type; nothing of request
// size is allocated here. Loops run over the sliced output indices in output order, then over the
// summed ones in the order in which the least work is redone (OrderSummedLoops). A sliced index
// without values (extent 0) is no loop: it stays a mode, so that each block has at least one slice
// and comes out as zeros (or empty).
absl::StatusOr<std::shared_ptr<const Program>> LowerProgram(const Expression& expression,
                                                            const Path& path,
                                                            const std::vector<int>& sliced,
                                                            const LoweringOptions& options);

// The planned peak, term by term, all in bytes.
struct MemoryPlan {
  int64_t operands = 0;
  int64_t results = 0;   // full results held at once
  int64_t prologue = 0;  // constant and set results
  int64_t workers = 1;
  int64_t worker_arena = 0;  // of one worker, without kept tensors
  int64_t worker_kept = 0;   // tensors that one worker keeps from slice to slice
  int64_t worker_library = 0;
  int64_t shared_library = 0;
  int64_t partial_sums = 0;
  int64_t stack = 0;  // where operand sets that are computed together lie side by side
  int64_t Total() const {
    return operands + results + prologue + workers * (worker_arena + worker_kept + worker_library) +
           shared_library + partial_sums + stack;
  }
};

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_PROGRAM_H_
