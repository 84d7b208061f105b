#include "backends/cpu/normalization.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "backends/core/error.h"

namespace tenon::cpu {
namespace {

// Large enough to be worth a thread, small enough to see a cancellation in time.
constexpr int64_t kRangeElements = int64_t{1} << 18;
constexpr int64_t kAlignment = 64;
// Beyond any memory; two of them still fit in 63 bits.
constexpr int64_t kHugeBytes = int64_t{1} << 61;

int64_t AlignedBytes(const tenon_program& program, int64_t elements) {
  const int64_t bytes =
      std::min(elements * DTypeSize(static_cast<DType>(program.dtype)), kHugeBytes);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool IsStepResult(const tenon_tensor_ref& tensor) {
  return tensor.space != 0 && tensor.space != TENON_SPACE_OPERAND;
}

}  // namespace

// Tensors share places of a space over time, but never while both are to be read; so the last
// writer is the one. A tensor without elements may lie where another lives, hence the extent.
absl::StatusOr<std::vector<StepSources>> FindSources(const tenon_program& program) {
  using Place = std::tuple<int32_t, int64_t, int64_t>;
  const auto place = [](const tenon_tensor_ref& tensor) {
    return Place(tensor.space, tensor.offset, tensor.extent_elements);
  };
  std::map<Place, int32_t> writers;
  std::vector<StepSources> sources(program.n_steps);
  for (int32_t i = 0; i < program.n_steps; ++i) {
    const tenon_step& step = program.steps[i];
    for (const bool is_a : {true, false}) {
      const tenon_tensor_ref& tensor = is_a ? step.a : step.b;
      if (!IsStepResult(tensor)) continue;
      const auto writer = writers.find(place(tensor));
      if (writer == writers.end()) {
        return Error(Reason::kInternal, StrCat("step ", i, " reads what no step has written"))
            .Meta("step", i);
      }
      (is_a ? sources[i].a : sources[i].b) = writer->second;
    }
    writers[place(step.c)] = i;
  }
  return sources;
}

int64_t NormalizationWorkerBytes(const tenon_program& program) {
  if (program.normalize == 0 || program.slices_per_block <= 1) return 0;
  return AlignedBytes(program, program.block_elements);
}

int64_t NormalizationSharedBytes(const tenon_program& program) {
  if (program.normalize == 0) return 0;
  int64_t bytes = 0;
  for (int32_t i = 0; i < program.n_operands; ++i) {
    bytes = std::min(bytes + AlignedBytes(program, program.operand_elements[i]), kHugeBytes);
  }
  return bytes;
}

void TeamLoop::operator()(int64_t count, RangeBody body) const {
  team_.For(count, kRangeElements, [&](int64_t begin, int64_t end, Scratch) {
    for (int64_t first = begin; first < end && !IsCancelled(cancel_); first += kRangeElements) {
      body(first, std::min(end, first + kRangeElements));
    }
  });
}

absl::Status ScaledOperands::BindConstant(const tenon_host& memory, const TeamLoop& loop,
                                          std::vector<const void*>& operands) {
  for (int32_t i = 0; i < program_.n_operands; ++i) {
    if (!Varies(i)) TENON_RETURN_IF_ERROR(Bind(i, memory, loop, operands[i]));
  }
  return absl::OkStatus();
}

absl::Status ScaledOperands::BindSet(const tenon_host& memory, const TeamLoop& loop,
                                     std::vector<const void*>& operands) {
  for (int32_t i = 0; i < program_.n_operands; ++i) {
    if (Varies(i)) {
      TENON_RETURN_IF_ERROR(Bind(i, memory, loop, operands[i]));
    } else if (operands_[i].copied) {
      operands[i] = operands_[i].copy.data();
    }
  }
  return absl::OkStatus();
}

absl::Status ScaledOperands::Bind(int32_t number, const tenon_host& memory, const TeamLoop& loop,
                                  const void*& data) {
  Operand& operand = operands_[number];
  const auto dtype = static_cast<DType>(program_.dtype);
  const int64_t count = program_.operand_elements[number];
  const int64_t largest = LargestExponent(dtype, data, count, loop);
  const int64_t shift = ComfortShift(dtype, largest);
  operand.exponent = -shift;
  operand.copied = shift != 0;
  if (!operand.copied) return absl::OkStatus();
  if (operand.copy.data() == nullptr) {
    TENON_ASSIGN_OR_RETURN(operand.copy,
                           HostBlock::Allocate(memory, count * DTypeSize(dtype),
                                               StrCat("the scaled copy of operand ", number)));
  }
  ScaleByPowerOfTwo(dtype, data, operand.copy.data(), count, shift, loop);
  data = operand.copy.data();
  return absl::OkStatus();
}

}  // namespace tenon::cpu
