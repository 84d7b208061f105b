#include "tests/backends/contraction/program_evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace tenon::testing {
namespace {

// Calls `visit` with the offsets in A, B and C for all iterations of `count` modes.
template <typename Visit>
void ForEach(const tenon_mode* modes, int count, int64_t a, int64_t b, int64_t c, Visit visit) {
  if (count == 0) {
    visit(a, b, c);
    return;
  }
  for (int64_t i = 0; i < modes->extent; ++i) {
    ForEach(modes + 1, count - 1, a + i * modes->stride_a, b + i * modes->stride_b,
            c + i * modes->stride_c, visit);
  }
}

}  // namespace

ProgramEvaluator::ProgramEvaluator(const contraction::Program& program)
    : program_(program), descriptor_(program.descriptor()) {
  Poison(spaces_[TENON_SPACE_CONSTANT], descriptor_.constant_elements);
  Poison(spaces_[TENON_SPACE_SET], descriptor_.set_elements);
}

void ProgramEvaluator::Poison(Space& space, int64_t elements) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  space.values.assign(elements, Element(nan, nan));
  space.writers.assign(elements, -1);
}

void ProgramEvaluator::Begin(const std::vector<std::vector<Element>>& operands) {
  operands_ = &operands;
  RunPhase(TENON_PHASE_CONSTANT);
}

void ProgramEvaluator::BindSet(const std::vector<std::vector<Element>>& operands) {
  operands_ = &operands;
  Poison(spaces_[TENON_SPACE_SET], descriptor_.set_elements);
  RunPhase(TENON_PHASE_SET);
}

void ProgramEvaluator::RunPhase(int phase) {
  for (int step = 0; step < descriptor_.n_steps; ++step) {
    if (descriptor_.steps[step].phase == phase) RunStep(step, {}, false);
  }
}

std::vector<Element> ProgramEvaluator::RunGroups() {
  int64_t elements = 1;
  for (const int64_t extent : program_.output_spec().shape) elements *= extent;
  std::vector<Element> result(elements);
  std::vector<tenon_mode> axes;
  for (size_t i = 0; i < program_.block_shape().size(); ++i) {
    axes.push_back({program_.block_shape()[i], 0, 0, program_.block_strides()[i]});
  }
  for (int64_t block = 0; block < descriptor_.n_blocks; ++block) {
    int64_t next_slice = 0;
    for (int64_t group = 0; group < program_.groups_per_block(); ++group) {
      const int64_t last =
          std::min(next_slice + program_.group_slices(), descriptor_.slices_per_block);
      EXPECT_LT(next_slice, last) << "an empty group";
      RunGroup(block, next_slice, last);
      next_slice = last;
      const std::vector<Element>& partial = spaces_[TENON_SPACE_RESULT].values;
      size_t position = 0;
      ForEach(axes.data(), static_cast<int>(axes.size()), 0, 0, program_.BlockOffset(block),
              [&](int64_t, int64_t, int64_t c) { result.at(c) += partial.at(position++); });
      EXPECT_EQ(position, partial.size());
    }
    EXPECT_EQ(next_slice, descriptor_.slices_per_block) << "groups leave slices out";
  }
  return result;
}

void ProgramEvaluator::RunGroup(int64_t block, int64_t first, int64_t last) {
  Poison(spaces_[TENON_SPACE_ARENA], descriptor_.arena_elements);
  Poison(spaces_[TENON_SPACE_RESULT], descriptor_.block_elements);
  std::vector<int64_t> values(descriptor_.n_sliced), previous;
  for (int64_t slice = first; slice < last; ++slice) {
    previous = values;
    SetLoopValues(block, slice, values);
    const auto changed = std::mismatch(values.begin(), values.end(), previous.begin());
    const int outermost_change = static_cast<int>(changed.first - values.begin());
    for (int step = 0; step < descriptor_.n_steps; ++step) {
      if (descriptor_.steps[step].phase != TENON_PHASE_SLICE) continue;
      if (slice > first && descriptor_.steps[step].level <= outermost_change) continue;
      RunStep(step, values, slice > first);
    }
  }
}

void ProgramEvaluator::SetLoopValues(int64_t block, int64_t slice,
                                     std::vector<int64_t>& values) const {
  for (int i = descriptor_.n_sliced; i-- > 0;) {
    const tenon_sliced_index& index = descriptor_.sliced[i];
    int64_t& number = index.is_output ? block : slice;
    values[i] = number % index.extent;
    number /= index.extent;
  }
}

int64_t ProgramEvaluator::Base(const tenon_tensor_ref& ref,
                               const std::vector<int64_t>& loop_values) const {
  int64_t base = 0;
  for (int i = 0; i < ref.n_slice_terms; ++i) {
    base += ref.slice_terms[i].stride * loop_values.at(ref.slice_terms[i].sliced);
  }
  return base;
}

int ProgramEvaluator::WriterOf(int reader, const tenon_tensor_ref& ref) const {
  for (int step = reader; step-- > 0;) {
    const tenon_tensor_ref& c = descriptor_.steps[step].c;
    if (c.space == ref.space && c.offset == ref.offset &&
        c.extent_elements == ref.extent_elements) {
      return step;
    }
  }
  ADD_FAILURE() << "step " << reader << " reads what no step before it writes";
  return -1;
}

// `position` counts from the tensor's offset.
Element ProgramEvaluator::Read(int writer, const tenon_tensor_ref& ref, int64_t position) const {
  if (position < 0 || position >= ref.extent_elements) {
    ADD_FAILURE() << "a read outside the tensor's span";
    return 0;
  }
  if (ref.space == TENON_SPACE_OPERAND) {
    return operands_->at(ref.index).at(ref.offset + position);
  }
  const Space& space = spaces_[ref.space];
  if (space.writers.at(ref.offset + position) != writer) {
    ADD_FAILURE() << "an intermediate was overwritten while it was needed";
  }
  return space.values.at(ref.offset + position);
}

void ProgramEvaluator::RunStep(int number, const std::vector<int64_t>& loop_values,
                               bool accumulate) {
  const tenon_step& step = descriptor_.steps[number];
  const bool is_unary = step.kind == TENON_STEP_UNARY;
  const bool adds = accumulate && step.c.space == TENON_SPACE_RESULT;
  const int a_writer = step.a.space == TENON_SPACE_OPERAND ? -1 : WriterOf(number, step.a);
  const int b_writer =
      is_unary || step.b.space == TENON_SPACE_OPERAND ? -1 : WriterOf(number, step.b);
  const int n_outer = step.n_batch + step.n_m + step.n_n;
  const int64_t a0 = Base(step.a, loop_values);
  const int64_t b0 = is_unary ? 0 : Base(step.b, loop_values);
  Space& target = spaces_[step.c.space];
  ForEach(step.modes, n_outer, a0, b0, 0, [&](int64_t a, int64_t b, int64_t c) {
    Element sum = 0;
    ForEach(step.modes + n_outer, step.n_k, a, b, 0, [&](int64_t ak, int64_t bk, int64_t) {
      const Element x = Read(a_writer, step.a, ak);
      sum += is_unary ? x : x * Read(b_writer, step.b, bk);
      flops_ += is_unary ? 1 : 2;
    });
    EXPECT_LT(c, step.c.extent_elements);
    Element& element = target.values.at(step.c.offset + c);
    element = adds ? element + sum : sum;
    target.writers.at(step.c.offset + c) = number;
  });
}

}  // namespace tenon::testing
