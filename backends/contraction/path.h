// Contraction paths: checked, binary, in SSA form; and the costs that follow from one.

#ifndef TENON_BACKENDS_CONTRACTION_PATH_H_
#define TENON_BACKENDS_CONTRACTION_PATH_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contraction/expression.h"
#include "backends/core/network.h"

namespace tenon::contraction {

// A complete binary path in SSA form: N inputs are 0..N-1, pair s makes tensor N+s; N-1 pairs (none
// for one input). The first of a pair is the left operand.
struct Path {
  std::vector<std::pair<int, int>> pairs;
};

// Normalises `steps` over `n_inputs` tensors. Steps of one tensor rename it; steps of three or more
// are split left to right. A linear path consumes positions, an SSA path ids. When steps end with
// more than one tensor left, that is an error. BAD_PATH (field "path.steps[s]") says what is wrong:
// an id out of range, already consumed or named twice, an empty step, tensors left over.
absl::StatusOr<Path> MakePath(const PathSteps& steps, size_t n_inputs);

// The steps of a complete path as written in `format`: the inverse of MakePath, n log n.
PathSteps MakeSteps(const Path& path, PathSteps::Format format);

// The distinct indices of each of the 2N-1 tensors of a complete path, in ascending order, without
// those in `fixed` (sliced indices). An operand keeps indices that no other tensor holds; the
// result of a pair has lost what neither a later tensor nor the output needs.
std::vector<std::vector<int>> TensorIndices(const Expression& expression, const Path& path,
                                            const std::vector<int>& fixed);

// Whether each index stands on a single operand and not in the output: such an index is summed
// before its operand meets another.
std::vector<bool> PrivateIndices(const Expression& expression);

// Greedy path (deterministic): joins the pair with the least |C| - (|A| + |B|) among pairs that
// share an index, ties by smaller ids; what remains unconnected is joined smallest first. Of an
// index on more than 32 tensors only neighbours by id count as pairs until fewer hold it, so that
// the time stays near n log n for thousands of tensors.
Path GreedyPath(const Expression& expression);

// Checks `names` (BAD_SLICE, field "sliced[i]": unknown, repeated, held by no operand) and
// returns their ids in order.
absl::StatusOr<std::vector<int>> MakeSliced(const Expression& expression,
                                            const std::vector<std::string>& names);

// Figures of a path with a slicing set, following the seed's cost model (scalar multiplications,
// complex counts one, no factor 2). Operands count with their axes as given (a repeated axis twice)
// in what is read and alive, with distinct indices in flops. Doubles, because joint spaces may
// exceed 2^63.
struct PathCost {
  double flops = 0;       // sum over pairs of the product of the sizes involved, all slices
  double write = 0;       // elements written by pairs, all slices
  double read_write = 0;  // elements read and written, all slices
  double max_size = 0;    // elements of the largest pair result of one slice; for one input,
                          // of its block of the output
  double max_step = 0;    // elements of the largest |A| + |B| + |C| of one slice; operands
                          // count with repeats once and without private indices
  double peak_size = 0;   // elements alive at once in one slice, all operands present at the
                          // start, tensors freed after use
  double slices = 1;
};
PathCost ComputeCost(const Expression& expression, const Path& path,
                     const std::vector<int>& sliced);

// What of that really runs when each pair runs as often as PairRuns (loop_order.h) tells.
struct ExecutedWork {
  double flops = 0, read_write = 0;
};
ExecutedWork ComputeExecutedWork(const Expression& expression, const Path& path,
                                 const std::vector<int>& sliced);

// Adds indices to slice, on the fixed path, until no pair result of a slice has more than
// `target_elements` elements: repeatedly the index that appears in most results over the target,
// then the larger size, then the smaller id. Output indices only if `allow_output`.
// A single input counts with its block of the output. EXCEEDS_MEMORY_BUDGET (metadata
// target_elements, needed_elements) when no set can reach it.
absl::StatusOr<std::vector<int>> SliceToTarget(const Expression& expression, const Path& path,
                                               double target_elements, bool allow_output);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_PATH_H_
