// Operand sets that are computed together: a stack of S sets is one run of a program in which an
// index over the sets, of extent S, has been added to the varying operands and to the output.
//
// What depends on no varying operand is then still computed once for all stacks; a product with one
// varying side becomes one product that is S times as wide, and tiny steps are paid for once in S
// sets.

#ifndef TENON_BACKENDS_SCHEDULE_SET_STACK_H_
#define TENON_BACKENDS_SCHEDULE_SET_STACK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contraction/expression.h"
#include "backends/contraction/path.h"
#include "backends/contraction/program.h"
#include "backends/plugin/provider.h"

namespace tenon::schedule {

// The varying operands of one set, in operand order, and its result.
struct OperandSet {
  std::vector<const void*> varying;
  void* result = nullptr;
};

// The expression of a stack of `sets` sets: one index more, the last by id, that stands first on
// the varying operands and on the output. All other ids stay. Unchanged for one set.
contraction::Expression StackSets(const contraction::Expression& expression,
                                  const std::vector<bool>& varying, int64_t sets);

struct StackChoice {
  int64_t sets = 1;  // computed together
  contraction::Path path;
};
// How many sets to compute together when `expected_sets` will come, at most `max_sets`, and the
// path: `given`, or the cheapest for that many sets of what the planner finds with and without the
// index over the sets. Sets are stacked as long as the largest tensor that depends on them stays
// small, and only where most of their work gains by it: large products of two tensors that both
// depend on the set become no quicker, they only leave the caches. When one set stands alone for
// that reason, the path is still the one that shares most. Looks at nothing but its arguments.
StackChoice ChooseStack(const contraction::Expression& expression, const std::vector<bool>& varying,
                        const contraction::Path* given, int64_t expected_sets, int64_t max_sets,
                        int64_t element_bytes);

// The memory of a stack: the varying operands of all its sets one behind the other, and their
// results. Empty for stacks of one set. Used by one thread at a time.
class SetStack {
 public:
  SetStack() = default;
  SetStack(const SetStack&) = delete;
  SetStack& operator=(const SetStack&) = delete;
  ~SetStack();

  // Bytes that Allocate takes for stacks of `program`, which computes `sets` sets; capped at `cap`.
  static int64_t BytesNeeded(const contraction::Program& program, const std::vector<bool>& varying,
                             int64_t sets, int64_t cap);
  // Takes the memory from `memory`, which outlives the stack, and points the varying ones of
  // `operands` to it. EXCEEDS_MEMORY_BUDGET. Once; `program` outlives the stack.
  absl::Status Allocate(const contraction::Program& program, const std::vector<bool>& varying,
                        int64_t sets, plugin::HostMemory* memory,
                        std::vector<const void*>* operands);

  // Copies the operands of `sets` into the slots from `first_slot` on; all other slots repeat the
  // last of them, so that they hold finite values whenever the set does.
  void Gather(std::span<const OperandSet> sets, int64_t first_slot);
  // All results, `result_bytes()` for each slot.
  void* results() const { return results_; }
  // Copies the results of the slots from `first_slot` on to `sets`.
  void Scatter(std::span<const OperandSet> sets, int64_t first_slot) const;

 private:
  struct Buffer {
    char* data = nullptr;
    int64_t set_bytes = 0;
  };
  plugin::HostMemory* memory_ = nullptr;
  int64_t sets_ = 1, bytes_ = 0;
  void* block_ = nullptr;
  std::vector<Buffer> operands_;  // varying ones
  char* results_ = nullptr;
  int64_t result_bytes_ = 0;
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_SET_STACK_H_
