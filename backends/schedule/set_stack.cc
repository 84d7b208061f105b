#include "backends/schedule/set_stack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/core/dtype.h"
#include "backends/core/error.h"

namespace tenon::schedule {
namespace {

using contraction::Expression;
using contraction::Path;
using contraction::Program;

// Wide enough for matrix products at full speed; wider stacks only delay the first result.
constexpr int64_t kMaxSets = 128;
// Above this many sets, whole vectors of sets.
constexpr int64_t kVectorSets = 8;
// Of the largest tensor of a stack that depends on its sets.
constexpr int64_t kMaxTensorBytes = int64_t{64} << 20;
// What beginning a step costs, in multiply-adds.
constexpr double kStepCost = 1 << 15;
constexpr int64_t kAlignment = 64;

// Of counts up to the largest: nothing is added to them.
int64_t DivideUp(int64_t value, int64_t unit) { return value / unit + (value % unit != 0); }
int64_t RoundUp(int64_t value, int64_t unit) { return DivideUp(value, unit) * unit; }

// The sets in as few stacks as kMaxSets allows, all of one size.
int64_t EvenStack(int64_t expected_sets, int64_t max_sets) {
  const int64_t limit = std::min(kMaxSets, max_sets);
  if (expected_sets <= 1 || limit <= 1) return 1;
  const int64_t stacks = DivideUp(expected_sets, limit);
  const int64_t sets = DivideUp(expected_sets, stacks);
  return sets > 2 * kVectorSets ? std::min(RoundUp(sets, kVectorSets), limit) : sets;
}

// What a path costs when its varying operands come in sets.
struct SetsCost {
  // Multiply-adds of the steps without such operands, and of those with, per set.
  double shared = 0, varying = 0;
  // What a stack makes quicker: multiply-adds with a shared side, and beginning steps; and the
  // multiply-adds of two varying sides, which it does not.
  double gaining = 0, others = 0;
  double largest_varying = 0;  // elements of the largest tensor that depends on the sets
};

SetsCost CostOfSets(const Expression& expression, const std::vector<bool>& varying,
                    const Path& path) {
  const std::vector<std::vector<int>> indices = TensorIndices(expression, path, {});
  std::vector<bool> depends = varying;
  const auto product = [&](const std::vector<int>& ids) {
    double size = 1;
    for (const int id : ids) size *= static_cast<double>(expression.sizes[id]);
    return size;
  };
  SetsCost cost;
  for (size_t t = 0; t < indices.size(); ++t) {
    if (t >= expression.inputs.size()) {
      const auto& [left, right] = path.pairs[t - expression.inputs.size()];
      depends.push_back(depends[left] || depends[right]);
      std::vector<int> all;
      std::set_union(indices[left].begin(), indices[left].end(), indices[right].begin(),
                     indices[right].end(), std::back_inserter(all));
      const double flops = product(all);
      (depends[t] ? cost.varying : cost.shared) += flops;
      if (depends[left] && depends[right]) {
        cost.others += flops;
      } else if (depends[t]) {
        cost.gaining += flops;
      }
      if (depends[t]) cost.gaining += kStepCost;
    }
    if (depends[t]) cost.largest_varying = std::max(cost.largest_varying, product(indices[t]));
  }
  return cost;
}

// Multiply-adds of `expected_sets` sets in stacks; `stacked` is the expression of one stack.
double TotalFlops(const Expression& stacked, const std::vector<bool>& varying, const Path& path,
                  int64_t sets, int64_t expected_sets) {
  const SetsCost cost = CostOfSets(stacked, varying, path);
  return cost.shared + cost.varying * static_cast<double>(DivideUp(expected_sets, sets));
}

}  // namespace

Expression StackSets(const Expression& expression, const std::vector<bool>& varying, int64_t sets) {
  Expression stacked = expression;
  if (sets <= 1) return stacked;
  const int index = static_cast<int>(expression.sizes.size());
  stacked.sizes.push_back(sets);
  stacked.names.emplace_back();  // no name of the caller is empty
  for (size_t k = 0; k < varying.size(); ++k) {
    if (varying[k]) stacked.inputs[k].insert(stacked.inputs[k].begin(), index);
  }
  stacked.output.insert(stacked.output.begin(), index);
  return stacked;
}

StackChoice ChooseStack(const Expression& expression, const std::vector<bool>& varying,
                        const Path* given, int64_t expected_sets, int64_t max_sets,
                        int64_t element_bytes) {
  StackChoice choice;
  const bool varies = std::find(varying.begin(), varying.end(), true) != varying.end();
  choice.sets = varies ? EvenStack(expected_sets, max_sets) : 1;
  choice.path = given != nullptr ? *given : GreedyPath(expression);
  if (choice.sets == 1) return choice;
  if (given == nullptr) {
    const Expression stacked = StackSets(expression, varying, choice.sets);
    Path late = GreedyPath(stacked);
    const auto total = [&](const Path& path) {
      return TotalFlops(stacked, varying, path, choice.sets, expected_sets);
    };
    if (total(late) < total(choice.path)) choice.path = std::move(late);
  }
  const SetsCost cost = CostOfSets(expression, varying, choice.path);
  if (cost.gaining < cost.others) choice.sets = 1;
  const double set_bytes = cost.largest_varying * static_cast<double>(element_bytes);
  const double fit = static_cast<double>(kMaxTensorBytes) / std::max(set_bytes, 1.0);
  if (fit < static_cast<double>(choice.sets)) {
    choice.sets = EvenStack(expected_sets, std::max<int64_t>(static_cast<int64_t>(fit), 1));
  }
  return choice;
}

SetStack::~SetStack() {
  if (block_ != nullptr) memory_->Release(block_, bytes_);
}

int64_t SetStack::BytesNeeded(const Program& program, const std::vector<bool>& varying,
                              int64_t sets, int64_t cap) {
  if (sets == 1) return 0;
  const tenon_program& descriptor = program.descriptor();
  const int64_t size = DTypeSize(program.output_spec().dtype);
  __int128 bytes = __int128{descriptor.block_elements} * descriptor.n_blocks * size;
  for (size_t k = 0; k < varying.size(); ++k) {
    if (varying[k]) bytes += __int128{descriptor.operand_elements[k]} * size + kAlignment;
  }
  return static_cast<int64_t>(std::min<__int128>(bytes + kAlignment, cap));
}

absl::Status SetStack::Allocate(const Program& program, const std::vector<bool>& varying,
                                int64_t sets, plugin::HostMemory* memory,
                                std::vector<const void*>* operands) {
  if (sets == 1) return absl::OkStatus();
  const tenon_program& descriptor = program.descriptor();
  const int64_t size = DTypeSize(program.output_spec().dtype);
  memory_ = memory;
  sets_ = sets;
  bytes_ = BytesNeeded(program, varying, sets, INT64_MAX);
  block_ = memory->Allocate(bytes_, kAlignment);
  if (block_ == nullptr) {
    return Error(Reason::kExceedsMemoryBudget,
                 StrCat("no memory for ", bytes_, " bytes of operand sets computed together"))
        .Meta("requested_bytes", bytes_);
  }
  char* next = static_cast<char*>(block_);
  for (size_t k = 0; k < varying.size(); ++k) {
    if (!varying[k]) continue;
    const int64_t all = descriptor.operand_elements[k] * size;
    operands_.push_back(Buffer{next, all / sets});
    (*operands)[k] = next;
    next += RoundUp(all, kAlignment);
  }
  results_ = next;
  result_bytes_ = descriptor.block_elements * descriptor.n_blocks * size / sets;
  return absl::OkStatus();
}

void SetStack::Gather(std::span<const OperandSet> sets, int64_t first_slot) {
  const auto count = static_cast<int64_t>(sets.size());
  for (size_t v = 0; v < operands_.size(); ++v) {
    const auto& [data, set_bytes] = operands_[v];
    for (int64_t slot = 0; slot < sets_; ++slot) {
      const int64_t member = slot - first_slot;
      const OperandSet& set = member >= 0 && member < count ? sets[member] : sets.back();
      if (set_bytes > 0) std::memcpy(data + slot * set_bytes, set.varying[v], set_bytes);
    }
  }
}

void SetStack::Scatter(std::span<const OperandSet> sets, int64_t first_slot) const {
  if (result_bytes_ == 0) return;
  for (size_t i = 0; i < sets.size(); ++i) {
    std::memcpy(sets[i].result, results_ + (first_slot + static_cast<int64_t>(i)) * result_bytes_,
                result_bytes_);
  }
}

}  // namespace tenon::schedule
